"""Compares a result with its reference, element by element, in pieces that stay in cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import Operation
from gemmetry.numerics.bounds import error_bounds, rounding_allowance
from gemmetry.numerics.references import Reference, to_logical
from gemmetry.numerics.storage import (
    FORMATS_WITHOUT_INFINITY,
    Array,
    Float64Array,
    overflow_threshold,
    quantize,
    to_float64,
)

Mask = npt.NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)

_PIECE = 1 << 15
"""Elements compared at a time: ten float64 temporaries of this size fit a 2 MiB cache."""


@dataclass
class ErrorStatistics:
    """How far a result is from its reference. ``bad`` marks elements outside the fail bound."""

    elements: int
    bad: Mask | None = None
    """Two-dimensional, (-1, last axis); None when every element is within its bound."""
    bad_count: int = 0
    warned_count: int = 0
    """Elements outside the warn bound."""
    nan_count: int = 0
    infinite_count: int = 0
    max_ratio: float = 0.0
    """Largest error / fail bound over the finite elements."""
    max_warn_ratio: float = 0.0
    largest_error: float = 0.0
    """Largest error / magnitude beyond what rounding to the result format explains."""
    squared_error: float = 0.0
    squared_reference: float = 0.0
    bias_sum: float = 0.0
    first_bad: str = ""
    """Index, value, expectation and bound of the first element outside its bound."""

    @property
    def has_finite_errors(self) -> bool:
        """False where nothing finite came out, so that error sizes say nothing."""
        return self.nan_count + self.infinite_count < self.elements

    @property
    def relative_frobenius(self) -> float | None:
        """‖got - reference‖ / ‖reference‖ over the finite elements."""
        if self.squared_reference > 0:
            return float(np.sqrt(self.squared_error / self.squared_reference))
        return 0.0 if self.squared_error == 0 else None

    @property
    def signed_bias(self) -> float:
        """Mean error over the warn bound, counted away from zero: negative where magnitudes are
        too small, as truncation makes them."""
        return self.bias_sum / self.elements if self.elements else 0.0


def compare(
    operation: Operation, result: Array, reference: Reference, *, exact_sums: bool = False
) -> ErrorStatistics:
    """Judge `result` (host array in storage shape) by the bounds of `operation`.

    NaN is never right. An infinity (in formats without one, NaN or the largest value) is right
    where the reference, give or take the bound, overflows the result format.
    """
    got = _rows(operation, result)
    statistics = ErrorStatistics(elements=got.size)
    for part, piece in reference.rows(_PIECE):
        if operation.signature.lhs.is_integer:
            bad = _compare_integers(got[part], piece, statistics)
        else:
            bad = _compare_floats(operation, got[part], piece, statistics, exact_sums)
        if bad is not None:
            _note_bad(operation, statistics, got, part, piece, bad, exact_sums)
    return statistics


def compare_exactly(operation: Operation, result: Array, reference: Reference) -> ErrorStatistics:
    """Judge `result` against values known exactly: it must be ``reference.value`` rounded once to
    the result format. -0 is 0; an overflow may saturate where it may be NaN."""
    got = _rows(operation, result)
    rows = to_float64(reference.value).reshape(got.shape)
    statistics = ErrorStatistics(elements=got.size)
    right = quantize(rows, operation.signature.result)
    got_values, right_values = to_float64(got), to_float64(right)
    bad = got_values != right_values
    if bad.any():
        bad &= ~_overflows_rightly(operation, got_values, rows, np.zeros(()))
    if bad.any():
        statistics.bad, statistics.bad_count = bad, int(bad.sum())
        statistics.nan_count = int(np.isnan(got_values).sum())
        statistics.infinite_count = int(np.isinf(got_values).sum())
        row, column = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
        statistics.first_bad = _describe(
            operation, row, column, got_values[row, column], right_values[row, column], 0.0
        )
    return statistics


def outside_bound(operation: Operation, result: Array, reference: Reference, where: Mask) -> int:
    """How many of the elements of `result` marked by `where` (both in storage shape) are outside
    the fail bound."""
    got = _rows(operation, result)
    where = _rows(operation, where)
    got = got[where][np.newaxis]
    width = reference.value.shape[-1]
    extra = reference.extra_rounding
    piece = Reference(
        reference.value.reshape(-1, width)[where][np.newaxis],
        reference.magnitude.reshape(-1, width)[where][np.newaxis],
        None if extra is None else extra.reshape(-1, width)[where][np.newaxis],
    )
    statistics = ErrorStatistics(elements=got.size)
    if operation.signature.lhs.is_integer:
        bad = _compare_integers(got, piece, statistics)
    else:
        bad = _compare_floats(operation, got, piece, statistics, exact_sums=False)
    return 0 if bad is None else int(bad.sum())


def _rows(operation: Operation, result: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    logical = np.ascontiguousarray(to_logical(result, operation.output))
    return logical.reshape(-1, logical.shape[-1])


def _compare_integers(got: Array, piece: Reference, statistics: ErrorStatistics) -> Mask | None:
    statistics.squared_reference += float(np.square(piece.magnitude).sum())
    if np.array_equal(got, piece.value):
        return None
    error = np.abs(to_float64(got) - to_float64(piece.value))
    # Nothing lies between integers: an error below one half is none.
    statistics.max_ratio = max(statistics.max_ratio, 2.0 * float(error.max()))
    statistics.largest_error = max(statistics.largest_error, float(error.max()))
    statistics.squared_error += float(np.square(error).sum())
    return error > 0


def _compare_floats(
    operation: Operation,
    got: Array,
    piece: Reference,
    statistics: ErrorStatistics,
    exact_sums: bool,
) -> Mask | None:
    values = to_float64(got)
    bounds = error_bounds(operation, piece, exact_sums=exact_sums)
    expected = to_float64(piece.value)
    with np.errstate(invalid="ignore"):
        error = values - expected
    distance = np.abs(error)
    bad: Mask = ~(distance <= bounds.fail)
    any_bad = bool(bad.any())
    if any_bad and not np.isfinite(values).all():
        bad &= ~_overflows_rightly(operation, values, expected, bounds.fail)
        any_bad = bool(bad.any())
        statistics.nan_count += int(np.isnan(values[bad]).sum())
        statistics.infinite_count += int(np.isinf(values[bad]).sum())
        unusable = ~np.isfinite(values)
        error[unusable] = distance[unusable] = 0.0
    warn_ratio = distance / bounds.warn
    statistics.max_warn_ratio = max(statistics.max_warn_ratio, float(warn_ratio.max()))
    if statistics.max_warn_ratio > 1:
        statistics.warned_count += int((warn_ratio > 1).sum())
    statistics.max_ratio = max(statistics.max_ratio, float((distance / bounds.fail).max()))
    statistics.squared_error += float(np.vdot(error, error))
    statistics.squared_reference += float(np.vdot(expected, expected))
    statistics.bias_sum += float(np.copysign(warn_ratio, error * expected).sum())
    excess = distance - rounding_allowance(operation, piece, fused=True)
    np.divide(excess, piece.magnitude, out=excess, where=piece.magnitude > 0)
    statistics.largest_error = max(statistics.largest_error, float(excess.max()))
    return bad if any_bad else None


def _overflows_rightly(
    operation: Operation, values: Float64Array, reference: Float64Array, bound: Float64Array
) -> Mask:
    result = operation.signature.result
    beyond = np.abs(reference) + bound >= overflow_threshold(result)
    same_side = np.sign(values) == np.sign(reference)
    accepted = np.isinf(values) & same_side
    if result in FORMATS_WITHOUT_INFINITY:
        accepted |= np.isnan(values)
    if result.is_fp8:
        # Casts to fp8 may saturate: CUDA's __NV_SATFINITE is the default of its conversions.
        accepted |= (np.abs(values) == result.maximum) & same_side
    return cast(Mask, beyond & accepted)


def _note_bad(
    operation: Operation,
    statistics: ErrorStatistics,
    got: Array,
    part: slice,
    piece: Reference,
    bad: Mask,
    exact_sums: bool,
) -> None:
    if statistics.bad is None:
        statistics.bad = np.zeros(got.shape, dtype=np.bool_)
        row, column = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
        bound = error_bounds(operation, piece, exact_sums=exact_sums).fail[row, column]
        statistics.first_bad = _describe(
            operation,
            part.start + row,
            column,
            to_float64(got[part])[row, column],
            piece.value[row, column],
            bound,
        )
    statistics.bad[part] = bad
    statistics.bad_count += int(bad.sum())


def _describe(
    operation: Operation, row: int, column: int, got: float, expected: float, bound: float
) -> str:
    shape = operation.output.shape
    index = [int(i) for i in np.unravel_index(row, shape[:-1])] + [column]
    tolerance = f" ± {float(bound):.3g}" if bound else ""
    return f"{index}: got {float(got):.9g}, expected {float(expected):.9g}{tolerance}"
