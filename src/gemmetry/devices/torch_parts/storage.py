"""How torch stores the formats, and how tensors and host arrays become each other."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from gemmetry.domain.contracts import HostArray
from gemmetry.domain.dtypes import (
    BF16,
    E2M1,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    F16,
    F32,
    F64,
    S8,
    S32,
    TF32,
    DType,
)
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.operation import TensorSpec
from gemmetry.numerics.block_scaling import pack_pairs, unpack_pairs

_FORMATS: dict[DType, tuple[torch.dtype, type[Any], torch.dtype, type[Any]]] = {
    # dtype -> torch's type, numpy's type, and the integer type of the same size for exchanging
    # bytes
    F64: (torch.float64, np.float64, torch.int64, np.int64),
    F32: (torch.float32, np.float32, torch.int32, np.int32),
    TF32: (torch.float32, np.float32, torch.int32, np.int32),
    F16: (torch.float16, np.float16, torch.int16, np.int16),
    BF16: (torch.bfloat16, ml_dtypes.bfloat16, torch.int16, np.int16),
    E4M3: (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn, torch.uint8, np.uint8),
    E5M2: (torch.float8_e5m2, ml_dtypes.float8_e5m2, torch.uint8, np.uint8),
    E4M3FNUZ: (torch.float8_e4m3fnuz, ml_dtypes.float8_e4m3fnuz, torch.uint8, np.uint8),
    E5M2FNUZ: (torch.float8_e5m2fnuz, ml_dtypes.float8_e5m2fnuz, torch.uint8, np.uint8),
    # Two numbers in each byte: see `_stored`.
    E2M1: (torch.uint8, ml_dtypes.float4_e2m1fn, torch.uint8, np.uint8),
    E8M0: (torch.float8_e8m0fnu, ml_dtypes.float8_e8m0fnu, torch.uint8, np.uint8),
    S8: (torch.int8, np.int8, torch.int8, np.int8),
    S32: (torch.int32, np.int32, torch.int32, np.int32),
}

BY_STORAGE = {np.dtype(numpy_type): dtype for dtype, (_, numpy_type, _, _) in _FORMATS.items()}
"""A format stored as the numpy type (tf32 is stored as float32, whose values include it)."""

WIDENED_ON_HOST = frozenset(np.dtype(_FORMATS[dtype][1]) for dtype in (E2M1, E8M0))
"""Formats that torch stores, and does not convert."""


def torch_dtype(dtype: DType) -> torch.dtype:
    """The name in torch of `dtype` (tf32 is stored as float32)."""
    return _FORMATS[dtype][0]


def bits_dtype(dtype: DType) -> torch.dtype:
    """The integers of the same size, as which torch and numpy exchange bytes."""
    return _FORMATS[dtype][2]


def stored_shape(spec: TensorSpec) -> tuple[int, ...]:
    """The shape of the tensor that holds `spec`: its storage shape, but half of the last axis for
    e2m1, as two numbers share a byte.

    Raises:
        LaunchError: an odd number of e2m1 is contiguous.
    """
    *lead, last = spec.storage_shape
    if spec.dtype is not E2M1:
        return (*lead, last)
    if last % 2:
        raise LaunchError(f"{spec.role} has {last} contiguous numbers of e2m1, which is odd")
    return (*lead, last // 2)


def _stored(array: HostArray, dtype: DType) -> HostArray:
    """The host array as it is stored: e2m1 in pairs."""
    return pack_pairs(np.ascontiguousarray(array)) if dtype is E2M1 else array


def to_tensor(array: HostArray, dtype: DType) -> torch.Tensor:
    """A CPU tensor that holds a copy of the host array `array` of `dtype`, with the same shape (for
    e2m1 half of the last axis)."""
    torch_type, _, torch_int, numpy_int = _FORMATS[dtype]
    array = _stored(array, dtype)
    tensor = torch.empty(array.shape, dtype=torch_type)
    if tensor.numel():
        np.copyto(tensor.view(torch_int).numpy(), np.ascontiguousarray(array).view(numpy_int))
    return tensor


def host_bits(array: HostArray, dtype: DType) -> torch.Tensor:
    """The bytes of a host array as a CPU tensor of integers, without a copy where possible."""
    _, _, torch_int, numpy_int = _FORMATS[dtype]
    bits = np.ascontiguousarray(_stored(array, dtype)).view(numpy_int)
    if bits.flags.writeable:
        return torch.from_numpy(bits)
    # torch has no read-only tensors, and warns about read-only arrays.
    return to_tensor(array, dtype).view(torch_int)


def to_host(tensor: torch.Tensor, dtype: DType) -> HostArray:
    """A host array of `dtype` with a copy of the tensor's content; waits for its device.

    Raises:
        LaunchError: the tensor is not of `dtype`.
    """
    torch_type, numpy_type, torch_int, _ = _FORMATS[dtype]
    if tensor.dtype != torch_type:
        raise LaunchError(
            f"the result is {tensor.dtype}, the operation requires {torch_type}",
            hint="Return a tensor of the result's dtype.",
        )
    on_host = tensor.detach().contiguous().view(torch_int).to("cpu", copy=True)
    if dtype is E2M1:
        return unpack_pairs(on_host.numpy(), np.dtype(numpy_type))
    return on_host.numpy().view(numpy_type)


def bytes_of_pairs(
    index: tuple[slice, ...], array: HostArray, row_bytes: int
) -> tuple[tuple[slice, ...], HostArray, HostArray]:
    """The index of the bytes that hold the e2m1 numbers at `index`, what is written to them, and
    the bits of them that stay, both as s8."""
    *lead, last = [*index, *[slice(None)] * (array.ndim - len(index))]
    start, stop, _ = last.indices(2 * row_bytes)
    first, end = start // 2, -(-stop // 2)
    codes = np.zeros((*array.shape[:-1], 2 * (end - first)), np.uint8)
    keeps = np.full_like(codes, 15)
    at = (..., slice(start - 2 * first, stop - 2 * first))
    codes[at], keeps[at] = array.view(np.uint8) & 15, 0
    packed, kept = (pack_pairs(bits).view(np.int8) for bits in (codes, keeps))
    return (*lead, slice(first, end)), packed, kept
