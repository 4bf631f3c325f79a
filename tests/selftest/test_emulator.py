"""The emulator is right where it has no deliberate bug."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import parse_operation
from gemmetry.hardware.host_device import HostDevice
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.selftest import memory
from gemmetry.selftest.emulator import Racing, TiledGemm, fitted, padded
from gemmetry.verification.comparison import compare

TILE = (16, 32, 16)
DEVICE = HostDevice()
FORMS = (
    "matmul_{}_f32t_f32t_f32t", "matmul_{}_bf16t_bf16n_bf16t", "matmul_{}_f16n_f16t_f32n",
    "matmul_{}_f64n_f64n_f64n", "matmul_{}_f16t_f16t_f16t_accf16",
    "matmul_{}_s8t_s8n_s32t_beta1_relu", "matmul_{}_tf32t_tf32t_f32t",
    "matmul_{}_e4m3t_e4m3n_bf16t_scalerow", "matmul_{}_e5m2t_e4m3n_f32t_scaletensor",
    "matmul_{}_f32t_f32t_f32n_alpha0p5_beta2_bias_relu_residual", "matmul_{}_bf16t_bf16t_f32t_gelu",
    "batch_matmul_3x{}_bf16t_bf16n_f32t_bias", "batch_matmul_2x{}_e4m3t_e4m3n_bf16t_scalerow",
)  # fmt: skip


SIDES = st.integers(1, 70)


@pytest.mark.parametrize("form", FORMS)
@given(shape=st.tuples(SIDES, SIDES, SIDES), launches=st.sampled_from((1, 3)))
@example(shape=(64, 64, 64), launches=1)
@example(shape=(33, 65, 50), launches=1)
@example(shape=(1, 1, 1), launches=1)
@example(shape=(7, 100, 129), launches=3)
@settings(max_examples=2)
def test_it_is_right_for_every_form_and_shape(
    form: str, shape: tuple[int, int, int], launches: int
) -> None:
    operation = parse_operation(form.format("x".join(map(str, shape))))
    inputs = make_inputs(operation, distribution="uniform_signed", seed=7)
    reference = compute_reference(operation, inputs)
    buffers = [DEVICE.upload(a, spec) for a, spec in zip(inputs, operation.inputs, strict=True)]
    emulator = TiledGemm(operation, TILE)
    for _ in range(launches):
        output = DEVICE.allocate_with_red_zones(operation.output, zone_bytes=4096)
        DEVICE.fill_bytes(output, 0xFF)
        assert emulator.launch(buffers, output) is output
        errors = compare(operation, output, reference)
        assert (errors.bad_count, errors.warned_count) == (0, 0)
        assert all(map(DEVICE.red_zones_intact, (*buffers, output)))


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
    emulator = Racing(parse_operation("matmul_64x64x64_f32t_f32t_f32t"), TILE)
    every = [(tile, step) for tile in emulator.tiles() for step in range(emulator.step_count)]
    places = []
    for _ in range(300):
        emulator.before()
        struck = [(tile.number, step) for tile, step in every if emulator.struck(tile, step)]
        assert len(struck) == emulator.happens
        places += struck
        assert emulator.fragment.stop <= TILE[0]
    # Binomial(300, 0.5) leaves [100, 200] with a chance of 1e-8.
    assert 100 < len(places) < 200
    assert len(set(places)) > 10


def test_negative_infinity_and_nan_pass_through() -> None:
    operation = parse_operation("matmul_20x40x50_f32t_f32t_f32t")
    inputs = make_inputs(operation, distribution="uniform_signed", seed=7)
    inputs[0][3, 49], inputs[1][0, 5] = np.nan, np.inf
    output = DEVICE.allocate(operation.output)
    TiledGemm(operation, TILE).launch(inputs, output)
    expected = np.zeros(output.shape, bool)
    expected[3] = expected[:, 5] = True
    assert (~np.isfinite(output) == expected).all()


ENDS = ((0, None), (1, None), (0, 2), (1, 1))
"""First step and the one behind the last."""


class StepByStep(TiledGemm):
    one_by_one = True


@pytest.mark.parametrize("form", ["matmul_{}_f32t_f32n_f32t", "matmul_{}_s8n_s8t_s32t"])
@pytest.mark.parametrize("shape", ["32x64x64", "21x37x53", "3x5x200"])
def test_all_steps_at_once_are_the_loop(form: str, shape: str) -> None:
    operation = parse_operation(form.format(shape))
    # Whole numbers, whose sums are exact in any order.
    arrays = make_inputs(operation, distribution="integers", seed=1)
    inputs = [DEVICE.upload(a, s) for a, s in zip(arrays, operation.inputs, strict=True)]
    sums = []
    for kernel in (TiledGemm(operation, TILE), StepByStep(operation, TILE)):
        kernel.launch(inputs, DEVICE.allocate(operation.output))
        every = range(kernel.step_count)
        sums.append([kernel.mainloop(t, every[a:b]) for t in kernel.tiles() for a, b in ENDS])
    assert any(block.any() for block in sums[0])
    for at_once, one_by_one in zip(*sums, strict=True):
        np.testing.assert_array_equal(at_once, one_by_one, strict=True)


def test_a_kernel_that_changes_a_step_does_them_one_by_one() -> None:
    assert not TiledGemm.one_by_one and not Racing.one_by_one
    assert memory.MissingBarrier.one_by_one, "it fills stages in its own way"
    assert memory.StagesShareMemory.one_by_one, "its ring differs"
    assert type("Derived", (memory.WrongSwizzle,), {}).one_by_one


def test_a_tile_is_no_larger_than_the_problem_needs() -> None:
    assert [fitted(64, size) for size in (1, 16, 17, 49, 64, 1000)] == [16, 16, 32, 64, 64, 64]
    assert fitted(8, 100) == 8
