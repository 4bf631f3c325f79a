"""What is compiled and launched on an NVIDIA GPU for one product, described without a GPU, a driver
or a compiler: sources with their macros, grids, arguments, tensor maps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

Macros = tuple[tuple[str, int], ...]
Extent = tuple[int, int, int]
"""Sizes along x, y and z."""

ADDRESS_ALIGNMENT = 16
"""Alignment in bytes that the copy engine requires of addresses and strides (CUDA Driver API,
cuTensorMapEncodeTiled)."""
LARGEST_BOX = 256
"""Most elements of a box along an axis (the same page)."""

ELEMENT_BYTES = {"u8": 1, "f16": 2, "bf16": 2, "f32": 4}
"""Formats of elements that the copy engine distinguishes, and their sizes."""


def macros_of(**values: int) -> Macros:
    """Macros in the form that compilations take, in alphabetical order."""
    return tuple(sorted(values.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """How many blocks of how many threads a launch starts, and what they get."""

    blocks: Extent
    threads: Extent
    cluster: Extent = (1, 1, 1)
    """Blocks that are scheduled together; `blocks` is a multiple of it along each axis."""
    dynamic_bytes: int = 0
    """Dynamic shared memory of each block."""
    starts_early: bool = False
    """Whether blocks may start before the previous kernel of the stream has ended; such a kernel
    waits by ``griddepcontrol.wait`` before it touches memory (CUDA C++ Programming Guide,
    programmatic dependent launch)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """A tensor without its address, and the boxes in which it is copied; the innermost axis, whose
    elements are contiguous, comes first."""

    element: str
    """``bf16``, ``f16``, ``f32``, or ``u8`` for any format of one byte."""
    extents: tuple[int, ...]
    """Elements along each axis, one to five of them."""
    box: tuple[int, ...]
    """Elements of a box along each axis, at most 256."""
    strides: tuple[int, ...] = ()
    """Bytes between neighbours along each axis after the innermost, multiples of 16; (): nothing
    lies between the rows."""
    swizzle_bytes: int = 0
    """0, 32, 64 or 128; a row of the box must fit into it."""
    promotion_bytes: int = 0
    """Bytes that the L2 cache fetches at a time: 0 (no more than requested), 64, 128 or 256."""
    nan_outside: bool = False
    """Whether elements outside the tensor are read as NaN instead of as zero."""

    @property
    def bytes(self) -> int:
        """Bytes of one box, which is what a copy adds to a barrier."""
        return math.prod(self.box) * ELEMENT_BYTES[self.element]

    @property
    def all_strides(self) -> tuple[int, ...]:
        """The strides, also where they follow from the extents."""
        size = ELEMENT_BYTES[self.element]
        packed = (math.prod(self.extents[:axis]) * size for axis in range(1, len(self.extents)))
        return self.strides or tuple(packed)


def matrix_boxes(
    element: str,
    *,
    rows: int,
    columns: int,
    box_rows: int,
    box_columns: int,
    row_bytes: int | None = None,
    swizzle_bytes: int = 0,
    promotion_bytes: int = 0,
) -> Boxes:
    """Boxes of a matrix whose rows are contiguous; `row_bytes` from one row to the next (None: as
    many as a row has)."""
    return Boxes(
        element=element,
        extents=(columns, rows),
        box=(box_columns, box_rows),
        strides=() if row_bytes is None else (row_bytes,),
        swizzle_bytes=swizzle_bytes,
        promotion_bytes=promotion_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What one piece of machine code is compiled from."""

    source: str
    """A file below ``kernels/`` without ``.cu``: ``gemm/r00_naive``."""
    macros: Macros = ()
    entry: str = "gemm"
    """The kernel's name in the source."""
    options: tuple[str, ...] = ()
    """More options for NVRTC."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument that is the address of a buffer."""

    buffer: str
    """The role of a tensor of the operation (``lhs``, ``rhs``, ``bias``, ``result`` …), or the name
    of a workspace."""
    offset_bytes: int = 0
    alignment: int = 1
    """Bytes of which the address must be a multiple, for kernels that load vectors."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """An argument that is a tensor map of a buffer."""

    buffer: str
    """As in :class:`Pointer`."""
    boxes: Boxes
    offset_bytes: int = 0

    @property
    def alignment(self) -> int:
        """Bytes of which the address must be a multiple."""
        return ADDRESS_ALIGNMENT


Argument = Pointer | Tiles | int | float | tuple[int, ...] | bytes | None
"""A buffer; a number, which is passed as a 32-bit int or float; the ints of a struct, or its bytes;
or a pointer that is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """One launch of one kernel."""

    compilation: Compilation
    grid: Grid
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """The launches, in order, that compute a product."""

    launches: tuple[KernelLaunch, ...]
    workspaces: Mapping[str, int] = field(default_factory=dict)
    """Name -> bytes of memory that holds zeros before the first launch, and afterwards what the
    previous launch left there."""
