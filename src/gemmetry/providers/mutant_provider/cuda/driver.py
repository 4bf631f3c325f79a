"""What CUDA mutants need from the driver in addition to what every kernel needs."""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver

from gemmetry.devices.cuda_driver import checked

TENSOR_MAP_BYTES = 128
_TENSOR_MAP_ALIGNMENT = 64
"""Size and alignment of CUtensorMap: CUDA Driver API, cuTensorMapEncodeTiled."""

_BF16, _F32 = 9, 7
"""CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 and FLOAT32 of the enumeration CUtensorMapDataType."""
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""Bytes -> value of the enumeration CUtensorMapSwizzle."""


def fill_zeros(address: int, words: int, stream: int) -> None:
    """Set `words` 32-bit words starting at `address` to zero, in the order of `stream`.

    Raises:
        CudaError: the driver reported an error.
    """
    checked(
        driver.cuMemsetD32Async(driver.CUdeviceptr(address), 0, words, driver.CUstream(stream)),
        "setting memory to zero",
    )


def create_stream() -> int:
    """The address of a new stream that does not wait for any other.

    Raises:
        CudaError: the driver reported an error.
    """
    flags = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
    return int(checked(driver.cuStreamCreate(flags), "creating a stream"))


class TensorMap:
    """A description of a row-major matrix for Hopper's copy engine, in boxes of fixed size."""

    def __init__(
        self,
        address: int,
        *,
        rows: int,
        columns: int,
        bf16: bool,
        box_rows: int,
        box_columns: int,
        swizzle_bytes: int = 0,
    ) -> None:
        """
        Args:
            address: of the first element, a multiple of 16.
            bf16: the elements' type; False: f32. Rows must be multiples of 16 bytes.
            swizzle_bytes: 0, 32, 64 or 128; a row of the box must fit into it.

        Raises:
            CudaError: the driver reported an error.
        """
        # The binding of this one function returns memory without the alignment that the function
        # requires.
        encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
        memory = ctypes.create_string_buffer(TENSOR_MAP_BYTES + _TENSOR_MAP_ALIGNMENT)
        offset = -ctypes.addressof(memory) % _TENSOR_MAP_ALIGNMENT
        self.argument: Any = (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer(memory, offset)
        """The argument for a launch; it keeps its memory alive."""
        itemsize = 2 if bf16 else 4
        status = encode(
            ctypes.byref(self.argument),
            ctypes.c_int(_BF16 if bf16 else _F32),
            ctypes.c_uint32(2),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * 2)(columns, rows),
            (ctypes.c_uint64 * 1)(columns * itemsize),
            (ctypes.c_uint32 * 2)(box_columns, box_rows),
            (ctypes.c_uint32 * 2)(1, 1),
            ctypes.c_int(0),  # not interleaved
            ctypes.c_int(_SWIZZLES[swizzle_bytes]),
            ctypes.c_int(0),  # no promotion of L2 sectors
            ctypes.c_int(0),  # zeros outside
        )
        checked((driver.CUresult(status),), f"describing a {rows}x{columns} matrix")
