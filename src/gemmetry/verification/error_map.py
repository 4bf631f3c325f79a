"""Draws where a result is wrong, with one character per tile, for ``Verdict.error_map``.

Describes where wrong elements lie in terms of typical kernel bugs: tails, tiles, fragments.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import Operation
from gemmetry.domain.units import noun_for
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
    wrong_members = np.flatnonzero(members.any(axis=(1, 2)))
    drawn = members[int(wrong_members[0])]
    heights, widths = (tile[0], tile[1]) if tile is not None else (1, 1)
    down = _per_character(m, heights, MAX_ROWS, by_powers=tile is None)
    across = _per_character(n, widths, MAX_COLUMNS, by_powers=tile is None)
    cell = (down * heights, across * widths)
    caption = _caption(cell, (down, across), tile, (m, n))
    if batch > 1:
        caption += f"; member {wrong_members[0]} of the batch, {wrong_members.size} of {batch}"
        caption += " have wrong elements"
    return (caption, *_lines(drawn, cell))


def _per_character(size: int, tile: int, limit: int, *, by_powers: bool) -> int:
    """Tiles along one axis that share a character."""
    tiles = math.ceil(size / tile)
    count = math.ceil(tiles / limit)
    return 1 << (count - 1).bit_length() if by_powers else count


def _lines(bad: Mask, cell: tuple[int, int]) -> list[str]:
    shares = tile_shares(bad, cell)
    digits = np.clip(np.floor(shares * 10 + 1e-9), 1, 9).astype(int)
    return [
        "".join(
            RIGHT if share == 0 else WRONG if share == 1 else str(digit)
            for share, digit in zip(row, row_digits, strict=True)
        )
        for row, row_digits in zip(shares, digits, strict=True)
    ]


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
    shares: npt.NDArray[np.float64] = counts / np.outer(heights, widths)
    return shares


def _caption(
    cell: tuple[int, int],
    tiles: tuple[int, int],
    tile: tuple[int, int, int] | None,
    shape: tuple[int, int],
) -> str:
    size = f"{cell[0]} × {cell[1]}"
    if tile is None:
        text = "one element" if cell == (1, 1) else f"{size} elements"
    elif tiles == (1, 1):
        text = f"a tile of {size}"
    else:
        text = f"{tiles[0]} × {tiles[1]} tiles of {tile[0]} × {tile[1]}"
    return f"each character is {text}; the result is {shape[0]} × {shape[1]}"


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
    """Where the marked elements of one matrix lie, with the class of bug that this suggests, if
    they fill a recognisable part of it; "" if they do not.

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
        return (
            f"tail: wrong {exactly} in the {kind} tile {name} "
            f"({name}s {first}–{size - 1}; tiles have {length})"
        )
    return f"tail: only {name}s from {first} on are wrong"


def _tiles(bad: Mask, tile: tuple[int, int]) -> str:
    """Tiles that are wrong as a whole while all others are right."""
    shares = tile_shares(bad, tile)
    wrong = shares >= _MOSTLY
    if not wrong.any() or wrong.all() or (shares[~wrong] > 0).any() or shares.size < 2:
        return ""
    places = np.argwhere(wrong)
    numbers = np.flatnonzero(wrong)
    size = f"{tile[0]} × {tile[1]}"
    if numbers.size == 1:
        last = ", the last" if numbers[0] == shares.size - 1 else ""
        return f"index: one tile of {size} is wrong, at {_tile_name(places[0])}{last}"
    steps = np.unique(np.diff(numbers))
    if steps.size == 1 and steps[0] > 1 and numbers.size >= 4:
        return (
            f"index: every {_ordinal(int(steps[0]))} tile of {size} is wrong, "
            f"from {_tile_name(places[0])} on"
        )
    if steps.size == 1 and numbers[-1] == shares.size - 1:
        return f"index: the last {numbers.size} of {shares.size} tiles of {size} are wrong"
    named = ", ".join(_tile_name(place) for place in places[:_NAMED])
    more = " …" if numbers.size > _NAMED else ""
    return f"index: {numbers.size} of {shares.size} tiles of {size} are wrong: {named}{more}"


def _tile_name(place: npt.NDArray[np.intp]) -> str:
    return f"({place[0]}, {place[1]})"


def _ordinal(number: int) -> str:
    return f"{number}{ {2: 'nd', 3: 'rd'}.get(number, 'th') }"


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
