"""Storage of the number formats in host memory, and conversions between them.

bf16 and the formats of 8 and 4 bits come from the ml_dtypes package, which stores one number of 4
bits in each byte; tf32 has no storage format of its own and
is stored as float32 whose 13 low mantissa bits are zero.

Numbers in blocks that share a scale factor: to values exactly, and from values by the rules that
docs/block-scaled.md fixes.

A block is `lines` rows of a matrix by `depth` elements along its last axis. Functions here take
matrices with K along the last axis; the scale factors of a (…, M, K) matrix are a
(…, ⌈M/lines⌉, ⌈K/depth⌉) array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import (
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
    Operation,
)

Array = npt.NDArray[np.generic]
Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]

_STORAGE: dict[DType, np.dtype[np.generic]] = {
    F64: np.dtype(np.float64),
    F32: np.dtype(np.float32),
    TF32: np.dtype(np.float32),
    F16: np.dtype(np.float16),
    BF16: np.dtype(ml_dtypes.bfloat16),
    E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    E5M2: np.dtype(ml_dtypes.float8_e5m2),
    E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
    E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
    S8: np.dtype(np.int8),
    S32: np.dtype(np.int32),
}

_ONE_ZERO = frozenset({_STORAGE[E4M3FNUZ], _STORAGE[E5M2FNUZ]})
_NO_SIGN_BIT = _ONE_ZERO | {_STORAGE[E2M1], _STORAGE[E8M0]}
"""Formats whose highest bit is not simply a sign: NaN, unused, or of the exponent."""
_RANGE_PIECE = 1 << 18
"""Elements widened at a time when only their range is needed."""

FORMATS_WITHOUT_INFINITY = frozenset({E4M3, E4M3FNUZ, E5M2FNUZ, E2M1, E8M0})
"""Overflow in these becomes NaN or, where a cast saturates, the largest finite value."""


def numpy_dtype(dtype: DType) -> np.dtype[np.generic]:
    """The numpy dtype that holds `dtype` on the host (ml_dtypes for bf16 and fp8)."""
    return _STORAGE[dtype]


@cache
def smallest_normal(dtype: DType) -> float:
    """The smallest positive normal number of a floating-point format. Sources: IEEE 754-2019 table
    3.5 (f16, f32, f64); "FP8 Formats for Deep Learning", arXiv 2209.05433, table 1 (e4m3, e5m2);
    LLVM's APFloat semantics (fnuz); OCP MX 1.0, sections 5.3.3 and 5.4.1 (e2m1, e8m0)."""
    return float(ml_dtypes.finfo(numpy_dtype(dtype)).smallest_normal)


def smallest_subnormal(dtype: DType) -> float:
    """The distance between neighbours around zero: 2**(emin + 1 - significand_bits)."""
    # Multiplying in two steps keeps f64's 2**-1074 from underflowing in an intermediate power.
    return smallest_normal(dtype) * 2.0 ** (1 - dtype.significand_bits)


def overflow_threshold(dtype: DType) -> float:
    """The least magnitude that round-to-nearest no longer rounds to a finite number: the largest
    finite value plus half its distance to the (missing) next one, IEEE 754-2019 section 4.3.1."""
    _, exponent = np.frexp(dtype.maximum)
    half_gap = float(np.ldexp(0.5, int(exponent) - dtype.significand_bits))
    return dtype.maximum + half_gap if dtype is not F64 else float("inf")


def round_to_tf32(values: Float32Array) -> Float32Array:
    """`values` (float32, any shape) rounded to nearest even at 10 mantissa bits.

    A carry out of the mantissa moves into the exponent by itself, as the bits of neighbouring
    floats are consecutive integers; infinities stay, NaN payloads are kept as they are.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    last_kept = (bits >> np.uint32(13)) & np.uint32(1)
    rounded = (bits + np.uint32(0x0FFF) + last_kept) & np.uint32(0xFFFFE000)
    result = rounded.view(np.float32)
    return np.where(np.isfinite(values), result, values)


def quantize(values: npt.NDArray[Any], dtype: DType) -> Array:
    """`values` in the storage format of `dtype`, rounded once, to nearest even; for integer formats
    the values must already be integers."""
    if dtype is TF32:
        return round_to_tf32(values.astype(np.float32))
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype == np.float64 and dtype not in (F64, F32, F16) and not dtype.is_integer:
            values = _round_to_odd(values)
        return cast(Array, values.astype(numpy_dtype(dtype), copy=False))


def _round_to_odd(values: Floats) -> Float32Array:
    """float64 to float32 such that a further rounding to a narrower format is as if from float64.

    ml_dtypes casts go through float32 and would round twice. Of the two float32 neighbours of an
    inexact value the one with the odd mantissa never lies on a tie of the narrow format (Boldo &
    Melquiond, "Emulation of FMA and correctly rounded sums", IEEE TC 2008, theorem 3).
    """
    rounded = values.astype(np.float32)
    inexact = (rounded != values) & np.isfinite(rounded)
    if not inexact.any():
        return rounded
    is_even = (rounded.view(np.uint32) & np.uint32(1)) == 0
    towards = np.where(values > rounded, np.float32(np.inf), np.float32(-np.inf))
    return np.where(inexact & is_even, np.nextafter(rounded, towards), rounded)


def to_float64(array: Array) -> Float64Array:
    """`array` in float64, exactly. Returns the input itself where it is already float64."""
    return cast(Float64Array, widen(array, np.dtype(np.float64)))


def to_float32(array: Array) -> Float32Array:
    """`array` in float32: exact for every format except f64 and large s32."""
    return cast(Float32Array, widen(array, np.dtype(np.float32)))


def widen(array: Array, wide: np.dtype[Any]) -> npt.NDArray[Any]:
    """The array in float32 or float64; the array itself where it already has that dtype."""
    if array.dtype.itemsize == 1 and array.dtype != np.int8:
        # A look-up is several times faster than the element-wise casts of the fp8 types.
        return _table(array.dtype, wide)[array.view(np.uint8)]
    if array.dtype == wide:
        return array
    with np.errstate(invalid="ignore"):  # Signalling NaN in half-precision bit patterns.
        return array.astype(wide)


@cache
def _table(narrow: np.dtype[Any], wide: np.dtype[Any]) -> Array:
    return cast(Array, np.arange(256, dtype=np.uint8).view(narrow).astype(wide))


def absolute(array: Array) -> Array:
    """|array| in its own format, by clearing sign bits. A comparison is used for integers and for
    formats whose highest bit is not simply a sign."""
    if array.dtype.kind in "iu" or array.dtype in _NO_SIGN_BIT:
        return cast(Array, np.abs(array))
    return cast(Array, magnitude_bits(array).view(array.dtype))


def magnitude_bits(values: Array) -> npt.NDArray[Any]:
    """The bits of |values| as unsigned integers, in the same shape."""
    bits = values.view(f"u{values.dtype.itemsize}")
    return cast(Array, bits & bits.dtype.type(2 ** (8 * bits.itemsize - 1) - 1))


def finite_range(array: Array) -> tuple[float, float]:
    """The least and the largest finite number in `array`; (0, 0) if there is none."""
    low, high = math.inf, -math.inf
    rows = array.reshape(-1, array.shape[-1]) if array.ndim > 2 else np.atleast_2d(array)
    step = max(1, _RANGE_PIECE // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        wide = to_float64 if array.dtype.itemsize > 4 else to_float32
        values = wide(rows[start : start + step])
        least, most = float(values.min(initial=math.inf)), float(values.max(initial=-math.inf))
        if not (math.isfinite(least) and math.isfinite(most)):
            finite = values[np.isfinite(values)]
            least, most = finite.min(initial=math.inf), finite.max(initial=-math.inf)
        low, high = min(low, float(least)), max(high, float(most))
    return (low, high) if low <= high else (0.0, 0.0)


def count_zeros(array: Array) -> int:
    """Zeros of either sign in `array`, exactly, by their bits."""
    if array.dtype in _NO_SIGN_BIT - _ONE_ZERO:
        return int(np.count_nonzero(to_float32(array) == 0))
    bits = as_bits(array)
    zeros = bits.size - np.count_nonzero(bits)
    # Where there is only one zero, the bit pattern of "-0" is NaN.
    if array.dtype.kind not in "iu" and array.dtype not in _ONE_ZERO:
        zeros += np.count_nonzero(bits == 1 << (8 * bits.itemsize - 1))
    return int(zeros)


def same_bytes(left: Array, right: Array) -> bool:
    """Bitwise equality, so that NaN equals itself and -0 differs from 0."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return bool((as_bits(left) == as_bits(right)).all())


def as_bits(array: Array) -> Array:
    """The elements as unsigned integers of their size, flat."""
    flat = np.asarray(array).reshape(-1)
    return flat.view(f"u{flat.dtype.itemsize}")


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


def spread(factors: Array, shape: tuple[int, ...], *, lines: int, depth: int) -> Float64Array:
    """The factor of each element of a matrix whose last two axes are those of `shape`, in
    float64."""
    *_, rows, k = shape
    wide = np.repeat(to_float64(factors), depth, axis=-1)[..., :k]
    return wide if lines == 1 else np.repeat(wide, lines, axis=-2)[..., :rows, :]


def dequantize(elements: Array, factors: Array, *, lines: int, depth: int) -> Float64Array:
    """elements · factors in float64, which is exact: significands have at most 4 + 24 bits."""
    with np.errstate(invalid="ignore"):
        return to_float64(elements) * spread(factors, elements.shape, lines=lines, depth=depth)


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
    divisor = spread(chosen, wide.shape, lines=lines, depth=depth) * tensor_factor
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
