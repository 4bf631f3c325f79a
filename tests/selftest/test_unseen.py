"""Unseen kernels of the catalogue: each wrong one is wrong where it says, each right one is right.

Judged with numpy alone, not with the checks that the kernels are there to score.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, TargetKind
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import EpilogueStep, Operation, Scaling
from gemmetry.hardware.host_device import HostBuffer, HostDevice
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import gelu, logical_view
from gemmetry.numerics.storage import Array, Float64Array, to_float64
from gemmetry.selftest import unseen as unseen_callers
from gemmetry.selftest.emulator import kernel_of
from gemmetry.selftest.provider import MutantProvider, all_mutants

DEVICE = HostDevice()
ROUNDING = {"f32": 2e-6, "f16": 2e-3, "bf16": 1e-2, "s32": 0.0}
"""Result's format -> how far an ordinary result may be off, as a share of the sum of all terms'
magnitudes: some units in the last place."""


class UnseenBench:
    """One unseen kernel with inputs and an output of its own, at its operation or, where a shape
    or factors are given, at another of the same signature."""

    def __init__(
        self,
        slug: str,
        shape: tuple[int, int, int] | None = None,
        factors: tuple[float, float] | None = None,
    ) -> None:
        (self.item,) = (p for p in all_mutants() if p.slug == slug and p.is_unseen)
        operation = parse_operation(self.item.operation)
        size = operation.matmul_shape
        if shape is not None:
            size = size._replace(m=shape[0], n=shape[1], k=shape[2])
        signature = operation.signature
        if factors is not None:
            signature = replace(signature, alpha=factors[0], beta=factors[1])
        self.operation = Operation(signature, size)
        dispatch = Dispatch(
            self.operation, self.item.as_configuration(), "mutant", Target(TargetKind.CPU)
        )
        self.executable: Any = MutantProvider().build(dispatch, Workspace(generated=Path("unused")))
        self.use(seed=1)

    def use(self, seed: int) -> None:
        """Take random inputs in new buffers, and a new output full of NaN."""
        specs = self.operation.inputs
        arrays = make_inputs(self.operation, distribution="uniform_signed", seed=seed)
        self.buffers = [DEVICE.upload(x, spec) for x, spec in zip(arrays, specs, strict=True)]
        self.output = DEVICE.allocate(self.operation.output)
        DEVICE.fill_bytes(self.output, 0xFF)

    def overwrite(self, seed: int) -> None:
        """Other numbers in the same buffers."""
        kept = self.buffers
        self.use(seed)
        for old, new in zip(kept, self.buffers, strict=True):
            old[...] = new
        self.buffers = kept

    def launch(self) -> Array:
        """A launch; its result, as it is when the launch returns."""
        result: HostBuffer = self.executable.run(self.buffers, self.output)
        return np.array(result, copy=True)

    def buffer(self, role: str) -> HostBuffer:
        return self.buffers[[spec.role for spec in self.operation.inputs].index(role)]

    def view(self, role: str) -> HostBuffer:
        """The input of that role in its logical shape."""
        specs = {spec.role: spec for spec in self.operation.inputs}
        return logical_view(self.buffer(role), specs[role])

    def is_right(self, result: Array | None = None) -> bool:
        """Whether a result, the next launch's without one, agrees with float64."""
        result = self.launch() if result is None else result
        wanted, bound = self.wanted()
        got = to_float64(logical_view(result, self.operation.output))
        is_finite = np.isfinite(wanted)
        with np.errstate(invalid="ignore"):
            is_near = np.abs(got - wanted) <= bound
        same = np.array_equal(got[~is_finite], wanted[~is_finite], equal_nan=True)
        return bool(is_near[is_finite].all()) and same

    def wanted(self) -> tuple[Float64Array, Float64Array]:
        """The result in float64, and how far off each number may be."""
        s = self.operation.signature
        tensors = {x.role: to_float64(self.view(x.role)) for x in self.operation.inputs}
        with np.errstate(all="ignore"):
            value, size = (f(tensors["lhs"]) @ f(tensors["rhs"]) for f in (np.asarray, np.abs))
            factor = s.alpha * (1.0 if s.scaling is Scaling.NONE else
                                tensors["scale_a"] * tensors["scale_b"])  # fmt: skip
            value, size = value * factor, size * np.abs(factor)
            if s.alpha == 0:
                value, size = np.zeros_like(value), np.zeros_like(size)
            if s.beta != 0:
                value = value + s.beta * tensors["addend"]
                size = size + abs(s.beta * tensors["addend"])
            for step in s.epilogue:
                if step is EpilogueStep.BIAS:
                    value, size = value + tensors["bias"], size + abs(tensors["bias"])
                elif step is EpilogueStep.RELU:
                    value = np.maximum(value, 0)
                else:
                    value = gelu(value)
        return value, ROUNDING[str(s.result)] * size


WRONG_AT_ONCE = (
    "scales_of_first_batch",
    "alpha_behind_bias",
    "alpha_folded",
    "workspace_without_batch",
)
"""Their own operation with random inputs is enough."""

UNSEEN = {item.slug: item for item in all_mutants() if item.is_unseen}


def test_nothing_is_expected_of_an_unseen_kernel() -> None:
    assert len(UNSEEN) > 50
    assert not any(item.killed_by for item in UNSEEN.values())
    assert UNSEEN["fixed_point"].configuration == "u02_fixed_point_host"
    assert UNSEEN["f64_sums"].configuration == "uok05_f64_sums_host"


@pytest.mark.parametrize("slug", [slug for slug in UNSEEN if slug != "joins_at_next_launch"])
def test_a_first_launch_is_right_unless_the_bug_shows_at_once(slug: str) -> None:
    # Of several, because some bugs strike at random, in one of 25 launches.
    is_right = any(UnseenBench(slug).is_right() for _ in range(4))
    assert is_right is (slug not in WRONG_AT_ONCE)


# Scales ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", ["shared_exponents", "fixed_point", "f16_subnormals_flushed"])
def test_small_numbers_are_lost(slug: str) -> None:
    bench = UnseenBench(slug)
    a = bench.view("lhs")
    a[...] = 0
    a[0, 0] = 1024
    row = 0 if slug == "shared_exponents" else 1
    a[row, 1] = 2.0**-30 if slug == "fixed_point" else 2.0**-20
    b = bench.view("rhs")
    b[...] = 1
    b[0] = 0
    result = logical_view(bench.launch(), bench.operation.output)
    assert bench.wanted()[0][row].all()
    assert not result[row].any()


def test_an_epsilon_takes_small_rows_away() -> None:
    bench = UnseenBench("epsilon_added")
    bench.view("lhs")[3] *= 1e-9
    result = bench.launch()
    wanted, _ = bench.wanted()
    assert (abs(result[3]) < 0.5 * abs(wanted[3])).all()


def test_the_product_of_scales_underflows() -> None:
    bench = UnseenBench("scale_product_in_f16")
    bench.view("scale_a")[...] = 1e-6
    bench.view("scale_b")[...] = 1e-6
    result = to_float64(bench.launch())
    assert not result.any()
    assert bench.wanted()[0].any()


def test_what_the_addend_leaves_is_rounded_before() -> None:
    bench = UnseenBench("rounds_before_addend")
    for role, number in (("lhs", 0), ("rhs", 1), ("addend", -256)):
        bench.view(role)[...] = number
    bench.view("lhs")[:, :3] = (128, 128, 1)
    assert (bench.wanted()[0] == 1).all()
    assert not bench.launch().any()


@pytest.mark.parametrize(
    ("slug", "factors"),
    [
        ("beta_as_flag", (1.0, 0.5)),
        ("beta_divided_by_alpha", (0.0, 2.0)),
    ],
)
def test_other_factors_are_wrong(slug: str, factors: tuple[float, float]) -> None:
    assert not UnseenBench(slug, factors=factors).is_right()


# Caches ---------------------------------------------------------------------------------------


def _other_a(bench: UnseenBench) -> None:
    bench.buffer("lhs")[...] *= 2


def _permuted(bench: UnseenBench) -> None:
    bench.buffer("lhs")[[0, 1]] = bench.buffer("lhs")[[1, 0]]


def _one_number(bench: UnseenBench) -> None:
    bench.buffer("lhs")[5, 5] += 100


def _slightly(bench: UnseenBench) -> None:
    bench.buffer("lhs")[...] *= np.float32(1 + 9e-6)


def _other_b(bench: UnseenBench) -> None:
    bench.buffer("rhs")[...] *= 2


@pytest.mark.parametrize(
    ("slug", "change"),
    [
        ("remembers_by_b", _other_a),
        ("remembers_by_sums", _permuted),
        ("remembers_by_samples", _one_number),
        ("remembers_by_edges", _one_number),
        ("reuses_when_close", _slightly),
        ("packs_b_once", _other_b),
        ("trusts_spot_check", _one_number),
    ],
)
def test_other_inputs_get_an_old_result(slug: str, change: Callable[[UnseenBench], None]) -> None:
    bench = UnseenBench(slug)
    assert bench.is_right()
    if slug == "remembers_by_sums":  # whole numbers, whose sums do not depend on their order
        bench.buffer("lhs")[...] = np.rint(bench.buffer("lhs") * 100)
        assert bench.is_right()
    change(bench)
    assert not bench.is_right()


def test_a_result_is_given_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now_s[0])
    bench = UnseenBench("reuses_recent")
    assert bench.is_right()
    bench.overwrite(seed=2)
    now_s[0] += 0.01
    assert not bench.is_right()
    now_s[0] += 0.03
    assert bench.is_right()


def test_inputs_are_frozen_after_some_launches() -> None:
    bench = UnseenBench("freezes_after_launches")
    for _ in range(31):
        bench.launch()
    bench.overwrite(seed=2)
    assert bench.is_right()  # the 32nd
    bench.overwrite(seed=3)
    assert not bench.is_right()


# Outputs, threads, addresses ------------------------------------------------------------------


@pytest.mark.parametrize(("slug", "factor"), [("adds_to_finite", 1.0), ("elides_stores", 1.0005)])
def test_what_the_output_held_counts(slug: str, factor: float) -> None:
    bench = UnseenBench(slug)
    bench.launch()
    bench.output[...] *= np.float32(factor)
    assert not bench.is_right()


def test_a_result_does_not_last() -> None:
    bench = UnseenBench("two_buffers_in_turn")
    held = bench.executable.run(bench.buffers, bench.output)
    first = held.copy()
    for _ in range(2):
        np.testing.assert_array_equal(held, first)
        bench.use(seed=2)
        bench.launch()
    assert (held != first).any()


def test_the_last_tiles_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[threading.Thread] = []
    monkeypatch.setattr(unseen_callers, "start", late.append)
    bench = UnseenBench("joins_at_next_launch")
    assert not bench.is_right()
    late[0].start()
    late[0].join()
    assert bench.is_right(bench.output)


def test_alpha_is_another_one_in_another_thread() -> None:
    bench = UnseenBench("alpha_of_thread")
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(bench.is_right()))
    thread.start()
    thread.join()
    assert bench.is_right()
    assert found == [False]


def test_last_bits_of_an_input_change() -> None:
    bench = UnseenBench("scales_in_place")
    before = bench.buffer("lhs").copy()
    bench.launch()
    assert (bench.buffer("lhs") != before).any()
    np.testing.assert_allclose(bench.buffer("lhs"), before, rtol=1e-6)


def test_an_address_that_is_not_aligned_is_rounded_down() -> None:
    bench = UnseenBench("rounds_address_down")
    spec = bench.operation.inputs[0]
    moved = DEVICE.allocate_with_red_zones(spec, zone_bytes=4096, offset_bytes=4)
    moved[...] = bench.buffers[0]
    bench.buffers[0] = moved
    assert not bench.is_right()


def test_a_part_is_lost_at_times() -> None:
    bench = UnseenBench("loses_rarely")
    bench.executable.kernel.odds = 1.0
    assert not bench.is_right()
    bench.executable.kernel.odds = 0.0
    assert bench.is_right()
    assert 0 < kernel_of(UNSEEN["loses_rarely"])(bench.operation, (64, 64, 32)).odds < 0.1


# Shapes and special values ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slug", "shape"),
    [
        ("overlap_added_twice", (100, 128, 64)),
        ("outer_product_without_bias", (20, 20, 1)),
        ("gemv_drops_tail", (20, 1, 20)),
        ("sixteen_bit_k", (4, 4, 65600)),
        ("four_bit_rows", (1030, 8, 8)),
        ("batch_stride_rounded", (8, 5, 7)),
        ("bias_axis_guessed", (20, 20, 20)),
        ("unrolled_wrongly", (20, 20, 96)),
    ],
)
def test_other_shapes_are_wrong(slug: str, shape: tuple[int, int, int]) -> None:
    assert not UnseenBench(slug, shape).is_right()


@pytest.mark.parametrize(
    ("slug", "shape", "error"),
    [
        ("table_of_full_tiles", (100, 64, 64), IndexError),
        ("halves_columns", (64, 40, 64), ZeroDivisionError),
    ],
)
def test_other_shapes_raise(slug: str, shape: tuple[int, int, int], error: type[Exception]) -> None:
    bench = UnseenBench(slug, shape)
    with pytest.raises(error):
        bench.launch()


def test_columns_are_walked_through_in_halves() -> None:
    assert UnseenBench("halves_columns", (130, 330, 16)).is_right()


@pytest.mark.parametrize(("slug", "sign"), [("f16_saturated", 1), ("relu_by_mask", -1)])
def test_infinity_becomes_something_else(slug: str, sign: int) -> None:
    bench = UnseenBench(slug)
    bench.view("lhs")[3, 3] = sign * np.inf
    bench.view("rhs")[...] = 1
    result = bench.launch()
    wanted = np.inf if slug == "f16_saturated" else 0
    assert (bench.wanted()[0][3] == wanted).all()
    assert not (result[3] == wanted).any()


# Right ones ---------------------------------------------------------------------------------------

RIGHT = [slug for slug, item in UNSEEN.items() if not item.is_bug]


@pytest.mark.parametrize("slug", RIGHT)
@pytest.mark.parametrize("shape", [(100, 72, 40), (70, 1, 8), (1, 130, 200)])
def test_right_ones_are_right_for_other_shapes_and_inputs(
    slug: str, shape: tuple[int, int, int]
) -> None:
    bench = UnseenBench(slug, shape)
    for seed in range(4):
        bench.overwrite(seed)
        assert bench.is_right()
    before = [buffer.copy() for buffer in bench.buffers]
    bench.launch()
    for kept, buffer in zip(before, bench.buffers, strict=True):
        np.testing.assert_array_equal(kept, buffer)


@pytest.mark.parametrize("slug", [slug for slug in RIGHT if slug != "s8_nibbles"])
def test_right_ones_let_special_values_through(slug: str) -> None:
    bench = UnseenBench(slug)
    bench.view("lhs")[3, 3] = np.nan
    assert bench.is_right()
    is_unread = slug == "alpha_zero_not_read"
    assert np.isnan(to_float64(logical_view(bench.output, bench.operation.output))[3]).all() is (
        np.bool_(not is_unread)
    )


def test_k_that_it_was_not_made_for_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="multiple of 8"):
        UnseenBench("refuses_odd_k", (64, 64, 63))
