"""Numbers in blocks that share a scale factor: to values exactly, and from values by the rules that
docs/block-scaled.md fixes.

A block is `lines` rows of a matrix by `depth` elements along its last axis. Functions here take
matrices with K along the last axis; the scale factors of a (…, M, K) matrix are a
(…, ⌈M/lines⌉, ⌈K/depth⌉) array.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

import numpy as np

from gemmetry.domain.dtypes import E4M3, E8M0, F32, DType
from gemmetry.domain.operation import Operation
from gemmetry.numerics.storage import (
    Array,
    Float64Array,
    Floats,
    quantize,
    smallest_subnormal,
    to_float64,
)

LARGEST_E8M0 = 127
"""Exponents of e8m0 are -127 to 127; the byte 255 is NaN (OCP MX 1.0, section 5.4.1)."""

ROW_TILE, COLUMN_TILE = 128, 4
"""Scale factors are stored in tiles of 128 rows by 4 columns, each as 32 × 16 bytes (cuBLAS
documentation, "1D block scaling factors layout")."""


class Quantized(NamedTuple):
    """A matrix in blocks; its values are elements · factors · tensor_factor."""

    elements: Array
    factors: Array
    tensor_factor: float = 1.0
    """The second level of NVFP4; an operation's alpha holds the product of both operands' ones."""


def spread(factors: Array, shape: tuple[int, int], *, lines: int, depth: int) -> Float64Array:
    """The factor of each element of a matrix whose last two axes are `shape`, in float64."""
    rows, k = shape
    wide = np.repeat(to_float64(factors), depth, axis=-1)[..., :k]
    return wide if lines == 1 else np.repeat(wide, lines, axis=-2)[..., :rows, :]


def dequantize(elements: Array, factors: Array, *, lines: int, depth: int) -> Float64Array:
    """elements · factors in float64, which is exact: significands have at most 4 + 24 bits."""
    rows, k = elements.shape[-2:]
    with np.errstate(invalid="ignore"):
        return to_float64(elements) * spread(factors, (rows, k), lines=lines, depth=depth)


def dequantized(
    operation: Operation, tensors: Mapping[str, Array]
) -> tuple[Float64Array, Float64Array]:
    """The values of A (…, M, K) and B (…, K, N) of an operation with factors of blocks, from its
    tensors in logical shapes."""
    blocks = operation.signature.blocks
    assert blocks is not None
    lhs = dequantize(tensors["lhs"], tensors["scale_a"], lines=blocks.rows, depth=blocks.depth)
    rhs = dequantize(
        np.swapaxes(tensors["rhs"], -1, -2),
        np.swapaxes(tensors["scale_b"], -1, -2),
        lines=blocks.columns,
        depth=blocks.depth,
    )
    return lhs, np.swapaxes(rhs, -1, -2)


def quantize_blocks(
    values: Floats,
    dtype: DType,
    factors: DType,
    *,
    depth: int,
    lines: int = 1,
    two_levels: bool = False,
) -> Quantized:
    """`values` (…, M, K) in blocks of `dtype`.

    With m the largest magnitude of a block and q the largest number of `dtype`, its factor is

    * e8m0: 2^(⌊log₂ m⌋ - ⌊log₂ q⌋), the exponent within ±127 (OCP MX 1.0, section 6.3);
    * e4m3: m/q rounded to nearest, at most 448, of the values divided by the tensor's factor, with
      `two_levels` max|values| / (448·q) and 1 otherwise (NVIDIA, "Introducing NVFP4");
    * f32: m/q rounded to nearest, and 1 for a block of zeros (DeepSeek-V3, section 3.3).

    Elements are values / factor, rounded to nearest, ties to even, and saturated at ±q. A block
    with NaN or an infinity has the factor NaN and elements of zero.
    """
    wide = np.asarray(values, np.float64)
    largest = _largest(wide, lines, depth)
    tensor_factor = 1.0
    if two_levels:
        finite = largest[np.isfinite(largest)]
        tensor_factor = float(finite.max(initial=0.0)) / (E4M3.maximum * dtype.maximum) or 1.0
    chosen = _factors(largest / tensor_factor, dtype, factors)
    size = wide.shape[-2], wide.shape[-1]
    divisor = spread(chosen, size, lines=lines, depth=depth) * tensor_factor
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scaled = wide / divisor
    clean = np.where(np.isfinite(divisor) & (divisor != 0), scaled, 0.0)
    limited = np.clip(clean, -dtype.maximum, dtype.maximum)
    return Quantized(quantize(limited, dtype), chosen, tensor_factor)


def _largest(values: Float64Array, lines: int, depth: int) -> Float64Array:
    """The largest magnitude of each block; NaN where a block has NaN or an infinity."""
    *lead, rows, k = values.shape
    padding = [(0, 0)] * len(lead) + [(0, -rows % lines), (0, -k % depth)]
    sizes = np.pad(np.abs(values), padding)
    blocked = sizes.reshape(*lead, sizes.shape[-2] // lines, lines, sizes.shape[-1] // depth, depth)
    largest = blocked.max(axis=(-3, -1))
    return np.where(np.isfinite(largest), largest, np.nan)


def _factors(largest: Float64Array, dtype: DType, factors: DType) -> Array:
    if factors is E8M0:
        _, exponent = np.frexp(largest)
        _, top = np.frexp(dtype.maximum)
        power = np.where(largest == 0, -LARGEST_E8M0, exponent.astype(np.int64) - int(top))
        sizes = np.exp2(np.clip(power, -LARGEST_E8M0, LARGEST_E8M0).astype(np.float64))
        return quantize(np.where(np.isnan(largest), np.nan, sizes), E8M0)
    sizes = largest / dtype.maximum
    if factors is F32:
        # Blocks of zeros, and of values too small for any factor, have the factor 1.
        return quantize(np.where(sizes < smallest_subnormal(F32), 1.0, sizes), F32)
    return quantize(np.minimum(sizes, factors.maximum), factors)


def swizzle_factors(factors: Array) -> Array:
    """(M, K/depth) scale factors as tensor cores of Blackwell read them: flat, padded with bytes of
    zero to tiles of 128 × 4.

    Factor (r, c) is at ((r div 128)·⌈columns/4⌉ + c div 4)·512 + (r mod 32)·16 + ((r mod 128) div
    32)·4 + c mod 4 (cuBLAS documentation, "1D block scaling factors layout").
    """
    rows, columns = factors.shape
    tiles = -(-rows // ROW_TILE), -(-columns // COLUMN_TILE)
    whole = np.zeros((tiles[0] * ROW_TILE, tiles[1] * COLUMN_TILE), np.dtype("u1"))
    whole[:rows, :columns] = _bytes(factors)
    tiled = whole.reshape(tiles[0], 4, 32, tiles[1], COLUMN_TILE).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(tiled).reshape(-1).view(factors.dtype)


def unswizzle_factors(flat: Array, shape: tuple[int, int]) -> Array:
    """The inverse of :func:`swizzle_factors` for factors of `shape`.

    Raises:
        ValueError: `flat` does not have the size that belongs to `shape`.
    """
    tiles = -(-shape[0] // ROW_TILE), -(-shape[1] // COLUMN_TILE)
    if flat.size != tiles[0] * tiles[1] * ROW_TILE * COLUMN_TILE:
        raise ValueError(
            f"{flat.size} scale factors are not those of {shape[0]}x{shape[1]} in tiles of "
            f"{ROW_TILE}x{COLUMN_TILE}"
        )
    tiled = _bytes(flat).reshape(tiles[0], tiles[1], 32, 4, COLUMN_TILE).transpose(0, 3, 2, 1, 4)
    whole = tiled.reshape(tiles[0] * ROW_TILE, tiles[1] * COLUMN_TILE)
    return np.ascontiguousarray(whole[: shape[0], : shape[1]]).view(flat.dtype)


def _bytes(factors: Array) -> Array:
    if factors.dtype.itemsize != 1:
        raise ValueError(f"the layout is defined for factors of one byte, not {factors.dtype}")
    return np.ascontiguousarray(factors).view(np.uint8)


def pack_pairs(elements: Array) -> Array:
    """Numbers of 4 bits, one in each byte, as pairs along the last axis, whose size is even: the
    first of a pair is in the lower half of its byte (PTX ISA, packed .e2m1x2)."""
    codes = elements.view(np.uint8) & np.uint8(15)
    return cast(Array, codes[..., ::2] | (codes[..., 1::2] << np.uint8(4)))


def unpack_pairs(packed: Array, dtype: np.dtype[np.generic]) -> Array:
    """The inverse of :func:`pack_pairs`, as `dtype`."""
    codes = np.empty((*packed.shape[:-1], 2 * packed.shape[-1]), np.uint8)
    pairs = packed.view(np.uint8)
    codes[..., ::2] = pairs & np.uint8(15)
    codes[..., 1::2] = pairs >> np.uint8(4)
    return codes.view(dtype)
