"""A changed line, and the result that follows from the previous one."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.inputs import (
    ChangeKind,
    InputChange,
    changeable,
    changed_inputs,
    changed_reference,
    draw_change,
    lines_of,
    make_inputs,
    negates_result,
    part_with_lines,
    reference_of_lines,
    result_edits,
    split_lines,
    undoing,
)
from gemmetry.numerics.references import compute_reference, to_storage
from gemmetry.numerics.storage import to_float64

OPERATIONS = (
    "matmul_9x7x5_f32t_f32t_f32t", "matmul_9x7x5_bf16n_bf16n_bf16n_beta1_bias_residual_gelu",
    "matmul_2x1x5_f16t_f16n_f16t", "matmul_1x4x3_s8t_s8t_s32t_beta1",
    "matmul_4x6x8_e4m3t_e4m3n_bf16t_scalerow_beta2_bias_residual",
    "matmul_1x1x8_e4m3t_e4m3n_bf16t_scaletensor",
    "matmul_9x12x20_e4m3t_e4m3n_bf16t_vs1x8_vs4x8_bias",
    "matmul_4x6x192_e2m1t_e2m1n_bf16t_vs32_e8m0",
    "batch_matmul_2x4x6x20_e2m1t_e2m1n_f16t_vs16_e4m3",
    "batch_matmul_3x5x4x6_f32n_f32t_f32n_residual_relu",
    "conv2d_2x9x17x3_3x2x50_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias_relu_residual",
)  # fmt: skip

SINGLE_KINDS = [k for k in ChangeKind if k not in (ChangeKind.CROSSED, ChangeKind.EXCHANGED)]


CASES = [
    (name, kind, place)
    for name in OPERATIONS for kind in SINGLE_KINDS for place in changeable(parse_operation(name))
]  # fmt: skip


def drawn(name):
    operation = parse_operation(name)
    return operation, make_inputs(operation, distribution="normal", seed=3)


def assert_close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "kind", "place"), CASES)
def test_a_reference_follows_its_changed_line(name, kind, place):
    operation, inputs = drawn(name)
    reference = compute_reference(operation, inputs)
    change = draw_change(operation, inputs, kind, place, np.random.default_rng(5))
    changed = changed_inputs(operation, inputs, change)
    assert not np.array_equal(to_float64(changed[place]), to_float64(inputs[place]))
    wanted = compute_reference(operation, changed)
    found = changed_reference(operation, inputs, reference, change)
    assert_close(found.value, wanted.value)
    np.testing.assert_allclose(found.magnitude, wanted.magnitude, rtol=1e-6)
    assert (found.extra_rounding is None) == (wanted.extra_rounding is None)
    # What was written is undone, and a stored result is edited like its operand.
    back = [np.array(array) for array in changed]
    for edit in undoing(operation, inputs, change):
        back[edit.place][edit.index] = edit.contents
    assert all(a.tobytes() == b.tobytes() for a, b in zip(back, inputs, strict=True))
    stored = to_storage(reference.value, operation.output)
    lines = compute_reference(*part_with_lines(operation, inputs, [change])).value
    for edit in result_edits(operation, change, lines):
        stored[edit.index] = edit.contents
    assert_close(stored, to_storage(wanted.value, operation.output))


def _no_product(lhs, rhs):
    raise AssertionError("the other operand was read as a whole")


@pytest.mark.parametrize("kind", SINGLE_KINDS)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", [
    "matmul_9x7x80_bf16t_bf16n_bf16t", "matmul_9x7x80_f16n_f16t_f16n_alpha1p5",
    "batch_matmul_2x6x7x80_e4m3t_e4m3n_bf16t", "matmul_9x7x80_f32t_f32t_f32t",
])  # fmt: skip
def test_changed_lines_follow_from_known_ones(name, kind, place):
    operation, inputs = drawn(name)
    reference = compute_reference(operation, inputs)
    for seed in range(4):
        change = draw_change(operation, inputs, kind, place, np.random.default_rng(seed))
        found = reference_of_lines(operation, inputs, reference, change, matmul=_no_product)
        wanted = compute_reference(*part_with_lines(operation, inputs, [change]))
        assert_close(found.value, wanted.value)
        np.testing.assert_allclose(found.magnitude, wanted.magnitude, rtol=1e-5)
        assert found.sizes == reference.sizes
        assert negates_result(operation, change) is (kind is ChangeKind.NEGATED)


@pytest.mark.parametrize("special", [np.inf, np.nan, 3e38])
def test_lines_with_cancellation_or_special_values_are_computed(special):
    operation, drawn_inputs = drawn("matmul_4x6x80_f32t_f32t_f32t")
    inputs = tuple(np.array(a) for a in drawn_inputs)
    inputs[0][2, 5] = special
    inputs[1][7] = 0.0
    reference = compute_reference(operation, inputs)
    line = np.array(inputs[0][[2]])
    line[:, [5, 7]] = line[:, [7, 5]]
    change = InputChange(ChangeKind.ELEMENTS_SWAPPED, 0, "lhs", (2,), line)
    found = reference_of_lines(operation, inputs, reference, change)
    wanted = compute_reference(operation, changed_inputs(operation, inputs, change))
    np.testing.assert_allclose(found.value[0], wanted.value[2], rtol=1e-12)
    np.testing.assert_allclose(found.magnitude[0], wanted.magnitude[2], rtol=1e-5)


def test_results_of_several_changes_are_one_product():
    operation, inputs = drawn("matmul_9x7x5_f32t_f32t_f32t_residual")
    rng = np.random.default_rng(2)
    kinds = (ChangeKind.SWAPPED, ChangeKind.NEGATED, ChangeKind.ONE_ELEMENT)
    changes = [draw_change(operation, inputs, kind, 1, rng) for kind in kinds]
    part, taken = part_with_lines(operation, inputs, changes)
    assert part.matmul_shape.n == 4
    pieces = list(split_lines(operation, changes, compute_reference(part, taken).value))
    assert [change for change, _ in pieces] == changes
    for change, lines in pieces:
        whole = compute_reference(operation, changed_inputs(operation, inputs, change)).value
        assert_close(lines, whole[:, list(change.lines)])


@pytest.mark.parametrize("axis", [-1, -2])
def test_lines_of_a_transposed_array_are_taken_without_a_copy_of_all_of_it(axis):
    whole = np.arange(1000 * 1000, dtype=np.int16).reshape(1000, 1000).T
    wanted = np.take(whole, (7, 3), axis)
    tracemalloc.start()
    try:
        found = lines_of(whole, (7, 3), axis)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.array_equal(found, wanted)
    assert peak < whole.nbytes / 10
