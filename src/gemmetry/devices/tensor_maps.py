"""Tensor maps: descriptions of tensors for Hopper's copy engine, which moves boxes of them."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver

from gemmetry.devices.cuda_driver import checked, driver_library

TENSOR_MAP_BYTES = 128
_TENSOR_MAP_ALIGNMENT = 64
"""Size and alignment of CUtensorMap: CUDA Driver API, cuTensorMapEncodeTiled."""

ADDRESS_ALIGNMENT = 16
"""Alignment in bytes that the copy engine requires of addresses and strides (the same page)."""

_ELEMENTS = {"u8": (0, 1), "f16": (6, 2), "f32": (7, 4), "bf16": (9, 2)}
"""Name -> value of the enumeration CUtensorMapDataType, and bytes of an element."""
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""Bytes -> value of the enumeration CUtensorMapSwizzle."""
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}
"""Bytes -> value of the enumeration CUtensorMapL2promotion."""


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
        return math.prod(self.box) * _ELEMENTS[self.element][1]

    @property
    def all_strides(self) -> tuple[int, ...]:
        """The strides, also where they follow from the extents."""
        size = _ELEMENTS[self.element][1]
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


class TensorMap:
    """:class:`Boxes` of a tensor at an address."""

    def __init__(self, address: int, boxes: Boxes) -> None:
        """
        Args:
            address: of the first element, a multiple of 16.

        Raises:
            CudaError: the driver rejected it: a stride that is no multiple of 16 bytes, a row of
                the box that is wider than the swizzle, …
        """
        # The binding of this one function returns memory without the alignment that the function
        # requires.
        encode = driver_library().cuTensorMapEncodeTiled
        memory = ctypes.create_string_buffer(TENSOR_MAP_BYTES + _TENSOR_MAP_ALIGNMENT)
        offset = -ctypes.addressof(memory) % _TENSOR_MAP_ALIGNMENT
        self.argument: Any = (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer(memory, offset)
        """The argument for a launch; it keeps its memory alive."""
        rank = len(boxes.extents)
        strides = boxes.all_strides
        status = encode(
            ctypes.byref(self.argument),
            ctypes.c_int(_ELEMENTS[boxes.element][0]),
            ctypes.c_uint32(rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*boxes.extents),
            (ctypes.c_uint64 * max(rank - 1, 1))(*strides),
            (ctypes.c_uint32 * rank)(*boxes.box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            ctypes.c_int(0),  # not interleaved
            ctypes.c_int(_SWIZZLES[boxes.swizzle_bytes]),
            ctypes.c_int(_PROMOTIONS[boxes.promotion_bytes]),
            ctypes.c_int(int(boxes.nan_outside)),
        )
        sizes = "x".join(map(str, reversed(boxes.extents)))
        checked((driver.CUresult(status),), f"describing a {sizes} tensor in boxes {boxes.box}")
