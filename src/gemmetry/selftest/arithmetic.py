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
from gemmetry.selftest.emulator import Array, Kernels, Tile, TiledGemm, instead, result

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


class F16Sums(TiledGemm):
    format: DType = F16

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        total = super().multiply_add(accumulator, a, b)
        return to_float32(quantize(total, self.format))


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


class Tf32Inputs(RoundsInputs):
    rounded_input = staticmethod(round_to_tf32)


class F16Inputs(RoundsInputs):
    """Every bf16 number of ordinary magnitude is also an f16 number; large ones overflow."""

    rounded_input = staticmethod(_through(F16))


class Fp8Inputs(RoundsInputs):
    rounded_input = staticmethod(_through(E4M3))


class RoundsTiesAway(TiledGemm):
    """Adds half a bf16 ulp and truncates, so halfway cases are rounded away from zero, not to
    even."""

    def rounded(self, values: Array) -> Array:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        up = ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)
        return quantize(np.where(np.isfinite(values), up, values), self.signature.result)


class SwapsAlphaBeta(TiledGemm):
    def scaled(self, tile: Tile, values: Array) -> Array:
        s, dtype = self.signature, values.dtype.type
        values = values * dtype(s.beta)
        if s.beta == 0:
            return values
        return np.asarray(values + dtype(s.alpha) * self.tensor("addend", tile, values.dtype))


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


class ScaleLayoutUnpadded(ScaleLayout):
    """Packs a partial last block of scales without padding: scales past its end are lost, and read
    as the last one that is there."""

    def packed(self, scales: Array) -> Array:
        memory = super().packed(scales)
        memory[self.m :] = memory[self.m - 1]
        return memory


class ScalesAsExponents(TiledGemm):
    """Stores scales as e8m0: their sign is lost, and they are rounded to powers of two."""

    def scale_a(self, tile: Tile) -> Array:
        return self.exponent_only(super().scale_a(tile))

    def scale_b(self, tile: Tile) -> Array:
        return self.exponent_only(super().scale_b(tile))

    def exponent_only(self, scales: Array) -> Array:
        exponent = np.rint(np.log2(np.abs(scales)))
        return np.asarray(np.exp2(np.clip(exponent, -127, 127)), scales.dtype)


class IgnoresScaleOfB(TiledGemm):
    def scale_b(self, tile: Tile) -> Array:
        assert self.signature.scaling is Scaling.TENSOR
        return super().scale_a(tile)


_S8_OFFSET = 128
"""What is added to s8 to make it u8."""

_FP8_EXPONENT = {E4M3: (4, 7), E5M2: (5, 15)}
"""Format -> bits and bias of its exponent ("FP8 Formats for Deep Learning", arXiv 2209.05433, table
1)."""


class PairedS8(TiledGemm):
    """Adds s8 products in pairs, as x86 and 16-bit dot products do, and keeps all bits of them."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        pairs = (-1, 2)
        products = a.reshape(a.shape[0], *pairs).swapaxes(0, 1) @ b.reshape(*pairs, b.shape[1])
        return np.asarray(accumulator + self.kept(products).sum(axis=0).astype(np.int32))

    def kept(self, sums: Array) -> Array:
        """What is kept of the sums of two products (pairs, rows, columns)."""
        return sums


class OffsetS8(PairedS8):
    """A + 128 is u8, as x86's dot products require (vpdpbusd); 128 times the column sums of B is
    subtracted again."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        total = super().multiply_add(accumulator, a + np.float32(_S8_OFFSET), b)
        too_much = (_S8_OFFSET * b.sum(axis=0)).astype(np.int32)
        return np.asarray(total - too_much)


class NegatesInS8(TiledGemm):
    """|a| · (sign of a · b), as psignb and pmaddubsw compute it: -(-128) is not an s8 number, and
    remains -128."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        negated = np.where(b == -_S8_OFFSET, b, -b)
        positive, negative = np.maximum(a, 0), np.maximum(-a, 0)
        product = positive @ b + negative @ negated
        return np.asarray(accumulator + product.astype(np.int32))


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


class ReservesTopOfE4m3(DecodesFp8):
    """Treats e4m3's largest exponent, that of 256 to 448, as infinity and NaN."""

    reserves_top_exponent: ClassVar[dict[DType, bool]] = {E4M3: True, E5M2: True}


class CountsTopOfE5m2(DecodesFp8):
    """Reads e5m2's infinity and NaN as numbers, as they would be in e4m3."""

    reserves_top_exponent: ClassVar[dict[DType, bool]] = {E4M3: False, E5M2: False}


class TanhGelu(TiledGemm):
    """The approximation of gelu with tanh is off by up to 5e-4 (Hendrycks and Gimpel 2016, section
    2)."""

    def gelu(self, values: Array) -> Array:
        inner = math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)
        return np.asarray(0.5 * values * (1 + np.tanh(inner)), values.dtype)


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


KERNELS: Kernels = {
    "swallows_nan": instead(
        "rounded_input",
        lambda g, block: np.where(np.isnan(block), np.float32(0), block),
        RoundsInputs,
    ),
    # Converts float32 to bf16 by cutting off the lower half instead of rounding.
    "truncates_result": instead(
        "rounded",
        lambda g, values: quantize(
            (np.ascontiguousarray(values, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(
                np.float32
            ),
            g.signature.result,
        ),
    ),
    # The error is too small for tolerances of one per cent.
    "scales_result": result("scaled", lambda g, result, tile, values: result * np.float32(1.001)),
    "scale_layout_transposed": instead(
        "scale_a",
        lambda g, tile: g.packed(g.problem.tensors["scale_a"][:, 0])[g.rows(tile), np.newaxis],
        ScaleLayout,
    ),
    # Unpacks B's rows in pairs, as two 4-bit numbers of a byte, in the wrong order.
    "swaps_pairs": result(
        "load_b", lambda g, block, tile, step: np.asarray(block[np.arange(g.tile_k) ^ 1])
    ),
    # f32 counts exactly only to 2^24, and s32 is promised.
    "f32_sums": instead(
        "multiply_add",
        lambda g, accumulator, a, b: np.asarray(accumulator.astype(np.float32) + a @ b).astype(
            np.int32
        ),
    ),
    # Sums of pairs saturate at the largest s16. Of s8 products, only two of -128 ·
    # -128 exceed it.
    "saturates_pairs": instead(
        "kept", lambda g, sums: np.clip(sums, -(2**15), 2**15 - 1), PairedS8
    ),
    # pmaddubsw: sums of pairs of u8 · s8 saturate at the largest s16, which many of
    # them exceed.
    "saturates_offset_pairs": instead(
        "kept", lambda g, sums: np.clip(sums, -(2**15), 2**15 - 1), OffsetS8
    ),
    # Replaces -128 by -127, as quantisers that are symmetric around zero do.
    "clamps_to_127": result(
        "load_a", lambda g, result, tile, step: np.maximum(result, np.float32(1 - _S8_OFFSET))
    ),
}
