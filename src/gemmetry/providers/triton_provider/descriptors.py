"""Tiles moved by tensor descriptors: where the hardware has them, and in which pieces.

The kernel is that of :mod:`gemmetry.kernels.triton_descriptors`. The names of its configurations
begin with the method: ``descriptors_tile_…`` starts one program a tile, ``persistent_tile_…`` as
many as the GPU runs at once. ``_parts2`` at the end stores a tile in two parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmetry.domain.dtypes import BF16, F16, F32
from gemmetry.domain.operation import Layout, Operation, OperationKind
from gemmetry.providers.triton_provider.architectures import Architecture

if TYPE_CHECKING:
    from gemmetry.providers.triton_provider.tiles import TritonTile

DESCRIPTORS, PERSISTENT = METHODS = ("descriptors", "persistent")

_FIRST = 90
"""The first architecture with bulk copies of tensors (PTX ISA, cp.async.bulk.tensor: sm_90)."""
_ROW_BYTES = 16
"""Rows must be multiples of it (cuTensorMapEncodeTiled, globalStrides)."""
_LARGEST_BOX = 256
"""Elements of a tile that is copied, along each axis (cuTensorMapEncodeTiled, boxDim)."""
_DEEPEST_STEP = 128
"""fp8 products that are summed before the sum is promoted: the interval that the error bounds
assume."""
_FEWEST_ROWS = 64
"""Rows of the matrix instruction of four warps (PTX ISA, wgmma)."""


def reason_against(
    operation: Operation, tile: TritonTile, architecture: Architecture | None
) -> str | None:
    """Why `tile` does not compute `operation` through descriptors, or None; architecture None: the
    interpreter."""
    s = operation.signature
    if architecture is not None and (architecture.is_amd or architecture.number < _FIRST):
        return f"tensor descriptors need sm_{_FIRST} or newer, not {architecture.name}"
    if s.kind is not OperationKind.MATMUL:
        return f"the kernel with tensor descriptors does matmul, not {s.kind}"
    if s.lhs not in (BF16, F16) and not s.lhs.is_fp8:
        return f"the kernel with tensor descriptors multiplies bf16, f16 and fp8, not {s.lhs}"
    if s.accumulator is not F32:
        return f"the kernel with tensor descriptors accumulates in f32, not {s.accumulator}"
    if s.lhs.is_fp8 and (s.lhs_layout is not Layout.ROW or s.rhs_layout is not Layout.COLUMN):
        return "fp8 tiles are copied along K: A row-major and B column-major (layouts t, n)"
    for spec in (*operation.inputs[:2], operation.output):
        size = spec.storage_shape[-1] * spec.dtype.itemsize
        if size % _ROW_BYTES:
            return (
                f"tensor descriptors need rows of a multiple of {_ROW_BYTES} bytes; "
                f"{spec.role}: {size}"
            )
    if max(tile.block_m, tile.block_n, tile.block_k) > _LARGEST_BOX:
        return f"{tile.name}: tensor descriptors have at most {_LARGEST_BOX} elements along an axis"
    if s.lhs.is_fp8 and tile.block_k > _DEEPEST_STEP:
        return f"{tile.name}: fp8 products are summed in steps of at most {_DEEPEST_STEP}"
    if s.lhs.is_fp8 and tile.block_m // tile.parts < _FEWEST_ROWS:
        return f"{tile.name}: the parts of an fp8 tile have at least {_FEWEST_ROWS} rows"
    return None


def boxes(operation: Operation, tile: TritonTile) -> dict[str, tuple[int, int]]:
    """Rows and columns, as they are stored, of what one copy of A, B and C moves."""
    s = operation.signature
    # fp8 tiles have two halves with sums of their own; the others are divided when stored.
    rows = tile.block_m // tile.parts if s.lhs.is_fp8 else tile.block_m
    columns = tile.block_n if s.lhs.is_fp8 else tile.block_n // tile.parts
    return {
        "a": _stored(rows, tile.block_k, s.lhs_layout),
        "b": _stored(tile.block_k, tile.block_n, s.rhs_layout),
        "c": _stored(rows, columns, s.result_layout),
    }


def _stored(rows: int, columns: int, layout: Layout) -> tuple[int, int]:
    return (rows, columns) if layout is Layout.ROW else (columns, rows)
