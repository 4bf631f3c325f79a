"""Where changes are drawn, and what they keep."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.inputs import (
    ChangeKind,
    changed_inputs,
    draw_change,
    draw_exchange,
    edits,
    has_crossings,
    make_inputs,
    negated_factor,
    unchanged_line,
    undoing,
)
from gemmetry.numerics.references import to_logical
from gemmetry.numerics.storage import to_float64


def drawn(name, distribution="integers"):
    operation = parse_operation(name)
    return operation, make_inputs(operation, distribution=distribution, seed=3)


def test_changes_keep_what_caches_look_at():
    operation, inputs = drawn("matmul_16x12x8_f32t_f32t_f32t")
    a = to_float64(inputs[0])

    def changed(kind):
        change = draw_change(operation, inputs, kind, 0, np.random.default_rng(1))
        return to_float64(changed_inputs(operation, inputs, change)[0])

    assert (np.abs(changed(ChangeKind.NEGATED)) == np.abs(a)).all()
    assert (changed(ChangeKind.SWAPPED).sum(axis=0) == a.sum(axis=0)).all()
    assert (changed(ChangeKind.ELEMENTS_SWAPPED).sum(axis=1) == a.sum(axis=1)).all()
    assert (changed(ChangeKind.ONE_ELEMENT) != a).sum() == 1


def test_places_follow_the_seed():
    operation, inputs = drawn("matmul_512x512x4_f32t_f32t_f32t")
    lines = [
        draw_change(operation, inputs, ChangeKind.NEGATED, 0, np.random.default_rng(seed)).lines
        for seed in (*range(8), 0)
    ]
    assert lines[0] == lines[-1]
    assert len(set(lines)) > 4


def test_s8_without_a_counterpart_of_its_lowest_number():
    operation = parse_operation("matmul_2x2x4_s8t_s8t_s32t")
    inputs = (np.full((2, 4), -128, np.int8), np.ones((4, 2), np.int8))
    change = draw_change(operation, inputs, ChangeKind.NEGATED, 0, np.random.default_rng(0))
    assert (change.contents == 127).all()


@pytest.mark.parametrize("distribution", ["integers", "normal"])
@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize(("name", "place"), [
    ("matmul_16x12x8_f32t_f32t_f32t", 0), ("matmul_16x12x9_bf16t_bf16n_bf16n_beta1", 1),
    ("matmul_16x12x8_bf16t_bf16n_bf16n_beta1", 2), ("matmul_16x12x8_s8t_s8n_s32t", 1),
    ("batch_matmul_3x5x4x6_f32n_f32t_f32n", 0), ("batch_matmul_3x5x4x6_f32n_f32t_f32n", 1),
])  # fmt: skip
def test_an_exchange_keeps_the_numbers_of_every_row_and_column(
    name, place, everywhere, distribution
):
    operation, inputs = drawn(name, distribution)
    rng = np.random.default_rng(1)
    crossed, exchanged = draw_exchange(operation, inputs, place, rng, everywhere=everywhere)
    assert (crossed.kind, exchanged.kind) == (ChangeKind.CROSSED, ChangeKind.EXCHANGED)
    before = changed_inputs(operation, inputs, crossed)
    after = changed_inputs(operation, before, exchanged)
    spec = operation.inputs[place]
    old, new = (to_float64(to_logical(one[place], spec)) for one in (before, after))
    count = spec.shape[-1] if place != 1 else spec.shape[-2]
    batch = spec.shape[0] if everywhere and len(spec.shape) == 3 else 1
    assert (old != new).sum() == batch * (4 * (count // 2) if everywhere else 4)
    for axis in (-1, -2):
        assert (np.sort(old, axis) == np.sort(new, axis)).all()
    if not operation.signature.lhs.is_integer:
        # Only the sign of a number changes.
        assert (np.abs(old) == np.abs(new)).all()
    if not everywhere:
        # Checksums weighted by position stay as well.
        flat = np.arange(old.size).reshape(old.shape)
        assert math.isclose((old * flat).sum(), (new * flat).sum(), abs_tol=1e-9)


@pytest.mark.parametrize(("name", "place", "has"), [
    ("matmul_16x12x8_f32t_f32t_f32t_bias", 0, True), ("matmul_1x12x8_f32t_f32t_f32t", 0, False),
    ("matmul_16x12x1_f32t_f32t_f32t", 1, False), ("matmul_16x12x8_f32t_f32t_f32t_bias", 2, False),
    ("matmul_16x12x8_e4m3t_e4m3n_bf16t_scalerow", 2, False),
])  # fmt: skip
def test_only_two_lines_of_two_elements_cross(name, place, has):
    assert has_crossings(parse_operation(name), place) is has


@pytest.mark.parametrize(
    "name", ["matmul_31x33x29_f32t_f32t_f32t", "matmul_32x64x16_f32n_f32n_f32t"]
)
@pytest.mark.parametrize("place", [0, 1])
def test_no_sample_by_stride_holds_both_elements(name, place):
    operation, inputs = drawn(name)
    for seed in range(5):
        seen = []
        for kind in (ChangeKind.ONE_ELEMENT, ChangeKind.LAST_ELEMENT):
            change = draw_change(operation, inputs, kind, place, np.random.default_rng(seed))
            changed = changed_inputs(operation, inputs, change)[place]
            (index,) = np.flatnonzero(changed.ravel() != inputs[place].ravel())
            seen.append(int(index))
        assert seen[1] == inputs[place].size - 1
        assert all((seen[1] - seen[0]) % stride for stride in range(2, 17))


def test_lines_that_change_places_differ():
    """Scale factors are powers of two, of which many are the same."""
    operation, inputs = drawn("matmul_64x12x16_e4m3t_e4m3n_bf16t_scalerow")
    for seed in range(8):
        rng = np.random.default_rng(seed)
        change = draw_change(operation, inputs, ChangeKind.SWAPPED, 2, rng)
        assert (changed_inputs(operation, inputs, change)[2] != inputs[2]).sum() == 2


def test_a_single_factor_changes_its_sign():
    operation, inputs = drawn("matmul_4x6x8_e4m3t_e4m3n_bf16t_scaletensor")
    change = negated_factor(operation, inputs, 2)
    assert str(change) == "the scale of A negated"
    assert changed_inputs(operation, inputs, change)[2] == -inputs[2]
    (edit,), (back,) = edits(operation, change), undoing(operation, inputs, change)
    assert (edit.contents, back.contents) == (-inputs[2], inputs[2])
    looked_at = unchanged_line(operation, inputs, 1, np.random.default_rng(0))
    assert (changed_inputs(operation, inputs, looked_at)[1] == inputs[1]).all()
