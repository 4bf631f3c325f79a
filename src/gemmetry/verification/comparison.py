"""Compares a result with its reference, element by element, in pieces that stay in cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import Operation
from gemmetry.numerics.bounds import error_bounds, half_ulp
from gemmetry.numerics.references import Reference, to_logical
from gemmetry.numerics.storage import (
    FORMATS_WITHOUT_INFINITY,
    Array,
    Float64Array,
    overflow_threshold,
    same_bytes,
    to_float64,
)

Mask = npt.NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)

_EXACT_PIECE = 1 << 17
"""Elements compared at a time where only equality is asked."""

_PIECE = 1 << 13
"""Elements compared at a time: ten float64 temporaries of this size fit a second-level cache
(0.6 MiB). An 8192² bf16 result takes about 1 s on one core."""


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
            bounds = error_bounds(operation, piece, exact_sums=exact_sums).fail
            told = (to_float64(got[part]), to_float64(piece.value), bounds)
            _note_bad(operation, statistics, got, part, bad, told)
    return statistics


def compare_exactly(operation: Operation, result: Array, expected: Array) -> ErrorStatistics:
    """Judge `result` against `expected` (logical shape, in the result format): every element must
    be the same number. -0 is 0; where the expectation overflowed, so may the result, by any of
    the accepted ways."""
    got = _rows(operation, result)
    rows = np.ascontiguousarray(expected).reshape(got.shape)
    statistics = ErrorStatistics(elements=got.size)
    step = max(1, _EXACT_PIECE // got.shape[1])
    for start in range(0, got.shape[0], step):
        part = slice(start, start + step)
        if same_bytes(got[part], rows[part]):
            continue
        values, wanted = to_float64(got[part]), to_float64(rows[part])
        bad: Mask = values != wanted
        bad &= ~_overflows_rightly(operation, values, _overflowing(wanted), np.zeros(()))
        if bad.any():
            statistics.nan_count += int(np.isnan(values[bad]).sum())
            statistics.infinite_count += int(np.isinf(values[bad]).sum())
            told = (values, wanted, np.zeros(bad.shape))
            _note_bad(operation, statistics, got, part, bad, told)
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


def _overflowing(rounded: Float64Array) -> Float64Array:
    """Infinity for what rounding to a format without infinity made NaN, keeping the sign bit."""
    return np.where(np.isnan(rounded), np.copysign(np.inf, rounded), rounded)


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
    if any_bad:
        accepted = bad & _overflows_rightly(operation, values, expected, bounds.fail)
        bad &= ~accepted
        any_bad = bool(bad.any())
        statistics.nan_count += int(np.isnan(values[bad]).sum())
        statistics.infinite_count += int(np.isinf(values[bad]).sum())
        # Sizes of errors are told of finite numbers only.
        left_out = accepted | ~np.isfinite(values)
        values = np.where(left_out, expected, values)
        error[left_out] = distance[left_out] = 0.0
    warn_ratio = distance / bounds.warn
    statistics.max_warn_ratio = max(statistics.max_warn_ratio, float(warn_ratio.max()))
    if statistics.max_warn_ratio > 1:
        statistics.warned_count += int((warn_ratio > 1).sum())
    statistics.max_ratio = max(statistics.max_ratio, float((distance / bounds.fail).max()))
    statistics.squared_error += float(np.vdot(error, error))
    statistics.squared_reference += float(np.vdot(expected, expected))
    statistics.bias_sum += float(np.copysign(warn_ratio, error * expected).sum())
    # A result in one binade came from a value in the same or a lower one, so what is beyond half
    # an ulp of the result cannot come from the final rounding.
    excess = distance - half_ulp(np.abs(values), operation.signature.result)
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
    bad: Mask,
    told: tuple[Float64Array, Float64Array, Float64Array],
) -> None:
    """Add a piece with bad elements; `told` holds its values, expectations and bounds."""
    if statistics.bad is None:
        statistics.bad = np.zeros(got.shape, dtype=np.bool_)
        row, column = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
        value, expected, bound = (float(array[row, column]) for array in told)
        shape = operation.output.shape
        index = [*(int(i) for i in np.unravel_index(part.start + row, shape[:-1])), column]
        tolerance = f" ± {bound:.3g}" if bound else ""
        statistics.first_bad = f"{index}: got {value:.9g}, expected {expected:.9g}{tolerance}"
    statistics.bad[part] = bad
    statistics.bad_count += int(bad.sum())
