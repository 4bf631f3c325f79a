"""Guesses what kind of bug made a result wrong, from where and how it is wrong."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import Operation
from gemmetry.numerics.accumulation import accumulation_error
from gemmetry.numerics.bounds import half_ulp
from gemmetry.numerics.references import to_logical
from gemmetry.numerics.storage import Array, Float64Array, to_float64
from gemmetry.verification.bug_place import place_of
from gemmetry.verification.error_statistics import Mask

_EXPLAINED = 0.99
"""Share of elements that a factor must explain, but for rounding, to be named."""

_TRANSPOSED = 0.3
"""Of the distance between result and reference, what may be left once one is transposed: their
rounding, while sums of data of one sign are all alike to a few ulps of a 16-bit format."""

_SIZE_SPREAD = 0.4
"""Errors whose median deviation is less than this part of their median are of about one size. One
missing product of uniform data deviates by a quarter to a third, several deviate less; rounding
errors have both signs."""

_INDEX_ERROR = 0.25
"""A median error above this part of the reference's standard deviation is no rounding: products are
missing, doubled or taken from elsewhere (other sums differ by 0.95 of it; sums of the same numbers
of [0.1, 1.1) in other pairs by 0.3)."""

_LINES = 512
"""Rows and columns looked at where values are weighed: medians over a whole large result take
seconds and say no more."""

_COMPARED = 64
"""Elements of a row that must agree to say where they were taken from."""

_RUN = 16
"""Elements of a run of columns that must agree: fragments are 8 or 16 wide."""

_BY_CHANCE = 1e-3
"""Where so many rows or more would agree by chance, nothing is said of where values came from."""

Indices = npt.NDArray[np.intp]


def guess_bug(
    operation: Operation,
    result: Array,
    expected: Array,
    bad: Mask,
    *,
    tile: tuple[int, int, int] | None = None,
    differs_between_launches: bool = False,
) -> str:
    """One phrase naming the likely class of bug, for the elements marked in `bad`.

    Args:
        result: host array in storage shape. expected: logical shape.
        bad: (-1, last axis); has at least one True.
        tile: sizes along M, N and K of what one block of threads computes, where it is known.
        differs_between_launches: whether another launch on the same inputs gave other bits.
    """
    m, _, _, batch = operation.matmul_shape
    got = to_logical(result, operation.output).reshape(bad.shape)
    want = expected.reshape(bad.shape)
    members = np.flatnonzero(bad.reshape(batch, -1).any(axis=1))
    first = slice(int(members[0]) * m, (int(members[0]) + 1) * m)
    place = place_of(bad[first], None if tile is None else tile[:2])
    text = _phrase(operation, got[first], want[first], bad[first], place)
    if 0 < members.size < batch:
        text += f", in {members.size} of {batch} members of the batch (first {members[0]})"
    if differs_between_launches:
        text = f"race or kept state: the result differs between launches; {text}"
    return text


def _phrase(operation: Operation, got: Array, want: Array, bad: Mask, place: str) -> str:
    wrong = to_float64(got[bad])
    where = f", {place}" if place else ""
    not_numbers = int(np.isnan(wrong).sum())
    if not_numbers:
        return f"NaN: {not_numbers} of the wrong elements are NaN{where}"
    infinities = int(np.isinf(wrong).sum())
    if infinities:
        return f"overflow: {infinities} of the wrong elements are infinite{where}"
    if not wrong.any():
        return f"zeros: every wrong element is 0{where}"
    taken = _taken_from(operation, got, want, bad)
    if place:
        return f"{place}; {taken}" if taken else place
    return _by_value(operation, got, want, bad, taken)


def _by_value(operation: Operation, got: Array, want: Array, bad: Mask, taken: str) -> str:
    if got.shape[0] == got.shape[1] and _is_transposed(got, want):
        return "transposed: the result is the reference with rows and columns exchanged"
    # Where a few elements are wrong all of them are looked at, else those of some lines.
    block = np.ix_(*(_some(np.flatnonzero(bad.any(axis=axis))) for axis in (1, 0)))
    marked, results, references = bad[block], to_float64(got[block]), to_float64(want[block])
    wrong, right = results[marked], references[marked]
    if not marked.any():
        places = np.argwhere(bad)[:_LINES]
        wrong = to_float64(got[places[:, 0], places[:, 1]])
        right = to_float64(want[places[:, 0], places[:, 1]])
    if not np.isfinite(right).all():
        return "overflow: finite where the result overflows"
    if _is_truncated(operation, results, references):
        return "precision: the result is rounded towards zero, not to nearest"
    part = _part_of_k(operation, wrong, right)
    scale = _scale(operation, results, references)
    if scale:
        return f"{scale}; or {part}" if part else scale
    if taken:
        return f"index: {taken}"
    if bad.mean() < 0.01:
        return "a few scattered elements: a race or an index"
    if part:
        return part
    spread = float(np.std(references[np.isfinite(references)]))
    if float(np.median(np.abs(wrong - right))) > _INDEX_ERROR * spread > 0:
        return "index: products are missing, doubled or taken from elsewhere"
    return "precision: small errors everywhere, as from a narrower format or few lost products"


def _scale(operation: Operation, got: Float64Array, want: Float64Array) -> str:
    """The factor that explains every element but for rounding, if there is one."""
    usable = np.isfinite(got) & np.isfinite(want)
    got, want = got[usable], want[usable]
    squares = float(np.vdot(want, want))
    if got.size < 4 or squares == 0:
        return ""
    factor = float(np.vdot(got, want)) / squares
    left = np.abs(got - factor * want)
    granted = half_ulp(factor * want, operation.output.dtype)
    granted += accumulation_error(operation).warn * np.abs(factor * want)
    if factor == 0 or float((left <= 1.02 * granted).mean()) < _EXPLAINED:
        return ""
    if abs(factor - 1) < 0.05 * operation.output.dtype.unit_roundoff:
        return ""
    return f"scale: the result is {factor:.5g} times the reference"


def _is_truncated(operation: Operation, got: Float64Array, want: Float64Array) -> bool:
    """Whether every error, of right elements too, is between none and one ulp towards zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ulps = (got - want) * np.sign(want) / (2 * half_ulp(want, operation.output.dtype))
    ulps = ulps[want != 0]
    return bool(ulps.size and ((ulps > -1.05) & (ulps < 0.05)).all())


def _part_of_k(operation: Operation, wrong: Float64Array, right: Float64Array) -> str:
    """Same-sign data leave nearly the same sum in every part of K: errors of one sign and of about
    one size, a product of K or more, are such a part left out or added again."""
    k = operation.matmul_shape.k
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


def _is_transposed(got: Array, want: Array) -> bool:
    some = _some(np.arange(got.shape[0]))
    block = np.ix_(some, some)
    left, right = to_float64(got[block]), to_float64(want[block])
    usable = np.isfinite(left) & np.isfinite(left.T) & np.isfinite(right)
    if not usable.any():
        return False
    turned, left, right = left.T[usable], left[usable], right[usable]
    apart = float(np.median(np.abs(left - right)))
    return float(np.median(np.abs(turned - right))) < _TRANSPOSED * apart


def _taken_from(operation: Operation, got: Array, want: Array, bad: Mask) -> str:
    """Another row, or another part of the same row, whose values a wrong row holds."""
    row = int(bad.sum(axis=1).argmax())
    columns = np.flatnonzero(bad[row])[:_COMPARED]
    values, line = to_float64(got[row, columns]), to_float64(want[row])
    if not np.isfinite(line).all():
        return ""
    # What a right kernel may have made of the reference, roughly.
    unit = operation.output.dtype.unit_roundoff + accumulation_error(operation).warn
    near = 1.5 * unit * float(np.abs(values).max())
    spread = float(np.std(line))
    chance = min(1.0, near / spread) if spread > 0 else 1.0
    if want.shape[0] * chance**columns.size < _BY_CHANCE:
        same = np.abs(to_float64(want[:, columns]) - values) <= near
        others = np.flatnonzero(same.all(axis=1))
        if others.size and others[0] != row:
            return f"row {row} holds what belongs to row {others[0]}"
    columns, values = columns[:_RUN], values[:_RUN]
    if line.size * chance**columns.size < _BY_CHANCE:
        offsets = columns - columns[0]
        starts = np.arange(line.size - int(offsets[-1]))
        for start in starts[np.abs(line[starts] - values[0]) <= near]:
            is_same = bool((np.abs(line[start + offsets] - values) <= near).all())
            if is_same and start != columns[0]:
                return f"columns from {columns[0]} on hold what belongs to columns from {start} on"
    return ""


def _some(lines: Indices) -> Indices:
    """At most :data:`_LINES` of them, evenly spread."""
    if lines.size <= _LINES:
        return lines
    return lines[np.linspace(0, lines.size - 1, _LINES).astype(np.intp)]
