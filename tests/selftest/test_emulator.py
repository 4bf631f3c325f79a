"""The emulator is right where it has no deliberate bug."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import parse_operation
from gemmetry.hardware.host_device import HostDevice
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.storage import to_float64
from gemmetry.selftest import memory
from gemmetry.selftest.emulator import Racing, TiledGemm, fitted, padded

TILE = (16, 32, 16)
FORMS = (
    "matmul_{}_f32t_f32t_f32t",
    "matmul_{}_bf16t_bf16n_bf16t",
    "matmul_{}_f16n_f16t_f32n",
    "matmul_{}_f64n_f64n_f64n",
    "matmul_{}_f16t_f16t_f16t_accf16",
    "matmul_{}_s8t_s8n_s32t_beta1_relu",
    "matmul_{}_tf32t_tf32t_f32t",
    "matmul_{}_e4m3t_e4m3n_bf16t_scalerow",
    "matmul_{}_e5m2t_e4m3n_f32t_scaletensor",
    "matmul_{}_f32t_f32t_f32n_alpha0p5_beta2_bias_relu_residual",
    "matmul_{}_bf16t_bf16t_f32t_gelu",
    "batch_matmul_3x{}_bf16t_bf16n_f32t_bias",
    "batch_matmul_2x{}_e4m3t_e4m3n_bf16t_scalerow",
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", ["64x64x64", "33x65x50", "1x1x1", "7x100x129"])
def test_it_is_right_for_every_form_and_shape(assert_right: Any, form: str, shape: str) -> None:
    assert_right(TiledGemm, form.format(shape))


@given(
    form=st.sampled_from(FORMS),
    shape=st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 70)),
)
@settings(max_examples=25)
def test_it_is_right_for_any_shape(
    assert_right: Any, form: str, shape: tuple[int, int, int]
) -> None:
    assert_right(TiledGemm, form.format("x".join(map(str, shape))))


def test_a_second_launch_is_as_right_as_the_first(assert_right: Any) -> None:
    assert_right(TiledGemm, FORMS[1].format("40x40x200"), launches=3)


def test_tiles_cover_the_result_once() -> None:
    emulator = TiledGemm(parse_operation("batch_matmul_2x50x100x16_f32t_f32t_f32t"), TILE)
    seen = np.zeros((2, 50, 100), np.int64)
    for processor in range(emulator.processors):
        for number in emulator.work_of(processor):
            tile = emulator.tile_at(number)
            seen[tile.batch, emulator.rows(tile), emulator.columns(tile)] += 1
    assert (seen == 1).all()


def test_padding_is_zero_and_copies_nothing_that_fits() -> None:
    block = np.ones((2, 3), np.float32)
    assert padded(block, (2, 3)) is block
    assert padded(block, (3, 4)).tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]


def test_hazards_happen_by_chance_in_one_place() -> None:
    operation = parse_operation("matmul_64x64x64_f32t_f32t_f32t")
    emulator = Racing(operation, TILE)
    happened, places = 0, set()
    for _ in range(300):
        emulator.before()
        happened += emulator.happens
        struck = [
            (tile.number, step)
            for tile in emulator.tiles()
            for step in range(emulator.step_count)
            if emulator.struck(tile, step)
        ]
        assert len(struck) == emulator.happens
        places.update(struck)
        assert emulator.fragment.stop <= TILE[0]
    # Binomial(300, 0.5) leaves [100, 200] with a chance of 1e-8.
    assert 100 < happened < 200
    assert len(places) > 10


def test_negative_infinity_and_nan_pass_through() -> None:
    operation = parse_operation("matmul_20x40x50_f32t_f32t_f32t")
    inputs = make_inputs(operation, distribution="uniform_signed", seed=7)
    inputs[0][3, 49] = np.nan
    inputs[1][0, 5] = np.inf
    output = HostDevice().allocate(operation.output)
    TiledGemm(operation, TILE).launch(inputs, output)
    bad = ~np.isfinite(to_float64(output))
    expected = np.zeros_like(bad)
    expected[3] = expected[:, 5] = True
    assert (bad == expected).all()


ENDS = ((0, None), (1, None), (0, 2), (1, 1))
"""First step and the one behind the last."""


class StepByStep(TiledGemm):
    one_by_one = True


@pytest.mark.parametrize("form", ["matmul_{}_f32t_f32n_f32t", "matmul_{}_s8n_s8t_s32t"])
@pytest.mark.parametrize("shape", ["32x64x64", "21x37x53", "3x5x200"])
def test_all_steps_at_once_are_the_loop(form: str, shape: str) -> None:
    operation = parse_operation(form.format(shape))
    device = HostDevice()
    # Whole numbers, whose sums are exact in any order.
    arrays = make_inputs(operation, distribution="integers", seed=1)
    inputs = [device.upload(a, s) for a, s in zip(arrays, operation.inputs, strict=True)]
    output = device.allocate(operation.output)
    sums = []
    for kernel in (TiledGemm(operation, TILE), StepByStep(operation, TILE)):
        kernel.launch(inputs, output)
        every = range(kernel.step_count)
        sums.append([kernel.mainloop(t, every[a:b]) for t in kernel.tiles() for a, b in ENDS])
    assert any(block.any() for block in sums[0])
    for at_once, one_by_one in zip(*sums, strict=True):
        assert at_once.dtype == one_by_one.dtype
        np.testing.assert_array_equal(at_once, one_by_one)


def test_a_kernel_that_changes_a_step_does_them_one_by_one() -> None:
    assert not TiledGemm.one_by_one
    assert not Racing.one_by_one
    assert memory.MissingBarrier.one_by_one, "it fills stages in its own way"
    assert memory.StagesShareMemory.one_by_one, "its ring differs"
    assert type("Derived", (memory.WrongSwizzle,), {}).one_by_one


def test_a_tile_is_no_larger_than_the_problem_needs() -> None:
    assert [fitted(64, size) for size in (1, 16, 17, 49, 64, 1000)] == [16, 16, 32, 64, 64, 64]
    assert fitted(8, 100) == 8
