from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference, to_storage
from gemmetry.numerics.storage import quantize
from gemmetry.verification.after_timing import (
    ABSOLUTE_DIFFERENCE,
    ALLCLOSE,
    NORMALISED_DIFFERENCE,
    RIVALS,
    judge,
)

OPERATION = parse_operation("matmul_600x64x1024_bf16t_bf16t_bf16n")


def judged(change, *, distribution="uniform", operation=OPERATION):
    inputs = make_inputs(operation, distribution=distribution, seed=1)
    reference = compute_reference(operation, inputs)
    value = change(np.array(reference.value, dtype=float))
    output = to_storage(quantize(value, operation.output.dtype), operation.output)
    return judge(operation, output, reference)


def test_a_right_result_is_let_through_by_all():
    assert judged(lambda c: c) == dict.fromkeys(RIVALS, True)


def row_zero(c):
    c[-1] = 0
    return c


def test_what_each_lets_through():
    """Rows of the table in the research on detection power, at M = 600, K = 1024."""
    assert judged(lambda c: c * 0) == dict.fromkeys(RIVALS, False)
    assert judged(row_zero) == {
        ALLCLOSE: False, NORMALISED_DIFFERENCE: True, ABSOLUTE_DIFFERENCE: False
    }  # fmt: skip
    assert judged(lambda c: c * np.nan) == {
        ALLCLOSE: False, NORMALISED_DIFFERENCE: False, ABSOLUTE_DIFFERENCE: True
    }  # fmt: skip
    assert judged(lambda c: c * 1.001)[ALLCLOSE]
    assert judged(lambda c: c * 1.001)[NORMALISED_DIFFERENCE]


def test_small_data_hide_everything_from_an_absolute_difference():
    small = parse_operation("matmul_16x16x64_bf16t_bf16t_bf16t_alpha0p0001")
    found = judged(lambda c: c * 0, operation=small)
    assert found[ABSOLUTE_DIFFERENCE] and found[ALLCLOSE]
    assert not found[NORMALISED_DIFFERENCE]


def test_overflow_is_close_to_itself_alone():
    operation = parse_operation("matmul_8x8x16_f16t_f16t_f16t_alpha65504")
    assert judged(lambda c: c, operation=operation)[ALLCLOSE]
    assert not judged(lambda c: -c, operation=operation)[ALLCLOSE]


def test_integers():
    operation = parse_operation("matmul_8x8x16_s8t_s8t_s32t")
    assert judged(lambda c: c, operation=operation) == dict.fromkeys(RIVALS, True)
    assert not judged(lambda c: c + 1, operation=operation)[ABSOLUTE_DIFFERENCE]


@pytest.mark.parametrize("output", [np.zeros((3, 4)), np.zeros((64, 600), np.float32)])
def test_another_shape_or_dtype_is_let_through_by_none(output):
    reference = compute_reference(OPERATION, make_inputs(OPERATION, distribution="uniform", seed=1))
    assert judge(OPERATION, output, reference) == dict.fromkeys(RIVALS, False)
