"""Scale factors of blocks: one factor for so many rows by so many elements along K.

The factor of element (i, k) of A is ``scale_a[i // rows, k // depth]``, that of element (k, j) of B
``scale_b[k // depth, j // columns]``; the last block along an axis may be shorter. docs/names.md
has the grammar of the names, docs/block-scaled.md the formats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gemmetry.domain.dtypes import E4M3, E8M0, F32, DType

SCALE_FORMATS = (E8M0, E4M3, F32)
"""Formats of the factors: powers of two (OCP MX), e4m3 (NVFP4), f32 (fp8 by 1×128 and 128×128)."""

_TEXT = re.compile(
    r"vs(?P<lhs>\d{1,6}(?:x\d{1,6})?)(?:_vs(?P<rhs>\d{1,6}(?:x\d{1,6})?))?"
    rf"(?:_(?P<dtype>{'|'.join(map(str, SCALE_FORMATS))}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class BlockScaling:
    """The blocks of A and B that share a factor, and the format of the factors."""

    depth: int
    """Elements along K."""
    dtype: DType = F32
    rows: int = 1
    """Rows of A."""
    columns: int = 1
    """Columns of B."""

    def __str__(self) -> str:
        """``vs16_e8m0``, ``vs1x128``, ``vs1x128_vs128x128``: blocks of one row with factors of 8
        bits are written as a vector's size, as hardware calls them."""
        is_vector = self.rows == self.columns == 1 and self.dtype is not F32
        blocks = [f"vs{self.depth}"] if is_vector else [f"vs{self.rows}x{self.depth}"]
        if self.columns != self.rows:
            blocks.append(f"vs{self.columns}x{self.depth}")
        return "_".join(blocks if self.dtype is F32 else [*blocks, str(self.dtype)])

    @property
    def of_lines(self) -> BlockScaling:
        """The same with a factor for each row of A and each column of B."""
        return BlockScaling(self.depth, self.dtype)

    @property
    def problem(self) -> str:
        """Why there is no such scaling; "" if there is."""
        if min(self.depth, self.rows, self.columns) < 1:
            return "blocks have at least one row and one element"
        if self.dtype not in SCALE_FORMATS:
            return f"factors are {', '.join(map(str, SCALE_FORMATS))}, not {self.dtype}"
        return ""


def parse_block_scaling(text: str) -> BlockScaling | None:
    """The inverse of ``str``, which also reads ``vs128`` for ``vs1x128`` and a format that is
    usually left out; None for other texts and for blocks of A and B that differ along K."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    (rows, depth), (columns, depth_b) = (_block(match[name] or match["lhs"]) for name in _SIDES)
    dtype = next((d for d in SCALE_FORMATS if d.name == match["dtype"]), F32)
    scaling = BlockScaling(depth, dtype, rows, columns)
    return scaling if depth == depth_b and not scaling.problem else None


_SIDES = ("lhs", "rhs")


def _block(text: str) -> tuple[int, int]:
    rows, _, depth = text.rpartition("x")
    return int(rows or 1), int(depth)
