"""The accuracy class: the arithmetic that the errors of a result are consistent with."""

from __future__ import annotations

import math

from gemmetry.domain.dtypes import BF16, F16, F32, F64, TF32
from gemmetry.domain.operation import Operation
from gemmetry.numerics.accumulation import (
    BLOCK,
    TF32_BLOCK,
    fp8_promoted_error,
    fp8_unpromoted_error,
    probabilistic_error,
)

EXACT = "exact"
"""Class of integer results without errors."""

NO_CLASS = "none"
"""Worse than every class: the result or its inputs are wrong."""


def class_errors(operation: Operation) -> dict[str, float]:
    """Maps each class to the largest error / M expected of its arithmetic at this K, in ascending
    order; only classes that are possible with the input formats.

    ``fp32`` and ``fp32-accumulated`` have the same bound and differ in their inputs: products of
    formats up to tf32 are exact, so only the sums of the latter round. ``tf32`` adds the rounding
    of both inputs to 11 bits, 2·2⁻¹¹. Only a result in f64 can show ``fp64``. The bounds are the
    warn tier's of :mod:`gemmetry.numerics.accumulation`.
    """
    s = operation.signature
    k = operation.matmul_shape.k
    narrow = max(s.lhs.significand_bits, s.rhs.significand_bits) <= TF32.significand_bits
    block = TF32_BLOCK if TF32 in (s.lhs, s.rhs) else BLOCK
    float32 = probabilistic_error(k, F32.unit_roundoff, block)
    classes = {
        "fp32-accumulated" if narrow else "fp32": float32,
        "fp16-accumulated": probabilistic_error(k, F16.unit_roundoff),
        "bf16-accumulated": probabilistic_error(k, BF16.unit_roundoff),
    }
    if s.result is F64:
        classes["fp64"] = 2 * probabilistic_error(k, F64.unit_roundoff)
    if not narrow:
        classes["tf32"] = float32 + 2 * TF32.unit_roundoff
    if s.lhs.is_fp8 or s.rhs.is_fp8:
        classes["fp8-promoted"] = float32 + fp8_promoted_error(k)
        classes["fp8-14bit"] = float32 + fp8_unpromoted_error(k)
    return dict(sorted(classes.items(), key=lambda item: item[1]))


def accuracy_class(operation: Operation, largest_error: float) -> str:
    """The best class whose bound holds.

    Args:
        largest_error: the largest error / M over all elements, less the part that rounding to the
            result format explains.
    """
    if operation.signature.lhs.is_integer:
        return EXACT if largest_error == 0 else NO_CLASS
    if math.isnan(largest_error):
        return NO_CLASS
    return next(
        (name for name, bound in class_errors(operation).items() if largest_error <= bound),
        NO_CLASS,
    )
