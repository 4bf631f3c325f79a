"""Describes how wrong elements differ from the expected ones in terms of typical kernel bugs: a
missing epilogue, a limit, a sign, a rounding, or a constant term."""

from __future__ import annotations

import numpy as np

from gemmetry.domain.operation import EpilogueStep, Operation
from gemmetry.numerics.accumulation import LAMBDA, accumulation_error
from gemmetry.numerics.bounds import half_ulp
from gemmetry.numerics.gelu import gelu
from gemmetry.numerics.storage import Array, Float64Array
from gemmetry.verification.error_statistics import Mask

_FEWEST = 8
"""Least number of wrong elements for which a pattern is named."""

_ALIKE = 0.02
"""Errors of one line, or of all, that deviate by less than this share of their size count as
equal."""

_SMALL = 0.02
"""A median error above this share of the expected values cannot come from rounding to a format
wider than eight bits: bf16 rounds by 2⁻⁹, e4m3 by 2⁻⁴."""


def numbers_of(operation: Operation, wrong: Float64Array, right: Float64Array) -> str:
    """What the wrong elements have in common; "" for nothing.

    Args:
        wrong: finite numbers. right: the expected numbers in their places, finite.
    """
    steps = operation.signature.epilogue
    due_zero = right == 0
    if EpilogueStep.RELU in steps and due_zero.all() and (wrong < 0).all():
        return "epilogue: relu does not set negative results to zero, or runs at the wrong place"
    if EpilogueStep.GELU in steps and _is_before_gelu(wrong, right):
        return "epilogue: gelu is left out, or runs at the wrong place"
    if wrong.size < _FEWEST:
        return ""
    ends = np.unique(wrong)
    if ends.size == 2 and _are_limits(ends, wrong, right):
        return f"range: every wrong element is limited to {ends[0]:.6g} or {ends[1]:.6g}"
    if ends.size == 1 and np.unique(right).size > 1:
        return f"constant: every wrong element is {ends[0]:.6g}"
    if _has_other_sign(wrong, right):
        return "sign: every wrong element has the opposite sign"
    if _rounds_ties_away(operation, wrong, right):
        return "precision: halfway cases are rounded away from zero, not to even"
    return ""


def _are_limits(ends: Float64Array, wrong: Float64Array, right: Float64Array) -> bool:
    """Whether the expected values lie beyond the limits, of either sign."""
    return bool(
        ends[0] < 0 < ends[1] and (np.where(wrong < 0, wrong - right, right - wrong) >= 0).all()
    )


def _is_before_gelu(wrong: Float64Array, right: Float64Array) -> bool:
    """Whether applying gelu to the wrong elements gives the expected ones."""
    return bool((np.abs(gelu(wrong) - right) <= _SMALL * np.abs(right) + 1e-3).all())


def _has_other_sign(wrong: Float64Array, right: Float64Array) -> bool:
    return bool(
        (right != 0).all() and (np.abs(wrong + right) <= _SMALL * np.abs(right)).mean() > 0.99
    )


def _rounds_ties_away(operation: Operation, wrong: Float64Array, right: Float64Array) -> bool:
    """Whether every wrong element is one ulp too large where the correct one has an even
    significand: a halfway case rounded the wrong way."""
    ulp = 2 * half_ulp(right, operation.output.dtype)
    if (right == 0).any() or not np.array_equal(np.abs(wrong) - np.abs(right), ulp):
        return False
    return bool((np.mod(right / ulp, 2) == 0).all())


def terms_of(operation: Operation, got: Float64Array, want: Float64Array, marked: Mask) -> str:
    """Describes a missing or superfluous term that is constant over all elements, or within each
    row or column; "" if errors are of another kind.

    Args:
        got, want: some rows and columns of one matrix. marked: which of their elements are wrong.
    """
    if min(got.shape) < _FEWEST or not marked.all() or not np.isfinite(got - want).all():
        return ""
    errors = got - want
    rounding = half_ulp(want, operation.output.dtype)
    rounding += accumulation_error(operation).warn * np.abs(want)
    size = float(np.median(np.abs(errors)))
    granted = np.maximum(_ALIKE * size, 2 * rounding)
    if float(np.median(rounding)) > size / 16:
        return ""
    for axis, what in ((None, "all elements"), (0, "the rows of each column"), (1, "each row")):
        middle = np.median(errors, axis=axis, keepdims=axis is not None)
        if float((np.abs(errors - middle) <= granted).mean()) > 0.99:
            which = f": {float(middle):+.4g}" if axis is None else ""
            return f"a term that is the same in {what} is missing or wrong{which}"
    return ""


def rank_of_errors(
    operation: Operation, errors: Float64Array, want: Float64Array, product: float
) -> int | None:
    """The rank of the errors: the number of column-times-row products whose sum they are, as for n
    products that are missing everywhere; None where rounding hides products of the size `product`.

    Singular values are counted that are above three times the largest one of noise of the size of
    the rounding, (√rows + √columns)·σ (Vershynin, "Introduction to the non-asymptotic analysis of
    random matrices", 2012, theorem 5.32).
    """
    sigma = float(np.median(half_ulp(want, operation.output.dtype))) / np.sqrt(3)
    sigma += accumulation_error(operation).warn * float(np.median(np.abs(want))) / LAMBDA
    noise = sigma * sum(np.sqrt(errors.shape))
    values = np.linalg.svd(errors, compute_uv=False)
    # Products differ from each other by about a tenth of their size.
    if 3 * noise > 0.1 * product * np.sqrt(errors.size):
        return None
    return int((values > 3 * noise).sum())


def is_small(wrong: Float64Array, right: Float64Array) -> bool:
    """Whether errors could come from rounding to any format: a few percent of the expected
    values."""
    scale = np.maximum(np.abs(right), float(np.median(np.abs(right))))
    errors = np.abs(wrong - right)
    return bool(scale.any()) and float(np.median(errors)) <= _SMALL * float(np.median(scale))


def one_sided(wrong: Float64Array, right: Float64Array) -> bool:
    """Whether every wrong element is too small in magnitude."""
    return bool((np.abs(wrong) < np.abs(right)).all() and (wrong * right >= 0).all())


def member_taken_from(got: Array, want: Array, member: int) -> int | None:
    """The matrix of a batch whose result appears in place of that of `member`; None if there is
    none.

    Args:
        got, want: (batch, M, N).
    """
    mine = np.asarray(got[member], np.float64)
    scale = float(np.median(np.abs(np.asarray(want[member], np.float64))))
    for other in range(want.shape[0]):
        if other != member:
            apart = np.median(np.abs(mine - np.asarray(want[other], np.float64)))
            if float(apart) <= 2.0**-8 * scale:
                return other
    return None
