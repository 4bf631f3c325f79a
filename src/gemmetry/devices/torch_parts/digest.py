"""A digest of a buffer's bytes, computed on its device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as functional

from gemmetry.devices.torch_parts.storage import BY_STORAGE, bits_dtype, torch_dtype
from gemmetry.domain.dtypes import E2M1, E4M3FNUZ, E5M2FNUZ, E8M0, DType

_PIECE = 1 << 22
"""Words of 64 bits taken at a time: a few temporaries of 32 MiB."""

_KEYS = (0x2545_F491_4F6C_DD1D, 0x1F83_D9AB_FB41_BD6B)
_STEP = -0x61C8_8646_80B5_83EB
_FACTORS = (-0x40A7_B892_E31B_1A47, -0x6B2F_B644_ECCE_EE15)
"""The increment and the factors of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014), as signed numbers."""

_WITHOUT_SIGN_BIT = frozenset({E2M1, E8M0, E4M3FNUZ, E5M2FNUZ})


def digest(buffer: torch.Tensor, negated: Sequence[tuple[slice, ...]] = ()) -> str | None:
    """128 bits that identify the bytes of a contiguous `buffer`, of which the parts `negated` count
    with the opposite sign; None where the format has no sign bit to flip.

    Two sums, modulo 2⁶⁴, of every word of eight bytes after SplitMix64's mixing of the word with a
    key and its position: kernels whose results differ have the same digest with a probability of
    2⁻¹²⁸, unless someone searches for such results.
    """
    bits = buffer.detach().contiguous()
    if negated:
        dtype = _format(buffer.dtype)
        if dtype is None:
            return None
        bits = bits.view(bits_dtype(dtype)).clone()
        for part in negated:
            bits[part] ^= -1 << (dtype.storage_bits - 1) if _is_signed(bits) else 0x80
    flat = bits.view(-1).view(torch.uint8)
    flat = functional.pad(flat, (0, -flat.numel() % 8)) if flat.numel() % 8 else flat
    if flat.data_ptr() % 8:
        flat = flat.clone()
    words = flat.view(torch.int64)
    sums = [
        torch.stack([_mixed(words[start : start + _PIECE], start, key).sum() for key in _KEYS])
        for start in range(0, words.numel(), _PIECE)
    ]
    first, second = torch.stack(sums).sum(0).tolist() if sums else (0, 0)
    return f"words:{buffer.nbytes}:{first & (2**64 - 1):016x}{second & (2**64 - 1):016x}"


def _mixed(words: torch.Tensor, start: int, key: int) -> torch.Tensor:
    places = torch.arange(start, start + words.numel(), device=words.device)
    mixed = words ^ (places * _STEP + key)
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        mixed = (mixed ^ (mixed >> shift)) * factor
    return mixed ^ (mixed >> 31)


def _format(dtype: torch.dtype) -> DType | None:
    """The format of floats with a sign bit that torch calls `dtype`."""
    found = next((one for one in BY_STORAGE.values() if torch_dtype(one) is dtype), None)
    if found is None or found.is_integer or found in _WITHOUT_SIGN_BIT:
        return None
    return found


def _is_signed(bits: torch.Tensor) -> bool:
    return bits.dtype is not torch.uint8
