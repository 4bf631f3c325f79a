"""Draws where a result is wrong, with one character per tile, for ``Verdict.error_map``."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import Operation
from gemmetry.verification.error_statistics import Mask

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
