"""Operands as Hopper's kernels fetch them: which way their rows run, and a packed copy of those
whose rows are not multiples of 16 bytes."""

from __future__ import annotations

from dataclasses import dataclass

from gemmetry.devices.cuda_plans import (
    ADDRESS_ALIGNMENT,
    Compilation,
    Grid,
    KernelLaunch,
    Pointer,
    Tiles,
    macros_of,
    matrix_boxes,
)
from gemmetry.domain.dtypes import BF16, F16, DType
from gemmetry.domain.operation import EpilogueStep, Layout, Operation

SWIZZLE_BYTES = 128
"""One row of a box: the widest swizzle, in which the matrix instructions read without conflicts."""
_PROMOTION_BYTES = 128
"""What the L2 cache fetches at a time, as rows of boxes are that long."""
_PACK_THREADS = 256
_PACK_BLOCKS = (4, 2048, 1)
"""Blocks along a row, and the rows that they copy at a time."""

_DIGITS = {
    EpilogueStep.BIAS: "1", EpilogueStep.RELU: "2", EpilogueStep.GELU: "3",
    EpilogueStep.RESIDUAL: "4",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A matrix of `lines` (rows of A, columns of B) by K, as it is stored."""

    role: str
    """``lhs`` or ``rhs``."""
    dtype: DType
    lines: int
    depth: int
    """K."""
    along_lines: bool
    """Whether neighbours in memory differ in their line, not along K."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.storage_bits // 8

    @property
    def rows(self) -> int:
        """Rows of the stored matrix."""
        return self.depth if self.along_lines else self.lines

    @property
    def columns(self) -> int:
        """Elements of a stored row, which are contiguous."""
        return self.lines if self.along_lines else self.depth

    @property
    def needs_packing(self) -> bool:
        """Whether the copy engine cannot fetch it as it is stored."""
        return self.columns * self.itemsize % ADDRESS_ALIGNMENT != 0

    @property
    def padded_columns(self) -> int:
        """Elements from one row to the next where the copy engine fetches it."""
        step = ADDRESS_ALIGNMENT // self.itemsize
        return -(-self.columns // step) * step

    @property
    def buffer(self) -> str:
        """Where the copy engine fetches it."""
        return f"packed_{self.role}" if self.needs_packing else self.role

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed copy."""
        return self.rows * self.padded_columns * self.itemsize

    def tiles(self, box_lines: int, box_depth: int) -> Tiles:
        """Boxes of `box_lines` by `box_depth`, a row of which is at most 128 bytes."""
        box_rows, box_columns = box_lines, box_depth
        if self.along_lines:
            box_rows, box_columns = box_depth, box_lines
        boxes = matrix_boxes(
            element_of(self.dtype),
            rows=self.rows,
            columns=self.columns,
            box_rows=box_rows,
            box_columns=box_columns,
            row_bytes=self.padded_columns * self.itemsize,
            swizzle_bytes=SWIZZLE_BYTES,
            promotion_bytes=_PROMOTION_BYTES,
        )
        return Tiles(self.buffer, boxes)

    def packing(self) -> KernelLaunch:
        """The launch that makes the packed copy."""
        macros = macros_of(ELEMENT_BYTES=self.itemsize)
        x, y, z = _PACK_BLOCKS
        blocks = (min(x, -(-self.columns // _PACK_THREADS)), min(y, self.rows), z)
        return KernelLaunch(
            compilation=Compilation(source="gemm/pack", entry="pack", macros=macros),
            grid=Grid(blocks=blocks, threads=(_PACK_THREADS, 1, 1)),
            arguments=(
                Pointer(self.role), Pointer(self.buffer), self.rows, self.columns,
                self.padded_columns,
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredProduct:
    """A product as a kernel computes it: A @ B or its transpose Bᵀ @ Aᵀ, of which the operands are
    called a and b."""

    a: Operand
    b: Operand
    result: DType
    is_transposed: bool
    """Whether `a` is the operation's B."""
    is_swapped: bool = False
    """Whether the result of the kernel is stored column by column."""

    @property
    def m(self) -> int:
        return self.a.lines

    @property
    def n(self) -> int:
        return self.b.lines

    @property
    def k(self) -> int:
        return self.a.depth

    @property
    def is_stored_directly(self) -> bool:
        """Whether results go to memory from registers: in f32, or if the copy engine cannot store
        rows of this length."""
        return self.result not in (BF16, F16) or self._stored_shape[1] * 2 % ADDRESS_ALIGNMENT != 0

    @property
    def swapped(self) -> StoredProduct:
        """The other one of A @ B and Bᵀ @ Aᵀ, with the same result in memory."""
        return StoredProduct(
            self.b, self.a, self.result, not self.is_transposed, not self.is_swapped
        )

    @property
    def _stored_shape(self) -> tuple[int, int]:
        """Rows and columns of the result in memory."""
        return (self.n, self.m) if self.is_swapped else (self.m, self.n)

    @property
    def packings(self) -> tuple[KernelLaunch, ...]:
        return tuple(one.packing() for one in (self.a, self.b) if one.needs_packing)

    @property
    def workspaces(self) -> dict[str, int]:
        return {one.buffer: one.packed_bytes for one in (self.a, self.b) if one.needs_packing}

    def result_tiles(self, box_rows: int, box_columns: int) -> Tiles:
        """Boxes of C as it is stored, in the swizzle of a row of the box."""
        rows, columns = self._stored_shape
        boxes = matrix_boxes(
            element_of(self.result),
            rows=rows,
            columns=columns,
            box_rows=box_rows,
            box_columns=box_columns,
            swizzle_bytes=box_columns * 2,
        )
        return Tiles("result", boxes)


def problem_of(operation: Operation) -> StoredProduct:
    """The product whose result is stored row by row: of a column-major C, its transpose."""
    s = operation.signature
    m, n, k, _ = operation.matmul_shape
    lhs_along_m = s.lhs_layout is Layout.COLUMN
    rhs_along_n = s.rhs_layout is Layout.ROW
    a = Operand(role="lhs", dtype=s.lhs, lines=m, depth=k, along_lines=lhs_along_m)
    b = Operand(role="rhs", dtype=s.rhs, lines=n, depth=k, along_lines=rhs_along_n)
    is_transposed = s.result_layout is Layout.COLUMN
    return (
        StoredProduct(b, a, s.result, True)
        if is_transposed
        else StoredProduct(a, b, s.result, False)
    )


def element_of(dtype: DType) -> str:
    """What the copy engine calls a format."""
    return "u8" if dtype.storage_bits == 8 else str(dtype)


def epilogue_digits(operation: Operation) -> int:
    """The macro EPILOGUE of epilogue.cuh."""
    return int("0" + "".join(_DIGITS[step] for step in operation.signature.epilogue))
