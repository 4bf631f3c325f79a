from __future__ import annotations

import re
from functools import partial
from itertools import product as pairs_of
from types import SimpleNamespace

import numpy as np
import pytest
from tests.verification.conftest import FakeExecutable, assert_fails, drawn, operands, product

from gemmetry.domain.errors import DeviceLostError, LaunchError, UnsupportedError
from gemmetry.numerics.references import apply_epilogue
from gemmetry.numerics.storage import to_float64
from gemmetry.verification.checks import CheckOutcome, shapes
from gemmetry.verification.companions import Companions
from gemmetry.verification.context import Context
from gemmetry.verification.protocol import verify

TILE = (16, 16, 8)
NAME = "matmul_32x32x32_f32t_f32n_f32t"


def kept(axis, limit):
    """A kernel that leaves out what lies past `limit(size)` along an axis."""

    def kernel(operation, tensors):
        a, b = to_float64(tensors["lhs"]), to_float64(tensors["rhs"])
        end = limit(getattr(operation.matmul_shape, axis))
        result = a[..., :end] @ b[..., :end, :] if axis == "k" else a @ b
        dropped = {"m": np.s_[..., end:, :], "n": np.s_[..., end:], "k": np.s_[:0]}
        result[dropped[axis]] = 0
        return apply_epilogue(operation, result, tensors)

    return kernel


def whole_tiles(axis):
    tile = TILE["mnk".index(axis)]
    return kept(axis, lambda size: size // tile * tile)


@pytest.fixture
def check(context_of):
    """check(name, kernel, which=...) -> (result, context); builds are counted in context.built."""

    def run(
        name=NAME, kernel=product, which=shapes.check_tail_shapes, build=None, known=None, **how
    ):
        built = []

        def make(operation):
            built.append(operation)
            return build(operation) if build else FakeExecutable(operation, kernel)

        known = {} if known is None else known
        context = context_of(
            name, kernel=kernel, companions=Companions(make, TILE, known=known), **how
        )
        result = which(context)
        context.built = built
        return result, context

    return run


RIGHT = (
    NAME, "batch_matmul_2x32x32x32_bf16n_bf16t_bf16n_bias_relu",
    "matmul_splitk_32x32x32_f16t_f16n_f16t_slices4", "matmul_32x32x32_s8t_s8n_s32t",
)  # fmt: skip


@pytest.mark.parametrize("name", [*RIGHT, "matmul_32x32x32_e4m3t_e4m3n_bf16t_scalerow"])
@pytest.mark.parametrize("thorough", [False, True])
def test_right_kernels_pass(check, name, thorough):
    closed = []

    def build(operation):
        executable = FakeExecutable(operation, product)
        executable.close = lambda: closed.append(operation)
        return executable

    result, context = check(name, thorough=thorough, build=build)
    assert result.text == "passed"
    assert len(context.built) >= (40 if thorough else 7)
    assert closed == context.built
    inputs, _ = shapes._answer(context.built[0], 42)
    assert all(np.count_nonzero(to_float64(array)) == array.size for array in inputs)


@pytest.mark.parametrize("which", [shapes.check_tail_shapes, shapes.check_long_axes])
def test_results_are_kept_but_for_failures(check, which):
    known = {}
    _, first = check(which=which, known=known)
    _, second = check(which=which, known=known)
    assert len(first.built) == len(set(first.built)) > 0 == len(second.built)
    assert len(known) == 1
    known = {}
    for _ in range(2):
        result, context = check(NAME, whole_tiles("k"), known=known)
        assert result.is_failure and context.evidence


def test_refusing_is_not_a_failure(check):
    def build(operation):
        if operation.matmul_shape.k % 16:
            raise UnsupportedError("K must be a multiple of 16")
        return FakeExecutable(operation, product)

    result, _ = check(build=build)
    assert (result.outcome, result.refused) == (CheckOutcome.PASSED, 10)
    assert result.detail.startswith("10 of 11 shapes refused (first matmul_")
    assert "K must be a multiple of 16" in result.detail
    result, _ = check(build=lambda operation: None)
    assert result.outcome is CheckOutcome.NOT_APPLICABLE
    assert "not supported" in result.detail


@pytest.mark.parametrize("axis", ["m", "n"])
def test_a_kernel_that_refuses_tails_of_k_has_those_of_m_and_n_tried(check, axis):
    """Rounding all three sizes up would hide what is missing."""

    def build(operation):
        aligned = operation.matmul_shape.k % 16 == 0
        return FakeExecutable(operation, whole_tiles(axis)) if aligned else None

    result, _ = check(build=build)
    assert result.is_failure
    assert result.detail.startswith("matmul_17x15x16_")


@pytest.mark.parametrize(("processor_s", "build_s", "launch_s", "text"), [
    (1.0, 2.1, 0.0, "incomplete: stopped after 2 of them, as they take long"),
    (0.0, 20.0, 0.0, "passed"),  # it waits for a busy machine
    (1.0, 0.0, 2.1, "passed"),  # launches are no builds
])  # fmt: skip
def test_time_of_builds_is_what_the_processor_spends_on_them(
    check, monkeypatch, processor_s, build_s, launch_s, text
):
    now = [0.0]
    monkeypatch.setattr(shapes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(shapes, "_processor_s", lambda: processor_s * now[0])
    monkeypatch.setattr(shapes, "LONGEST_S", {False: 300.0, True: 300.0})
    monkeypatch.setattr(shapes, "LONGEST_BUILDS_S", {False: 4.0, True: 4.0})

    def slow(operation, tensors):
        now[0] += launch_s
        return product(operation, tensors)

    def build(operation):
        now[0] += build_s
        return FakeExecutable(operation, slow)

    assert check(build=build)[0].text == text


def raising(error):
    """Builds what raises `error` when it is launched."""

    def run(inputs, output):
        raise error

    def build(operation):
        executable = FakeExecutable(operation, product)
        executable.run = run
        return executable

    return build


def test_a_launch_that_is_rejected_is_a_refusal_unless_the_device_is_gone(check, monkeypatch):
    build = raising(LaunchError("odd sizes are not for me"))
    result, context = check(build=build)
    assert result.outcome is CheckOutcome.NOT_APPLICABLE
    assert "odd sizes are not for me" in result.detail

    def lost(device):
        raise DeviceLostError("gone")

    monkeypatch.setattr(type(context.launcher.device), "synchronize", lost)
    with pytest.raises(DeviceLostError):
        check(build=build)


@pytest.mark.parametrize("wrapped", [True, False])
def test_an_exception_that_is_a_bug_is_not_a_refusal(check, wrapped):
    error = IndexError("list index out of range")
    outer = LaunchError("user.py:kernel raised something")
    outer.__cause__ = error
    result, _ = check(build=raising(outer if wrapped else error))
    assert_fails(result, "raised IndexError")


def test_more_tiles_than_the_device_has_multiprocessors(check, monkeypatch):
    _, alone = check(which=shapes.check_many_shapes)
    monkeypatch.setattr(type(alone.launcher.device), "multiprocessors", 20, raising=False)
    result, context = check(which=shapes.check_many_shapes)
    assert result.outcome is CheckOutcome.PASSED
    first = context.built[0].matmul_shape
    assert first != alone.built[0].matmul_shape
    assert -(-first.m // TILE[0]) * -(-first.n // TILE[1]) > 20


def test_a_verdict_counts_refused_shapes():
    def build(other):
        return None if other.matmul_shape.m % 16 else FakeExecutable(other, product)

    operation, *given = drawn(NAME)
    verdict = verify(build(operation), operation, *given, companions=Companions(build, TILE))
    assert verdict.status == "passed"
    texts = [verdict.checks[name] for name in ("tail_shapes", "many_shapes")]
    counts = [int(re.search(r"(\d+) of \d+ shapes refused", text)[1]) for text in texts]
    assert verdict.refused_shapes == sum(counts)
    assert all(counts)


@pytest.mark.parametrize("limit", ["LONGEST_S", "LONGEST_BUILDS_S"])
def test_slow_shapes_are_left_out(check, monkeypatch, limit):
    monkeypatch.setattr(shapes, limit, {False: -1.0, True: -1.0})
    result, context = check()
    assert result.text == "incomplete: stopped after 0 of them, as they take long"
    assert context.built == []


@pytest.mark.parametrize("formats", ["f16t_f16n_f32t", "bf16t_bf16n_bf16t"])
def test_gelu_is_looked_at_where_it_bends(check, formats):
    """Sums of one sign are 0 or far beyond it."""
    name = f"matmul_32x32x32_{formats}_gelu"
    result, _ = check(name, lambda o, t: np.maximum(0, product(o, t)))
    assert_fails(result, ": values: ")
    assert check(name)[0].text == "passed"


@pytest.fixture
def factors(check):
    """factors(name, kernel, ...) -> (result, context) of the check of alpha and beta."""
    return partial(check, which=shapes.check_alpha_beta)


def test_other_factors_only_where_the_operation_has_them(factors):
    result, context = factors()
    assert (result.outcome, context.built) == (CheckOutcome.NOT_APPLICABLE, [])
    result, context = factors(thorough=True)
    assert result.text == "passed"
    tried = {(one.signature.alpha, one.signature.beta) for one in context.built}
    assert tried >= {*shapes.FACTORS, *pairs_of(shapes.SIGNS, shapes.SIGNS)} - {(1.0, 0.0)}
    # Integers take beta alone.
    result, context = factors("matmul_32x32x32_s8t_s8n_s32t_beta1", thorough=True)
    assert all(operation.signature.alpha == 1 for operation in context.built)
    assert not result.is_failure


def test_an_exchange_hidden_by_equal_factors_is_failed(factors):
    def swapped(operation, tensors):
        s = operation.signature
        a, b = operands(tensors)
        addend = to_float64(tensors["addend"]) if s.beta else 0.0
        return (s.beta or s.alpha) * to_float64(a @ b) + s.alpha * addend

    name = f"{NAME}_alpha2_beta2"
    assert factors(name, swapped)[0].is_failure
    assert factors(name)[0].text == "passed"


@pytest.fixture(autouse=True)
def without_deadlines(monkeypatch):
    """However busy the machine is."""
    monkeypatch.setattr(shapes, "LONG_AXES_S", {False: 600.0, True: 600.0})


@pytest.fixture
def check_long(check):
    """check_long(name, kernel, ...) -> (result, the shapes that were built)."""

    def run(name=NAME, *arguments, **how):
        result, context = check(name, *arguments, which=shapes.check_long_axes, **how)
        return result, [tuple(operation.matmul_shape[:3]) for operation in context.built]

    return run


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_pass_three_long_shapes(check_long, name):
    result, built = check_long(name)
    assert result.text == "passed"
    sizes = [max(shape) for shape in built]
    assert sizes[:2] == [1029, 1029]
    assert sizes[-1] > 2**16
    assert all(sorted(shape)[1] <= 8 for shape in built)


@pytest.mark.parametrize("axis", ["m", "n"])
def test_paranoid_tries_more_than_65536_lines(check_long, axis):
    kernel = kept(axis, lambda size: 65536)
    assert not check_long(NAME, kernel)[0].is_failure
    assert check_long(NAME, kernel, thorough=True)[0].is_failure


def test_what_would_take_long_is_left_out_and_reported(check_long, monkeypatch):
    monkeypatch.setattr(shapes, "LONG_AXES_S", {False: 0.0, True: 0.0})
    result, built = check_long()
    assert result.outcome is CheckOutcome.INCOMPLETE
    assert "left out: 1029x3x5, which would take" in result.detail
    assert "; 3x8x65542, which would take" in result.detail
    assert not [shape for shape in built if max(shape) > 5000]


def test_what_only_seems_to_take_long_is_tried(check_long, monkeypatch):
    """The operation's own launches are slow, for example because they compile."""
    monkeypatch.setattr(shapes, "LONG_AXES_S", {False: 1.0, True: 1.0})
    monkeypatch.setattr(Context, "fastest_s", 60.0)
    result, built = check_long()
    assert result.text == "passed"
    assert (3, 8, 65542) in built


def test_refusals_are_reported_and_rounded_sizes_tried(check_long):
    def build(operation, multiple=16):
        if operation.matmul_shape.m % multiple:
            raise UnsupportedError("too long")
        return FakeExecutable(operation)

    result, built = check_long(build=build)
    assert result.outcome is CheckOutcome.PASSED
    assert (16, 16, 65552) in built
    result, _ = check_long(build=partial(build, multiple=2**40))
    assert result.outcome is CheckOutcome.NOT_APPLICABLE
    assert "too long" in result.detail
