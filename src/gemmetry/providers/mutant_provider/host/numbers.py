"""Mutants on the host: s8, fp8 and gelu, in other ways that are correct, and with bugs, most of
which are a slip in one of these ways."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from gemmetry.domain.dtypes import E4M3, E5M2, DType
from gemmetry.domain.operation import TensorSpec
from gemmetry.numerics.host_products import logical_view
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm
from gemmetry.providers.mutant_provider.host.kernels import (
    ON_E4M3,
    ON_GELU,
    ON_ROW_SCALES,
    ON_S8,
    ON_S8_DEEP,
    bug,
    tricky,
)

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
