"""Guesses what kind of bug made a result wrong, from where and how it is wrong."""

from __future__ import annotations

import numpy as np

from gemmetry.domain.operation import Operation
from gemmetry.numerics.references import to_logical
from gemmetry.numerics.storage import Array, Float64Array, to_float64
from gemmetry.verification.comparison import Mask

_SCALE_SPREAD = 1e-3
"""Wrong elements whose ratio to the reference varies by less than this share a factor."""

_SIZE_SPREAD = 0.4
"""Errors whose median deviation is less than this part of their median are of about one size. One
missing product of uniform data deviates by a quarter to a third, several deviate less; rounding
errors have both signs."""

_INDEX_ERROR = 0.05
"""A median error above this part of the reference's own spread is no rounding: products are
missing, doubled or taken from elsewhere."""


def guess_bug(operation: Operation, result: Array, expected: Array, bad: Mask) -> str:
    """One phrase naming the likely class of bug, for the elements marked in `bad`.

    Args:
        result: host array in storage shape. expected: logical shape.
        bad: (-1, last axis); has at least one True.
    """
    logical = np.ascontiguousarray(to_logical(result, operation.output))
    got = to_float64(logical.reshape(bad.shape))
    want = to_float64(expected.reshape(bad.shape))
    place = _place(bad)
    infinities = int(np.isinf(got[bad]).sum())
    not_numbers = int(np.isnan(got[bad]).sum())
    if not_numbers:
        return f"NaN: {not_numbers} of the wrong elements are NaN{place}"
    if infinities:
        return f"overflow: {infinities} of the wrong elements are infinite{place}"
    if not got[bad].any():
        return "zeros: every wrong element is 0" + place
    if place:
        return place.removeprefix(", ")
    return _by_value(operation, got, want, bad)


def _by_value(operation: Operation, got: Float64Array, want: Float64Array, bad: Mask) -> str:
    if not np.isfinite(want[bad]).all():
        return "overflow: finite where the result overflows"
    if got.shape[0] == got.shape[1] and _nearly(got.T, want):
        return "transposed: the result is the reference with rows and columns exchanged"
    wrong, right = got[bad], want[bad]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = wrong / right
    ratios = ratios[np.isfinite(ratios)]
    part = _part_of_k(operation, wrong, right)
    if ratios.size >= 4:
        middle = float(np.median(ratios))
        spread = float(np.median(np.abs(ratios - middle)))
        # A factor leaves the ratios equal but for rounding; a part of K leaves them nearly equal.
        is_rounding = spread <= 8 * operation.output.dtype.unit_roundoff
        is_equal = spread < _SCALE_SPREAD * abs(middle) and abs(middle - 1) > 8 * spread
        if is_equal and (is_rounding or not part):
            return f"scale: wrong elements are {middle:.6g} times the reference"
    if bad.mean() < 0.01:
        return "a few scattered elements: a race or an index"
    if part:
        return part
    distance = np.abs(wrong - right)
    typical = float(np.median(np.abs(want))) or 1.0
    if float(np.median(distance)) > _INDEX_ERROR * typical:
        return "index: products are missing, doubled or taken from elsewhere"
    return "precision: small errors everywhere, as from a narrower format or few lost products"


def _part_of_k(operation: Operation, wrong: Float64Array, right: Float64Array) -> str:
    """Same-sign data leave nearly the same sum in every part of K: errors of one sign and of about
    one size, a product of K or more, are such a part left out or added again."""
    k = operation.matmul_shape[2]
    errors = wrong - right
    typical, whole = float(np.median(errors)), float(np.median(right))
    is_one_sign = bool((errors * np.sign(typical) > 0).all() and (right * np.sign(whole) > 0).all())
    spread = float(np.median(np.abs(errors - typical)))
    products = k * typical / whole if whole else 0.0
    # With most of K gone it is no part of K that is missing, but the product itself.
    is_part = 0.5 <= abs(products) <= k / 2
    if not is_one_sign or spread > _SIZE_SPREAD * abs(typical) or not is_part:
        return ""
    direction = "short" if products < 0 else "over"
    return (
        "part of K missing or counted twice: every wrong element is "
        f"{direction} by about {abs(products):.0f} of {k} products"
    )


def _nearly(left: Float64Array, right: Float64Array) -> bool:
    usable = np.isfinite(left) & np.isfinite(right)
    if not usable.any():
        return False
    scale = float(np.median(np.abs(right[usable]))) or 1.0
    return float(np.median(np.abs(left[usable] - right[usable]))) < 0.02 * scale


def _place(bad: Mask) -> str:
    """Where the wrong elements lie if they fill a recognisable part of the result."""
    rows, columns = np.flatnonzero(bad.any(axis=1)), np.flatnonzero(bad.any(axis=0))
    height, width = bad.shape
    if rows.size == height and columns.size == width:
        return ""
    box = bad[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    if box.size == 1:
        return ", one element: an index or a race"
    if box.mean() < 0.5:
        return ""
    if rows[-1] == height - 1 and rows[0] > 0 and columns.size == width:
        return f", tail: only rows from {rows[0]} on are wrong"
    if columns[-1] == width - 1 and columns[0] > 0 and rows.size == height:
        return f", tail: only columns from {columns[0]} on are wrong"
    return f", index: wrong only in rows {rows[0]}–{rows[-1]}, columns {columns[0]}–{columns[-1]}"
