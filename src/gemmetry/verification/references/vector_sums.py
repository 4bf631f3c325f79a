"""Products of large stored matrices with a few vectors, and norms of their rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gemmetry.domain.dtypes import DType
from gemmetry.numerics.bounds import half_ulp
from gemmetry.numerics.storage import Array, Float64Array, to_float64
from gemmetry.verification.threads import in_order

_PIECE = 1 << 19
"""Elements widened at a time by one thread: 4 MiB."""

Vectors = npt.NDArray[Any]
"""One vector per column; float64, or int64 for arithmetic modulo 2⁶⁴."""


@dataclass
class Scan:
    """Results of one pass over a matrix; None where they were not requested."""

    right: Any = None
    """matrix @ x, (rows, vectors)."""
    left: Any = None
    """matrixᵀ @ y, (columns, vectors)."""
    row_squares: Any = 0.0
    """Sum of squares along each row."""
    column_squares: Any = 0.0
    row_fourths: Any = 0.0
    """Sum of fourth powers along each row."""
    column_fourths: Any = 0.0

    @property
    def flipped(self) -> Scan:
        """The scan of the transposed matrix."""
        return Scan(
            self.left,
            self.right,
            self.column_squares,
            self.row_squares,
            self.column_fourths,
            self.row_fourths,
        )


def scan(
    matrix: Array,
    *,
    x: Vectors | None = None,
    y: Vectors | None = None,
    squares: bool = False,
    half_ulps_of: DType | None = None,
    modulo: bool = False,
) -> Scan:
    """One pass over `matrix` (rows, columns), block by block in the order of its memory.

    Args:
        x: (columns, vectors), to multiply from the right. y: (rows, vectors), from the left.
        squares: whether to compute sums of squares.
        half_ulps_of: compute the sums of squares and fourth powers of half an ulp of each element
            in this format, instead of the elements.
        modulo: compute in int64, which wraps around, instead of float64.
    """
    if matrix.strides[0] < matrix.strides[1] and matrix.shape[0] > 1 and matrix.shape[1] > 1:
        return scan(
            matrix.T, x=y, y=x, squares=squares, half_ulps_of=half_ulps_of, modulo=modulo
        ).flipped
    height, width = matrix.shape
    step = max(1, _PIECE // max(1, width))

    def one(start: int) -> Scan:
        rows = slice(start, start + step)
        wide: npt.NDArray[Any] = (
            matrix[rows].astype(np.int64) if modulo else to_float64(matrix[rows])
        )
        part = Scan()
        if x is not None:
            part.right = wide @ x
        if y is not None:
            part.left = wide.T @ y[rows]
        if half_ulps_of is not None:
            wide = half_ulp(np.ascontiguousarray(cast(Float64Array, wide)), half_ulps_of)
        if squares or half_ulps_of is not None:
            powers = np.square(wide)
            part.row_squares, part.column_squares = powers.sum(axis=1), powers.sum(axis=0)
            if half_ulps_of is not None:
                np.square(powers, out=powers)
                part.row_fourths, part.column_fourths = powers.sum(axis=1), powers.sum(axis=0)
        return part

    parts = list(in_order(one, range(0, height, step)))
    whole = Scan(
        left=None if y is None else sum(part.left for part in parts),
        column_squares=sum(part.column_squares for part in parts),
        column_fourths=sum(part.column_fourths for part in parts),
    )
    if x is not None:
        whole.right = np.concatenate([part.right for part in parts])
    if squares or half_ulps_of is not None:
        whole.row_squares = np.concatenate([part.row_squares for part in parts])
        if half_ulps_of is not None:
            whole.row_fourths = np.concatenate([part.row_fourths for part in parts])
    return whole
