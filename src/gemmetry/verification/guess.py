"""Draws where a result is wrong, with one character per tile, for ``Verdict.error_map``.

Describes where wrong elements lie in terms of typical kernel bugs: tails, tiles, fragments.

Describes how wrong elements differ from the expected ones in terms of typical kernel bugs: a
missing epilogue, a limit, a sign, a rounding, or a constant term.

Guesses the kind of bug behind a wrong result, from where and how the result is wrong.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import EpilogueStep, Operation
from gemmetry.domain.units import noun_for
from gemmetry.numerics.bounds import LAMBDA, accumulation_error, adds_operand, half_ulp
from gemmetry.numerics.references import gelu, to_logical
from gemmetry.numerics.storage import Array, Float64Array, to_float64
from gemmetry.verification.comparison import Mask

MAX_ROWS = 32
MAX_COLUMNS = 64

RIGHT, WRONG = ".", "#"


def error_map(
    operation: Operation, bad: Mask, *, tile: tuple[int, int, int] | None = None
) -> tuple[str, ...]:
    """A caption and up to :data:`MAX_ROWS` lines of up to :data:`MAX_COLUMNS` characters: ``.`` for
    a tile without a wrong element, ``1`` to ``9`` for the tenths of it that are wrong (``1`` also
    for less), ``#`` for an entirely wrong tile. Empty where no element is wrong.

    For a batch, the first matrix with wrong elements is drawn.

    Args:
        bad: (-1, last axis) in logical order.
        tile: sizes along M, N and K of one thread block's tile; None: the result is divided into
            equal cells whose sizes are powers of two.
    """
    if not bad.any():
        return ()
    m, n, _, batch = operation.matmul_shape
    members = bad.reshape(batch, m, n)
    wrong = np.flatnonzero(members.any(axis=(1, 2)))
    steps = (1, 1) if tile is None else tile[:2]
    axes = zip((m, n), steps, (MAX_ROWS, MAX_COLUMNS), strict=True)
    counts = [math.ceil(math.ceil(size / step) / most) for size, step, most in axes]
    if tile is None:
        counts = [1 << (count - 1).bit_length() for count in counts]
    cell = (counts[0] * steps[0], counts[1] * steps[1])
    text = f"{cell[0]} × {cell[1]} elements" if cell != (1, 1) else "one element"
    if tile is not None:
        many = f"{counts[0]} × {counts[1]} tiles of" if counts != [1, 1] else "a tile of"
        text = f"{many} {tile[0]} × {tile[1]}"
    caption = f"each character is {text}; the result is {m} × {n}"
    if batch > 1:
        caption += f"; member {wrong[0]} of the batch, {wrong.size} of {batch} have wrong elements"
    shares = tile_shares(members[int(wrong[0])], cell)
    digits = np.clip(np.floor(shares * 10 + 1e-9), 1, 9).astype(int).astype(str)
    drawn = np.where(shares == 0, RIGHT, np.where(shares == 1, WRONG, digits))
    return (caption, *map("".join, drawn))


def tile_shares(bad: Mask, cell: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Share of wrong elements in each cell; cells at the edges count only their existing
    elements."""
    rows = np.arange(0, bad.shape[0], cell[0])
    columns = np.arange(0, bad.shape[1], cell[1])
    # Along the rows first, in 32 bits: a reduction of bools alone would stay bool.
    down = np.add.reduceat(bad, rows, axis=0, dtype=np.int32)
    counts = np.add.reduceat(down, columns, axis=1, dtype=np.int64)
    heights = np.diff(np.append(rows, bad.shape[0]))
    widths = np.diff(np.append(columns, bad.shape[1]))
    return np.asarray(counts / np.outer(heights, widths))


Indices = npt.NDArray[np.intp]

_MOSTLY = 0.9
"""Share of wrong elements from which a region counts as wrong as a whole: some elements are correct
by chance, because they are zero or equal to the value written in their place."""

_FILLED = 0.5
"""A rectangle with a smaller share of wrong elements is not a useful description."""

_PERIODS = (2, 4, 8, 16, 32, 64, 128)
"""Periods of rows and columns: fragments of matrix instructions have 8 or 16 rows, warps 16 to
64."""

_PART = 0.75
"""A rectangle that covers more of the matrix is no part of it, but where errors happen to be."""

_SHORTEST_FRAGMENT = 8
"""Fragments of matrix instructions have at least as many rows or columns."""

_NAMED = 4


def place_of(bad: Mask, tile: tuple[int, int] | None) -> str:
    """Place of the marked elements of one matrix, with the class of bug that this suggests, if they
    fill a recognisable part of it; "" if they do not.

    Args:
        bad: (M, N), at least one True.
        tile: rows and columns of a tile, where they are known.
    """
    rows, columns = np.flatnonzero(bad.any(axis=1)), np.flatnonzero(bad.any(axis=0))
    height, width = bad.shape
    if rows.size == height and columns.size == width:
        return _tiles(bad, tile) if tile is not None else ""
    box = bad[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    if box.size == 1:
        return "one element: an index or a race"
    fill = float(box.mean())
    tail = _tail(bad, rows, columns, tile)
    found = tail if fill >= _MOSTLY else ""
    if not found and tile is not None:
        found = _tiles(bad, tile)
    if not found:
        found = _period("rows", rows, height) or _period("columns", columns, width)
    if not found and fill < _FILLED:
        found = _whole("row", bad, rows) or _whole("column", bad.T, columns)
    if found or fill < _FILLED:
        return found
    return tail or _rectangle(rows, columns, bad.shape)


def _rectangle(rows: Indices, columns: Indices, shape: tuple[int, ...]) -> str:
    """Describes a part of the matrix by its ends; "" where these are the ends of the matrix."""
    if (np.ptp(rows) + 1) * (np.ptp(columns) + 1) > _PART * shape[0] * shape[1]:
        return ""
    spans = [
        f"{noun_for(lines.size, name)} {_span(lines)}"
        for name, lines, size in (("row", rows, shape[0]), ("column", columns, shape[1]))
        if int(lines[-1] - lines[0]) + 1 < size
    ]
    return f"index: wrong only in {', '.join(spans)}" if spans else ""


def _tail(bad: Mask, rows: Indices, columns: Indices, tile: tuple[int, int] | None) -> str:
    """Rows or columns from some index to the end."""
    height, width = bad.shape
    if columns.size == width:
        lines, size, name, length = rows, height, "row", tile[0] if tile else 1
    elif rows.size == height:
        lines, size, name, length = columns, width, "column", tile[1] if tile else 1
    else:
        return ""
    first = int(lines[0])
    if lines[-1] != size - 1 or first == 0:
        return ""
    whole = size - size % length
    start, kind = (whole, "last partial") if whole < size else (size - length, "last")
    if length > 1 and first == start:
        part = bad[first:] if name == "row" else bad[:, first:]
        exactly = "exactly" if part.mean() >= _MOSTLY else "only"
        where = f"({name}s {first}–{size - 1}; tiles have {length})"
        return f"tail: wrong {exactly} in the {kind} tile {name} {where}"
    return f"tail: only {name}s from {first} on are wrong"


def _tiles(bad: Mask, tile: tuple[int, int]) -> str:
    """Tiles that are wrong as a whole while all others are right."""
    shares = tile_shares(bad, tile)
    wrong = shares >= _MOSTLY
    if not wrong.any() or wrong.all() or (shares[~wrong] > 0).any() or shares.size < 2:
        return ""
    places, numbers = np.argwhere(wrong), np.flatnonzero(wrong)
    size = f"{tile[0]} × {tile[1]}"
    if numbers.size == 1:
        last = ", the last" if numbers[0] == shares.size - 1 else ""
        return f"index: one tile of {size} is wrong, at {_tile_name(places[0])}{last}"
    steps = np.unique(np.diff(numbers))
    if steps.size == 1 and steps[0] > 1 and numbers.size >= 4:
        every = f"{steps[0]}{ {2: 'nd', 3: 'rd'}.get(int(steps[0]), 'th') }"
        return f"index: every {every} tile of {size} is wrong, from {_tile_name(places[0])} on"
    if steps.size == 1 and numbers[-1] == shares.size - 1:
        return f"index: the last {numbers.size} of {shares.size} tiles of {size} are wrong"
    named = ", ".join(_tile_name(place) for place in places[:_NAMED])
    more = " …" if numbers.size > _NAMED else ""
    return f"index: {numbers.size} of {shares.size} tiles of {size} are wrong: {named}{more}"


def _tile_name(place: npt.NDArray[np.intp]) -> str:
    return f"({place[0]}, {place[1]})"


def _period(name: str, lines: Indices, size: int) -> str:
    """Lines whose index modulo a power of two determines whether they are wrong."""
    for period in _PERIODS:
        if 2 * period > size:
            break
        remainders = np.unique(lines % period)
        if remainders.size == period:
            continue
        expected = np.flatnonzero(np.isin(np.arange(size) % period, remainders))
        if np.array_equal(expected, lines):
            found = f"index: wrong in {name} {_span(remainders)} of every {period}"
            if period < _SHORTEST_FRAGMENT:
                return found
            return f"{found}: a period that suggests fragments of matrix instructions"
    return ""


def _whole(name: str, bad: Mask, lines: Indices) -> str:
    """Lines that are wrong as a whole, among correct ones."""
    if lines.size > bad.shape[0] // 2 or bad[lines].mean(axis=1).min() < _MOSTLY:
        return ""
    named = ", ".join(map(str, lines[:_NAMED])) + (" …" if lines.size > _NAMED else "")
    return f"index: {lines.size} whole {name}s are wrong, and no other: {named}"


def _span(lines: Indices) -> str:
    return f"{lines[0]}–{lines[-1]}" if lines.size > 1 else f"{lines[0]}"


_FEWEST = 8
"""Minimum number of wrong elements for which a pattern is named."""

_ALIKE = 0.02
"""Errors of one line, or of all, that deviate by less than this share of their size count as
equal."""

_SMALL = 0.02
"""A median error above this share of the expected values cannot come from rounding to a format
wider than eight bits: bf16 rounds by 2⁻⁹, e4m3 by 2⁻⁴."""


_SOME_NUMBERS = 4096
"""What holds for all wrong elements holds for so many, spread evenly: one pass over millions takes
a second."""


def numbers_of(operation: Operation, wrong: Float64Array, right: Float64Array) -> str:
    """Common property of the wrong elements; "" for none.

    Args:
        wrong: finite numbers. right: the expected numbers in their places, finite.
    """
    some = slice(None, None, max(1, wrong.size // _SOME_NUMBERS))
    if some.step > 1 and not numbers_of(operation, wrong[some][:_SOME_NUMBERS],
                                        right[some][:_SOME_NUMBERS]):  # fmt: skip
        return ""
    steps = operation.signature.epilogue
    due_zero, near = right == 0, _SMALL * np.abs(right)
    if EpilogueStep.RELU in steps and due_zero.all() and (wrong < 0).all():
        return "epilogue: relu does not set negative results to zero, or runs at the wrong place"
    if EpilogueStep.GELU in steps and (np.abs(gelu(wrong) - right) <= near + 1e-3).all():
        return "epilogue: gelu is left out, or runs at the wrong place"
    if wrong.size < _FEWEST:
        return ""
    ends = np.unique(wrong)
    beyond = np.where(wrong < 0, wrong - right, right - wrong) >= 0
    if ends.size == 2 and ends[0] < 0 < ends[1] and beyond.all():
        return f"range: every wrong element is limited to {ends[0]:.6g} or {ends[1]:.6g}"
    if ends.size == 1 and np.unique(right).size > 1:
        return f"constant: every wrong element is {ends[0]:.6g}"
    if not due_zero.any() and (np.abs(wrong + right) <= near).mean() > 0.99:
        return "sign: every wrong element has the opposite sign"
    if _rounds_ties_away(operation, wrong, right):
        return "precision: halfway cases are rounded away from zero, not to even"
    return ""


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


_EXPLAINED = 0.99
"""Share of elements that a factor must explain, up to rounding, to be named."""

_TRANSPOSED = 0.3
"""Share of the distance between result and reference that may remain after transposing one of them:
their rounding. Sums of data of one sign are all equal to within a few ulps of a 16-bit format."""

_PRODUCT_SPREAD = (0.25, 0.8)
"""Median deviation of n missing products, times √n, over their median: 0.47 where factors are from
[0.1, 1.1), 0.6 from [0, 1). Terms of another kind vary less (a cut-off bit of every product) or
more."""

_RANKED = 96
"""Number of rows and columns used to determine the rank of the errors, which takes 10 ms."""

_FEWEST_OF_MEMBER = 64
"""Minimum number of elements by which a matrix of a batch can be recognised."""

_INDEX_ERROR = 0.25
"""A median error above this share of the reference's standard deviation is not rounding: products
are missing, doubled or taken from elsewhere (other sums differ by 0.95 of it; sums of the same
numbers of [0.1, 1.1) in other pairs by 0.3)."""

_ALIKE_RESULTS = 0.2
"""Standard deviation of results, relative to their mean, below which results of other products are
hardly further away than rounding: sums of 128 products of [0.1, 1.1) differ by 5 %."""

_LINES = 512
"""Number of rows and columns sampled for statistics of values: medians over a whole large result
take seconds and are no more informative."""

_COMPARED = 64
"""Number of elements of a row that must agree to identify their source."""

_RUN = 16
"""Number of consecutive elements that must agree: fragments are 8 or 16 wide."""

_BY_CHANCE = 1e-3
"""Expected number of rows that agree by chance from which on no source of the values is named."""


def guess_bug(
    operation: Operation,
    result: Array,
    expected: Array,
    bad: Mask,
    *,
    tile: tuple[int, int, int] | None = None,
    differs: bool = False,
) -> str:
    """One phrase naming the likely class of bug, for the elements marked in `bad`.

    Args:
        result: host array in storage shape. expected: logical shape.
        bad: (-1, last axis); has at least one True.
        tile: sizes along M, N and K of one thread block's tile, where they are known.
        differs: whether another launch on the same inputs gave different bits.
    """
    m, _, _, batch = operation.matmul_shape
    got = to_logical(result, operation.output).reshape(bad.shape)
    want = expected.reshape(bad.shape)
    members = np.flatnonzero(bad.reshape(batch, -1).any(axis=1))
    first = slice(int(members[0]) * m, (int(members[0]) + 1) * m)
    place = place_of(bad[first], None if tile is None else tile[:2])
    other = _other_member(operation, got, want, int(members[0]))
    text = other or _phrase(operation, got[first], want[first], bad[first], place)
    if 0 < members.size < batch:
        text += f", in {members.size} of {batch} members of the batch (first {members[0]})"
    if differs:
        text = f"race or kept state: the result differs between launches; {text}"
    return text


def _other_member(operation: Operation, got: Array, want: Array, member: int) -> str:
    """Another matrix of the batch whose result appears in place of that of `member`."""
    m, n, _, batch = operation.matmul_shape
    if batch == 1 or m * n < _FEWEST_OF_MEMBER:
        return ""
    lines = np.ix_(np.arange(batch), _some(np.arange(m), _COMPARED), _some(np.arange(n), _COMPARED))
    here, due = (to_float64(array.reshape(batch, m, n)[lines]) for array in (got, want))
    near = 2.0**-8 * float(np.median(np.abs(due[member])))
    for other in range(batch):
        if other != member and float(np.median(np.abs(here[member] - due[other]))) <= near:
            return f"index: member {member} of the batch holds member {other}"
    return ""


def _phrase(operation: Operation, got: Array, want: Array, bad: Mask, place: str) -> str:
    wrong = to_float64(got[bad])
    where = f", {place}" if place else ""
    if np.isnan(wrong).any():
        return f"NaN: {np.isnan(wrong).sum()} of the wrong elements are NaN{where}"
    if np.isinf(wrong).any():
        return f"overflow: {np.isinf(wrong).sum()} of the wrong elements are infinite{where}"
    if not wrong.any():
        return f"zeros: every wrong element is 0{where}"
    due = to_float64(want[bad])
    numbers = numbers_of(operation, wrong, due) if np.isfinite(due).all() else ""
    if numbers:
        return f"{numbers}{where}"
    taken = _taken_from(operation, got, want, bad)
    if place:
        return f"{place}; {taken}" if taken else place
    return _by_value(operation, got, want, bad, taken)


def _by_value(operation: Operation, got: Array, want: Array, bad: Mask, taken: str) -> str:
    if got.shape[0] == got.shape[1] and _is_transposed(got, want):
        return "transposed: the result is the transpose of the reference"
    # If only a few elements are wrong, all of them are examined, else those of some lines.
    block = np.ix_(*(_some(np.flatnonzero(bad.any(axis=axis))) for axis in (1, 0)))
    marked, results, references = bad[block], to_float64(got[block]), to_float64(want[block])
    wrong, right = results[marked], references[marked]
    if not marked.any():
        places = tuple(np.argwhere(bad)[:_LINES].T)
        wrong, right = to_float64(got[places]), to_float64(want[places])
    if not np.isfinite(right).all():
        return "overflow: finite where the result overflows"
    if _is_truncated(operation, results, references):
        return "precision: the result is rounded towards zero, not to nearest"
    part = _part_of_k(operation, wrong, right)
    if part and marked.all():
        part = _if_of_rank(operation, part, results, references)
    scale = _scale(operation, results, references)
    if scale:
        return f"{scale}; or {part}" if part else scale
    if taken:
        return f"index: {taken}"
    if bad.mean() < 0.01:
        return "a few scattered elements: a race or an index"
    term = terms_of(operation, results, references, marked)
    if term:
        return f"epilogue: {term}" if adds_operand(operation) else f"added: {term}"
    return part or _by_spread(operation, wrong, right)


def _if_of_rank(
    operation: Operation, part: str, results: Float64Array, references: Float64Array
) -> str:
    """`part` if errors are a sum of few column-times-row products, as missing products are; names
    another possible cause where this cannot be determined."""
    some = np.ix_(*(_some(np.arange(size), _RANKED) for size in results.shape))
    errors, want = (results - references)[some], references[some]
    product = float(np.median(np.abs(want))) / operation.matmul_shape.k
    count = float(np.median(np.abs(errors))) / product
    rank = rank_of_errors(operation, errors, want, product)
    if rank is None:
        other = "small numbers that are treated as zero"
        other += ", or an operand of the epilogue" if adds_operand(operation) else ""
        return f"{part}; or {other}"
    return part if rank <= 3 * count + 2 else ""


def _by_spread(operation: Operation, wrong: Float64Array, right: Float64Array) -> str:
    """What the size of the errors alone shows: whether they may come from rounding. Which of
    several causes they have, it does not show."""
    errors, sizes = np.abs(wrong - right), np.abs(right)
    error = float(np.median(errors))
    scale = np.maximum(sizes, float(np.median(sizes)))
    # Rounding to any format causes errors of a few percent of the expected values.
    if not scale.any() or not error <= _SMALL * float(np.median(scale)):
        where = "in products or in an operand of the epilogue"
        where = where if adds_operand(operation) else "whose cause does not show here"
        return f"other numbers: errors too large for rounding, {where}"
    middle, spread = abs(float(np.mean(right))), float(np.std(right))
    small = "small errors everywhere: a narrower format"
    if spread < _ALIKE_RESULTS * middle and error > _INDEX_ERROR / 4 * spread > 0:
        return (
            f"{small}, or other products or operands, as the results of such inputs hardly differ"
        )
    if adds_operand(operation):
        return f"{small}, a few lost products or an operand of the epilogue"
    if (np.abs(wrong) < sizes).all() and (wrong * right >= 0).all():
        what = "every wrong element is too small, as if inputs or sums were cut off"
        return f"precision: {what} or small numbers flushed to zero"
    return "precision: small errors everywhere, as from a narrower format or a few lost products"


def _scale(operation: Operation, got: Float64Array, want: Float64Array) -> str:
    """The factor that explains every element up to rounding, if there is one."""
    usable = np.isfinite(got) & np.isfinite(want)
    got, want = got[usable], want[usable]
    squares = float(np.vdot(want, want))
    if got.size < 4 or squares == 0:
        return ""
    factor, dtype = float(np.vdot(got, want)) / squares, operation.output.dtype
    due = factor * want
    granted = half_ulp(due, dtype) + accumulation_error(operation).warn * np.abs(due)
    is_explained = (np.abs(got - due) <= 1.02 * granted).mean() >= _EXPLAINED
    if factor == 0 or not is_explained or abs(factor - 1) < max(5e-5, 0.05 * dtype.unit_roundoff):
        return ""
    return f"scale: the result is {factor:.5g} times the reference"


def _is_truncated(operation: Operation, got: Float64Array, want: Float64Array) -> bool:
    """Whether every error, including those of correct elements, is between zero and one ulp towards
    zero."""
    if (got[want == 0] != 0).any():
        return False
    with np.errstate(divide="ignore", invalid="ignore"):
        ulps = (got - want) * np.sign(want) / (2 * half_ulp(want, operation.output.dtype))
    ulps = ulps[want != 0]
    return bool(ulps.size and ((ulps > -1.05) & (ulps < 0.05)).all())


def _part_of_k(operation: Operation, wrong: Float64Array, right: Float64Array) -> str:
    """With data of one sign, every part of K has nearly the same sum: errors of one sign and of
    similar size, at least a product, mean that such a part is missing or was added twice."""
    k = operation.matmul_shape.k
    errors = wrong - right
    typical, whole = float(np.median(errors)), float(np.median(right))
    is_one_sign = (errors * np.sign(typical) > 0).all() and (right * np.sign(whole) > 0).all()
    spread = float(np.median(np.abs(errors - typical)))
    products = k * typical / whole if whole else 0.0
    # If most of K is missing, it is not a part of K that is missing, but the product itself.
    if not is_one_sign or not 0.5 <= abs(products) <= k / 2:
        return ""
    rounding = float(np.median(half_ulp(right, operation.output.dtype)))
    one = max(1.0, abs(products)) ** 0.5
    least, most = (share * abs(typical) / one for share in _PRODUCT_SPREAD)
    # Sums over the same k for all elements correlate, so that many of them vary by less.
    if not (least / 2 <= spread + rounding and spread <= most + rounding):
        return ""
    how = f"{'short' if products < 0 else 'over'} by about {abs(products):.0f} of {k} products"
    return f"part of K missing or counted twice: every wrong element is {how}"


def _is_transposed(got: Array, want: Array) -> bool:
    some = _some(np.arange(got.shape[0]))
    left, right = (to_float64(array[np.ix_(some, some)]) for array in (got, want))
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
    # The approximate error that a correct kernel may have.
    unit = operation.output.dtype.unit_roundoff + accumulation_error(operation).warn
    near = 1.5 * unit * float(np.abs(values).max())
    spread = float(np.std(line))
    chance = min(1.0, near / spread) if spread > 0 else 1.0
    if want.shape[0] * chance**columns.size < _BY_CHANCE:
        same = np.abs(to_float64(want[:, columns]) - values) <= near
        others = np.flatnonzero(same.all(axis=1))
        if others.size and others[0] != row:
            return f"row {row} contains what belongs to row {others[0]}"
    columns, values = columns[:_RUN], values[:_RUN]
    if line.size * chance**columns.size < _BY_CHANCE:
        offsets = columns - columns[0]
        starts = np.arange(line.size - int(offsets[-1]))
        for start in starts[np.abs(line[starts] - values[0]) <= near]:
            is_same = (np.abs(line[start + offsets] - values) <= near).all()
            if is_same and start != columns[0]:
                return f"columns from {columns[0]} on hold what belongs to columns from {start} on"
    return ""


def _some(lines: Indices, most: int = _LINES) -> Indices:
    """Sample of at most `most` items, evenly spaced."""
    if lines.size <= most:
        return lines
    return lines[np.linspace(0, lines.size - 1, most).astype(np.intp)]
