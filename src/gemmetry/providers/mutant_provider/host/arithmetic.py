"""Mutants on the host: arithmetic that is not what the operation promises.

Mutants on the host: s8, fp8 and gelu, in other ways that are correct, and with bugs, most of
which are a slip in one of these ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from gemmetry.domain.operation import BF16, E4M3, E5M2, F16, DType, Scaling, TensorSpec
from gemmetry.numerics.references import logical_view
from gemmetry.numerics.storage import quantize, round_to_tf32, to_float32, to_float64
from gemmetry.providers.mutant_provider.host.emulator import (
    ON_BF16,
    ON_DEEP,
    ON_E4M3,
    ON_F32,
    ON_GELU,
    ON_ONE_BLOCK_OF_SCALES,
    ON_ROW_SCALES,
    ON_S8,
    ON_S8_DEEP,
    Array,
    Tile,
    TiledGemm,
    bug,
    tricky,
)

FP8_SUM_BITS = 14
"""The significand bits that Hopper's fp8 instructions keep of a sum (DeepSeek-V3 report, section
3.5.2)."""

SCALE_BLOCK = 128
"""The rows whose scale factors are stored together as 32 × 4 (cuBLAS documentation, block scaling
layout)."""


def truncated(values: Array, bits: int) -> Array:
    """float64 `values`, rounded towards zero to `bits` significand bits."""
    mask = np.int64(-1) << np.int64(53 - bits)
    return (np.ascontiguousarray(values).view(np.int64) & mask).view(np.float64)


@bug(36, "f16_sums", "accumulates in f16", ON_DEEP, "integers")
class F16Sums(TiledGemm):
    format: DType = F16

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        total = super().multiply_add(accumulator, a, b)
        return to_float32(quantize(total, self.format))


@bug(36, "bf16_sums", "accumulates in bf16", ON_DEEP, "integers")
class Bf16Sums(F16Sums):
    format = BF16


class TruncatesSums(TiledGemm):
    """Adds a block of products exactly and truncates the sum, as tensor cores do."""

    block = 8
    bits: int

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        total, wide_a, wide_b = to_float64(accumulator), to_float64(a), to_float64(b)
        for first in range(0, a.shape[1], self.block):
            part = slice(first, first + self.block)
            total = truncated(total + wide_a[:, part] @ wide_b[part], self.bits)
        return total.astype(self.accumulator)


@bug(37, "fp8_sums_not_promoted", "accumulates fp8 products in 14 bits",
     "matmul_64x64x2048_e4m3t_e4m3n_f32t", "fp8_promotion")  # fmt: skip
class FastFp8Sums(TruncatesSums):
    """Accumulates all of K in 14 bits, eight products at a time, as Hopper's fp8 instructions do,
    and never moves the sum to float32."""

    bits = FP8_SUM_BITS


class RoundsInputs(TiledGemm):
    """Rounds what it loads to another format."""

    rounded_input: Callable[[Array], Array]

    def load_a(self, tile: Tile, step: int) -> Array:
        return self.rounded_input(super().load_a(tile, step))

    def load_b(self, tile: Tile, step: int) -> Array:
        return self.rounded_input(super().load_b(tile, step))


def _through(dtype: DType) -> Callable[[Array], Array]:
    return lambda block: to_float32(quantize(block, dtype))


@bug(38, "tf32_inputs", "rounds f32 inputs to tf32", ON_F32, "selects_lhs")
class Tf32Inputs(RoundsInputs):
    rounded_input = staticmethod(round_to_tf32)


@bug(39, "f16_inputs", "converts bf16 inputs to f16, which has a smaller range", ON_BF16,
     "selects_lhs")  # fmt: skip
class F16Inputs(RoundsInputs):
    """Every bf16 number of ordinary magnitude is also an f16 number; large ones overflow."""

    rounded_input = staticmethod(_through(F16))


@bug(39, "fp8_inputs", "converts bf16 inputs to fp8", ON_BF16, "values")
class Fp8Inputs(RoundsInputs):
    rounded_input = staticmethod(_through(E4M3))


@bug(54, "nan_swallowed", "treats NaN in the inputs as zero", ON_F32, "nan_spreads")
class SwallowsNan(RoundsInputs):
    def rounded_input(self, block: Array) -> Array:
        return np.where(np.isnan(block), np.float32(0), block)


@bug(40, "result_truncated", "truncates the result to bf16", ON_BF16, "integers")
class TruncatesResult(TiledGemm):
    """Converts float32 to bf16 by cutting off the lower half instead of rounding."""

    def rounded(self, values: Array) -> Array:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        return quantize((bits & np.uint32(0xFFFF0000)).view(np.float32), self.signature.result)


@bug(40, "ties_away_from_zero", "rounds halfway cases away from zero instead of to even", ON_BF16,
     "integers")  # fmt: skip
class RoundsTiesAway(TiledGemm):
    """Adds half a bf16 ulp and truncates, so halfway cases are rounded away from zero, not to
    even."""

    def rounded(self, values: Array) -> Array:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        up = ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)
        return quantize(np.where(np.isfinite(values), up, values), self.signature.result)


@bug(40, "result_scaled", "multiplies the result by 1.001", ON_DEEP, "integers")
class ScalesResult(TiledGemm):
    """The error is too small for tolerances of one per cent."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        return super().scaled(tile, values) * np.float32(1.001)


@bug(45, "alpha_beta_swapped", "swaps alpha and beta", f"{ON_F32}_alpha0p5_beta2", "values")
class SwapsAlphaBeta(TiledGemm):
    def scaled(self, tile: Tile, values: Array) -> Array:
        s, dtype = self.signature, values.dtype.type
        values = values * dtype(s.beta)
        if s.beta == 0:
            return values
        return np.asarray(values + dtype(s.alpha) * self.tensor("addend", tile, values.dtype))


@bug(41, "row_scale_off_by_one", "uses the next row's scale factor for the last row of a tile",
     ON_ROW_SCALES, "values")  # fmt: skip
class RepeatsRowScale(TiledGemm):
    """The last row of each tile gets the scale factor of the row that follows."""

    def scale_a(self, tile: Tile) -> Array:
        scales = super().scale_a(tile).copy()
        following = min(tile.row + self.tile_m, self.m - 1)
        scales[-1] = self.problem.tensors["scale_a"][following]
        return scales


class ScaleLayout(TiledGemm):
    """Stores row scales in blocks of 128 that are laid out as 32 × 4, row r at (r % 32, r // 32). A
    whole block is read back correctly."""

    def scale_a(self, tile: Tile) -> Array:
        packed = self.packed(self.problem.tensors["scale_a"][:, 0])
        rows = np.arange(self.m)[self.rows(tile)]
        return packed[self.position(rows)][:, np.newaxis]

    def packed(self, scales: Array) -> Array:
        """The scales as they are stored, with blocks padded by zeros."""
        memory = np.zeros(-(-self.m // SCALE_BLOCK) * SCALE_BLOCK, np.float32)
        memory[self.position(np.arange(self.m))] = scales
        return memory

    def position(self, rows: Array) -> Array:
        block, row = np.divmod(rows, SCALE_BLOCK)
        return np.asarray(block * SCALE_BLOCK + row % 32 * 4 + row // 32)


@bug(42, "scale_layout_transposed",
     "reads blocks of scale factors as 4 × 32 that are stored as 32 × 4", ON_ROW_SCALES,
     "values")  # fmt: skip
class ScaleLayoutTransposed(ScaleLayout):
    def scale_a(self, tile: Tile) -> Array:
        packed = self.packed(self.problem.tensors["scale_a"][:, 0])
        return packed[self.rows(tile), np.newaxis]


@bug(42, "scale_layout_unpadded", "packs fewer than 128 scale factors without padding",
     ON_ONE_BLOCK_OF_SCALES, "tail_shapes")  # fmt: skip
class ScaleLayoutUnpadded(ScaleLayout):
    """Packs a partial last block of scales without padding: scales past its end are lost, and read
    as the last one that is there."""

    def packed(self, scales: Array) -> Array:
        memory = super().packed(scales)
        memory[self.m :] = memory[self.m - 1]
        return memory


@bug(43, "scales_as_exponents", "stores scale factors as e8m0: powers of two, without a sign",
     ON_ROW_SCALES, "scale_factors")  # fmt: skip
class ScalesAsExponents(TiledGemm):
    """Stores scales as e8m0: their sign is lost, and they are rounded to powers of two."""

    def scale_a(self, tile: Tile) -> Array:
        return self.exponent_only(super().scale_a(tile))

    def scale_b(self, tile: Tile) -> Array:
        return self.exponent_only(super().scale_b(tile))

    def exponent_only(self, scales: Array) -> Array:
        exponent = np.rint(np.log2(np.abs(scales)))
        return np.asarray(np.exp2(np.clip(exponent, -127, 127)), scales.dtype)


@bug(41, "scale_of_b_ignored", "uses the scale factor of A for B",
     "matmul_128x128x128_e4m3t_e4m3n_bf16t_scaletensor", "values")  # fmt: skip
class IgnoresScaleOfB(TiledGemm):
    def scale_b(self, tile: Tile) -> Array:
        assert self.signature.scaling is Scaling.TENSOR
        return super().scale_a(tile)


@bug(44, "pairs_swapped", "unpacks pairs along K in the wrong order", ON_S8, "values")
class SwapsPairs(TiledGemm):
    """Unpacks B's rows in pairs, as two 4-bit numbers of a byte, in the wrong order."""

    def load_b(self, tile: Tile, step: int) -> Array:
        block = super().load_b(tile, step)
        return np.asarray(block[np.arange(self.tile_k) ^ 1])


_S8_OFFSET = 128
"""What is added to s8 to make it u8."""

_FP8_EXPONENT = {E4M3: (4, 7), E5M2: (5, 15)}
"""Format -> bits and bias of its exponent ("FP8 Formats for Deep Learning", arXiv 2209.05433, table
1)."""


@bug(57, "s8_sums_in_f32", "accumulates s8 products in f32", ON_S8_DEEP, "integers")
class F32Sums(TiledGemm):
    """f32 counts exactly only to 2^24, and s32 is promised."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        return np.asarray(accumulator.astype(np.float32) + a @ b).astype(np.int32)


@tricky(21, "s8_pairs", "adds pairs of s8 products in 32 bits", ON_S8)
class PairedS8(TiledGemm):
    """Adds s8 products in pairs, as x86 and 16-bit dot products do, and keeps all bits of them."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        pairs = (-1, 2)
        products = a.reshape(a.shape[0], *pairs).swapaxes(0, 1) @ b.reshape(*pairs, b.shape[1])
        return np.asarray(accumulator + self.kept(products).sum(axis=0).astype(np.int32))

    def kept(self, sums: Array) -> Array:
        """What is kept of the sums of two products (pairs, rows, columns)."""
        return sums


@bug(58, "pairs_saturate", "saturates sums of two s8 products to 16 bits", ON_S8, "integers")
class SaturatesPairs(PairedS8):
    """Sums of pairs saturate at the largest s16. Of s8 products, only two of -128 · -128 exceed
    it."""

    def kept(self, sums: Array) -> Array:
        return np.clip(sums, -(2**15), 2**15 - 1)


@tricky(22, "s8_offset", "adds 128 to A, and corrects the sums for it", ON_S8_DEEP)
class OffsetS8(PairedS8):
    """A + 128 is u8, as x86's dot products require (vpdpbusd); 128 times the column sums of B is
    subtracted again."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        total = super().multiply_add(accumulator, a + np.float32(_S8_OFFSET), b)
        too_much = (_S8_OFFSET * b.sum(axis=0)).astype(np.int32)
        return np.asarray(total - too_much)


@bug(58, "offset_pairs_saturate",
     "saturates sums of two products of A + 128 to 16 bits, as pmaddubsw does", ON_S8,
     "values")  # fmt: skip
class SaturatesOffsetPairs(OffsetS8):
    """pmaddubsw: sums of pairs of u8 · s8 saturate at the largest s16, which many of them
    exceed."""

    def kept(self, sums: Array) -> Array:
        return np.clip(sums, -(2**15), 2**15 - 1)


@bug(59, "negated_in_s8", "negates -128 in 8 bits", ON_S8, "integers")
class NegatesInS8(TiledGemm):
    """|a| · (sign of a · b), as psignb and pmaddubsw compute it: -(-128) is not an s8 number, and
    remains -128."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        negated = np.where(b == -_S8_OFFSET, b, -b)
        positive, negative = np.maximum(a, 0), np.maximum(-a, 0)
        product = positive @ b + negative @ negated
        return np.asarray(accumulator + product.astype(np.int32))


@bug(59, "minus_128_clamped", "replaces -128 by -127", ON_S8, "integers")
class ClampsTo127(TiledGemm):
    """Replaces -128 by -127, as quantisers that are symmetric around zero do."""

    def load_a(self, tile: Tile, step: int) -> Array:
        return np.maximum(super().load_a(tile, step), np.float32(1 - _S8_OFFSET))


@tricky(23, "fp8_by_table", "decodes e4m3 numbers with a table", ON_E4M3)
class DecodesFp8(TiledGemm):
    """Widens fp8 with a table of its own, built from sign, exponent and significand."""

    reserves_top_exponent: ClassVar[dict[DType, bool]] = {E4M3: False, E5M2: True}
    """Whether the largest exponent is reserved for infinity and NaN, as in IEEE 754. If not, NaN
    has all bits set."""

    def before(self) -> None:
        super().before()
        lhs, rhs = self.operation.inputs[:2]
        self.problem.a = self.decoded(lhs).reshape(self.problem.a.shape)
        self.problem.b = self.decoded(rhs).reshape(self.problem.b.shape)

    def decoded(self, spec: TensorSpec) -> Array:
        """The operand in float32, in its logical shape."""
        codes = logical_view(self.problem.buffers[spec.role], spec).view(np.uint8)
        return self.table(spec.dtype)[codes]

    def table(self, dtype: DType) -> Array:
        """The number that each of the 256 codes represents."""
        exponent_bits, bias = _FP8_EXPONENT[dtype]
        fraction_bits = 7 - exponent_bits
        codes = np.arange(256)
        field = codes >> fraction_bits & (1 << exponent_bits) - 1
        fraction = codes & (1 << fraction_bits) - 1
        significand = np.where(field > 0, fraction + (1 << fraction_bits), fraction)
        values = np.ldexp(significand, np.maximum(field, 1) - bias - fraction_bits)
        if self.reserves_top_exponent[dtype]:
            special = np.where(fraction == 0, np.inf, np.nan)
            values = np.where(field == (1 << exponent_bits) - 1, special, values)
        else:
            values = np.where(codes & 127 == 127, np.nan, values)
        return np.where(codes < 128, values, -values).astype(np.float32)


@bug(60, "e4m3_top_reserved", "reads e4m3 numbers from 256 on as infinity and NaN", ON_E4M3,
     "selects_lhs")  # fmt: skip
@bug(60, "scaled_e4m3_top_reserved",
     "reads e4m3 numbers from 256 on as infinity and NaN, with scale factors", ON_ROW_SCALES,
     "selects_lhs")  # fmt: skip
@bug(60, "biased_e4m3_top_reserved",
     "reads e4m3 numbers from 256 on as infinity and NaN, with scale factors and a bias",
     "matmul_128x128x128_e4m3t_e4m3n_bf16t_scaletensor_bias", "selects_lhs")  # fmt: skip
class ReservesTopOfE4m3(DecodesFp8):
    """Treats e4m3's largest exponent, that of 256 to 448, as infinity and NaN."""

    reserves_top_exponent: ClassVar[dict[DType, bool]] = {E4M3: True, E5M2: True}


@bug(60, "e5m2_top_counted", "reads infinity and NaN of e5m2 as numbers",
     "matmul_128x128x128_e5m2t_e5m2n_f32t", "nan_spreads")  # fmt: skip
class CountsTopOfE5m2(DecodesFp8):
    """Reads e5m2's infinity and NaN as numbers, as they would be in e4m3."""

    reserves_top_exponent: ClassVar[dict[DType, bool]] = {E4M3: False, E5M2: False}


@bug(64, "tanh_gelu", "approximates gelu with tanh", ON_GELU, "tail_shapes")
@bug(64, "tanh_gelu_to_bf16", "approximates gelu with tanh, with a bf16 result",
     "matmul_128x128x128_bf16t_bf16n_bf16t_gelu", "selects_lhs")  # fmt: skip
class TanhGelu(TiledGemm):
    """The approximation of gelu with tanh is off by up to 5e-4 (Hendrycks and Gimpel 2016, section
    2)."""

    def gelu(self, values: Array) -> Array:
        inner = math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)
        return np.asarray(0.5 * values * (1 + np.tanh(inner)), values.dtype)


@tricky(24, "gelu_by_formula", "approximates the error function to within 1.5e-7", ON_GELU)
class RationalGelu(TiledGemm):
    """Computes gelu in f32 with a short formula for the error function that is within 1.5e-7 of it
    (Abramowitz and Stegun 1964, 7.1.26)."""

    coefficients = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)

    def gelu(self, values: Array) -> Array:
        dtype = values.dtype.type
        size = np.abs(values) * dtype(math.sqrt(0.5))
        t = dtype(1) / (dtype(1) + dtype(0.3275911) * size)
        series = np.zeros_like(t)
        for coefficient in reversed(self.coefficients):
            series = (series + dtype(coefficient)) * t
        erf = np.copysign(dtype(1) - series * np.exp(-size * size), values)
        return np.asarray(dtype(0.5) * values * (dtype(1) + erf))
