"""Mutants on the host: arithmetic that is not what the operation promises."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmetry.domain.dtypes import BF16, E4M3, F16, DType
from gemmetry.domain.operation import Scaling
from gemmetry.numerics.storage import (
    quantize,
    round_to_tf32,
    to_float32,
    to_float64,
)
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm
from gemmetry.providers.mutant_provider.host.kernels import (
    ON_BF16,
    ON_DEEP,
    ON_F32,
    ON_ONE_BLOCK_OF_SCALES,
    ON_ROW_SCALES,
    ON_S8,
    bug,
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
