"""Tensor maps: descriptions of tensors for Hopper's copy engine, which moves boxes of them."""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver

from gemmetry.devices.cuda_driver import checked, driver_library
from gemmetry.devices.cuda_plans import Boxes

TENSOR_MAP_BYTES = 128
_TENSOR_MAP_ALIGNMENT = 64
"""Size and alignment of CUtensorMap: CUDA Driver API, cuTensorMapEncodeTiled."""

_ELEMENTS = {"u8": 0, "f16": 6, "f32": 7, "bf16": 9}
"""Name -> value of the enumeration CUtensorMapDataType."""
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""Bytes -> value of the enumeration CUtensorMapSwizzle."""
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}
"""Bytes -> value of the enumeration CUtensorMapL2promotion."""


class TensorMap:
    """A :class:`Boxes` of a tensor at an address."""

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
            ctypes.c_int(_ELEMENTS[boxes.element]),
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
