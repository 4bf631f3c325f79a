"""Every operand of every operation gets a change of each essential kind."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.numerics.inputs import ChangeKind, changed_inputs, make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.verification.inputs.exact import changes_of, draw_steps

SHAPES = ("24x16x32", "1x16x32", "24x1x32", "24x16x1", "2x2x2", "1x1x1")

FORMATS = (
    "f32t_f32t_f32t",
    "bf16t_bf16n_bf16n",
    "s8t_s8n_s32t",
    "e4m3t_e4m3n_bf16t_scalerow",
    "e4m3t_e4m3n_bf16t_scaletensor",
)

ADDED = [
    "".join(parts)
    for parts in itertools.product(
        ("", "_alpha0p7"), ("", "_beta1"), ("", "_bias"), ("", "_residual"), ("", "_relu")
    )
]

SIGNS = {ChangeKind.ONE_ELEMENT, ChangeKind.NEGATED}

KEPT_SUMS = {ChangeKind.EXCHANGED, ChangeKind.ELEMENTS_SWAPPED, ChangeKind.SWAPPED}


def operations():
    for shape, formats, added in itertools.product(SHAPES, FORMATS, ADDED):
        if formats.startswith("s8") and added not in ("", "_beta1"):
            continue
        yield f"matmul_{shape}_{formats}{added}"
    yield "batch_matmul_3x5x4x6_f32n_f32t_f32n_residual_relu"
    yield "conv2d_2x9x17x3_3x2x50_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias_relu_residual"


def test_every_operand_gets_each_essential_kind():
    for name in operations():
        operation = parse_operation(name)
        wanted = changes_of(operation)
        assert len(set(wanted)) == len(wanted)
        assert [place for _, place in wanted[:2]] == [0, 1]
        for place, spec in enumerate(operation.inputs):
            kinds = {kind for kind, of in wanted if of == place}
            assert kinds & SIGNS, (name, spec.role)
            assert kinds & KEPT_SUMS or np.prod(spec.shape) == 1, (name, spec.role)
            is_crossed = ChangeKind.EXCHANGED in kinds
            if min(spec.shape) > 1 and len(spec.shape) == 2:
                assert is_crossed, (name, spec.role)
            assert (ChangeKind.CROSSED in kinds) == is_crossed
            if place < 2:
                assert ChangeKind.ONE_ELEMENT in kinds


CHAINS = (
    "matmul_9x7x5_bf16n_bf16n_bf16n_beta1_bias_residual_gelu",
    "matmul_4x6x8_e4m3t_e4m3n_bf16t_scalerow_beta2_bias_residual",
    "matmul_4x6x8_e4m3t_e4m3n_bf16t_scaletensor",
    "matmul_2x1x5_f16t_f16n_f16t",
    "conv2d_2x9x17x3_3x2x50_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias_relu_residual",
)


@pytest.mark.parametrize("name", CHAINS)
def test_each_launch_differs_from_the_one_before_by_one_change(name):
    operation = parse_operation(name)
    inputs = make_inputs(operation, distribution="normal", seed=3)
    kept = [array.copy() for array in inputs]
    wanted = changes_of(operation)
    steps = draw_steps(operation, inputs, wanted, np.random.default_rng(5))
    assert sorted(wanted) == sorted((step.change.kind, step.change.place) for step in steps)
    current = tuple(inputs)
    for step in steps:
        after = changed_inputs(operation, current, step.change)
        differs = [not np.array_equal(a, b) for a, b in zip(current, after, strict=True)]
        assert differs == [place == step.change.place for place in range(len(inputs))]
        # The part that is looked at follows from the step alone.
        axis = -4 if step.seen.place == 0 and "conv" in name else (-2, -1)[step.seen.place == 1]
        if step.seen.place < 2:
            seen = changed_inputs(operation, step.inputs, step.seen)
            found, due = (
                np.take(compute_reference(operation, one).value, step.seen.lines, axis)
                for one in (seen, after)
            )
            np.testing.assert_array_equal(found, due)
        current = after
    assert all((a == b).all() for a, b in zip(inputs, kept, strict=True))


def test_a_few_of_the_changes_are_those_of_all():
    operation = parse_operation("matmul_9x7x5_f32t_f32t_f32t_beta1")
    inputs = make_inputs(operation, distribution="normal", seed=3)
    wanted = changes_of(operation)
    for count in range(1, len(wanted) + 1):
        steps = draw_steps(operation, inputs, wanted[:count], np.random.default_rng(5))
        assert sorted((s.change.kind, s.change.place) for s in steps) == sorted(wanted[:count])
