"""Mutants on the host: shared exponents, fixed point, epsilons, both ends of the range of f16, and
how NaN and infinity spread; with correct kernels that resemble them.

Mutants on the host: alpha, beta and scale factors, in correct and in wrong orders of operations.

alpha·A·B + beta·C may be computed as (alpha·A)·B, as A·(alpha·B), as a sum that starts with beta·C,
or step by step. Each rounds in other places, and libraries do all of these.

Mutants on the host: factors of blocks that are read, decoded or applied wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmetry.domain.operation import BF16, F16, DType
from gemmetry.domain.record import Trait
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.storage import (
    COLUMN_TILE,
    ROW_TILE,
    quantize,
    smallest_normal,
    spread,
    swizzle_factors,
    to_float32,
    to_float64,
    unswizzle_factors,
)
from gemmetry.providers.mutant_provider.host.arithmetic import RoundsInputs
from gemmetry.providers.mutant_provider.host.emulator import (
    ON_BF16,
    ON_BOTH,
    ON_DEEP,
    ON_F16,
    ON_F32,
    ON_ROW_SCALES,
    Array,
    Tile,
    TiledGemm,
    batched,
    bug,
    tricky,
)
from gemmetry.providers.mutant_provider.host.memory import NormalisesRows

EPSILON = 1e-12
"""Below it, numbers are treated as zero, or it is added to a divisor."""


def _power_of_two(largest: Array) -> Array:
    """The largest power of two not above each of `largest`; 1 for zero, NaN and infinity."""
    usable = np.where((largest > 0) & np.isfinite(largest), largest, 1)
    return np.asarray(np.exp2(np.floor(np.log2(usable))), largest.dtype)


def _fixed(values: Array, unit: Array | float) -> Array:
    """`values` as multiples of 2**-24 `unit`; NaN and infinity are unchanged."""
    step = np.asarray(unit) * 2.0**-24
    wide = to_float64(np.asarray(values))
    rounded = np.rint(wide / step) * step
    return np.asarray(np.where(np.isfinite(wide), rounded, wide), values.dtype)


@bug(67, "block_exponents", "shares one exponent among the numbers of a row of A and step along K",
     ON_F32, "scaled_along_k")  # fmt: skip
class SharesExponents(TiledGemm):
    """The numbers of one row and step along K share an exponent, and keep 24 bits below it."""

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step)
        return _fixed(block, _power_of_two(np.abs(block).max(axis=1, keepdims=True)))


@bug(67, "block_exponents_of_b",
     "shares one exponent among the numbers of a column of B and step along K", ON_DEEP,
     "scaled_along_k")  # fmt: skip
class SharesExponentsOfB(TiledGemm):
    """The same for columns of B."""

    def load_b(self, tile: Tile, step: int) -> Array:
        block = super().load_b(tile, step)
        return _fixed(block, _power_of_two(np.abs(block).max(axis=0, keepdims=True)))


@bug(67, "fixed_point_rows", "stores rows of A as integers and a factor", ON_BF16, "scaled_along_k")
@tricky(30, "fixed_point_by_norm", "stores rows of A as integers and a factor, as declared", ON_F32,
        Trait.NORMWISE)  # fmt: skip
class FixedPointRows(NormalisesRows):
    """Stores rows of A as 25-bit integers and a factor, as integer units need them."""

    def before(self) -> None:
        super().before()
        self.problem.a = _fixed(self.problem.a, 1.0)


@bug(67, "fixed_point", "rounds inputs to multiples of 2^-40", ON_BF16, "scaled_along_k")
class FixedPoint(RoundsInputs):
    """All inputs become multiples of 2**-40."""

    def rounded_input(self, block: Array) -> Array:
        return _fixed(block, 2.0**-16)


@bug(67, "ends_at_epsilon", "treats inputs below 1e-12 as zero", ON_F32, "scaled_along_k")
class EndsAtEpsilon(RoundsInputs):
    def rounded_input(self, block: Array) -> Array:
        return np.where(np.abs(block) < EPSILON, block * 0, block)


@bug(67, "small_bf16_flushed", "treats bf16 inputs below 2^-60 as zero", ON_BF16, "scaled_along_k")
class FlushesSmallBf16(RoundsInputs):
    """The threshold is far above subnormal numbers."""

    def rounded_input(self, block: Array) -> Array:
        return np.where(np.abs(block) < 2.0**-60, block * 0, block)


@bug(67, "epsilon_in_divisor", "divides columns of A by their largest number plus 1e-12", ON_F32,
     "scaled_along_k")  # fmt: skip
class EpsilonInDivisor(TiledGemm):
    """Divides columns of A by their largest number plus 1e-12, and multiplies rows of B by it."""

    def before(self) -> None:
        super().before()
        a = self.problem.a
        largest = np.abs(a).max(axis=1, keepdims=True)
        self.problem.a = a / (largest + a.dtype.type(EPSILON))
        self.problem.b = self.problem.b * np.swapaxes(largest, 1, 2)


@bug(67, "clamps_at_2_30", "clamps inputs to 2^30", ON_BF16, "scaled_along_k")
class ClampsInputs(RoundsInputs):
    """Clamps numbers to 2**30, far beyond activations; NaN is unchanged."""

    def rounded_input(self, block: Array) -> Array:
        return np.where(np.isinf(block), block, np.clip(block, -(2.0**30), 2.0**30))


@bug(67, "squares_on_the_way", "computes magnitudes as square roots of squares", ON_BF16,
     "scaled_along_k")  # fmt: skip
class SquaresOnTheWay(RoundsInputs):
    """The squares overflow and underflow before their roots do."""

    def rounded_input(self, block: Array) -> Array:
        squares = np.square(block.astype(np.float32))
        return np.asarray(np.copysign(np.sqrt(squares), block), block.dtype)


@tricky(30, "columns_balanced", "moves powers of two from the columns of A to the rows of B",
        ON_F32)  # fmt: skip
class BalancesColumns(TiledGemm):
    """Right: divides columns of A by powers of two near their largest numbers, and multiplies the
    rows of B by them."""

    def before(self) -> None:
        super().before()
        factors = _power_of_two(np.abs(self.problem.a).max(axis=1, keepdims=True))
        self.problem.a = self.problem.a / factors
        self.problem.b = self.problem.b * np.swapaxes(factors, 1, 2)


@tricky(30, "rows_scaled_gently", "divides rows of A by powers of two up to 2^20", ON_BF16)
class ScalesRowsGently(NormalisesRows):
    """Right: uses a power of two between 2**-20 and 2**20 for each row, so that nothing
    underflows."""

    def factors_of(self, largest: Array) -> Array:
        return np.asarray(np.clip(_power_of_two(largest), 2.0**-20, 2.0**20), largest.dtype)


@tricky(33, "scaled_by_largest", "divides A and B by powers of two near their largest numbers",
        ON_F32)  # fmt: skip
class ScaledByLargest(TiledGemm):
    """Right: what is far below the largest number of a tensor is lost, which is a property."""

    def before(self) -> None:
        super().before()
        self.factors = [_power_of_two(np.abs(x).max()) for x in (self.problem.a, self.problem.b)]
        self.problem.a = self.problem.a / self.factors[0]
        self.problem.b = self.problem.b / self.factors[1]

    def scaled(self, tile: Tile, values: Array) -> Array:
        return super().scaled(tile, values * (self.factors[0] * self.factors[1]))


# f16 at both ends --------------------------------------------------------------------------------


@bug(68, "f16_inputs_flushed", "treats subnormal f16 inputs as zero", ON_F16, "subnormals")
class FlushesInputs(RoundsInputs):
    """Every f16 instruction respects subnormal numbers."""

    def rounded_input(self, block: Array) -> Array:
        return np.where(np.abs(block) < smallest_normal(self.signature.lhs), block * 0, block)


@bug(68, "f16_results_flushed", "stores zero for subnormal f16 results", f"{ON_F16}_alpha1em06",
     "values")  # fmt: skip
class FlushesResults(TiledGemm):
    def rounded(self, values: Array) -> Array:
        block = super().rounded(values)
        tiny = np.abs(to_float32(block)) < smallest_normal(self.signature.result)
        return np.where(tiny, block.dtype.type(0), block)


@bug(68, "f16_saturates", "clamps f16 results to 65504", ON_F16, "overflow")
class SaturatesF16(TiledGemm):
    """Stores 65504 where the result is infinity."""

    def rounded(self, values: Array) -> Array:
        largest = self.signature.result.maximum
        return super().rounded(
            np.where(np.isinf(values), values, np.clip(values, -largest, largest))
        )


@bug(68, "overflows_upwards", "stores +infinity for results below the range of f16", ON_F16,
     "overflow")  # fmt: skip
class OverflowsUpwards(TiledGemm):
    """Stores +infinity for every result that is out of range, whatever its sign."""

    def rounded(self, values: Array) -> Array:
        block = super().rounded(values).copy()
        block[np.isinf(to_float32(block))] = np.inf
        return block


# NaN and infinity --------------------------------------------------------------------------------


@bug(69, "infinity_without_sign", "turns -infinity into +infinity", ON_F32, "inf_spreads")
class InfinityWithoutSign(TiledGemm):
    """Infinity in the inputs becomes +infinity, whatever it is multiplied by."""

    def store(self, tile: Tile, block: Array) -> None:
        super().store(tile, np.where(np.isinf(block), np.abs(block), block))


@bug(69, "nan_spoils_neighbours", "leaves out products in tiles that contain NaN", ON_F32,
     "nan_spreads")  # fmt: skip
class NanSpoilsNeighbours(TiledGemm):
    """Takes a short cut in tiles with NaN, which leaves out their last 16 products along K."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        if np.isnan(a).any() or np.isnan(b).any():
            a, b = a[:, :-16], b[:-16]
        return super().multiply_add(accumulator, a, b)


@bug(69, "nan_cleaned_in_place", "replaces NaN in the input A by zero after the product", ON_BF16,
     "nan_spreads")  # fmt: skip
class CleansInputs(TiledGemm):
    """Multiplies correctly, and then replaces NaN in A by zero."""

    def after(self) -> None:
        super().after()
        lhs = self.problem.buffers["lhs"]
        lhs[np.isnan(to_float64(lhs))] = 0


@bug(69, "infinity_cleaned_in_place",
     "replaces infinity in the input B by the largest number after the product", ON_F32,
     "inf_spreads")  # fmt: skip
class CleansInfinity(TiledGemm):
    """Multiplies correctly, and then replaces infinity in B by the largest number."""

    def after(self) -> None:
        super().after()
        rhs = self.problem.buffers["rhs"]
        rhs[np.isinf(to_float64(rhs))] = self.signature.rhs.maximum


@bug(69, "workspace_times_zero", "clears a workspace by multiplying it by zero", ON_F32,
     "nan_spreads")  # fmt: skip
class ClearsByMultiplying(TiledGemm):
    """Multiplies a workspace of sums by zero, which leaves NaN in it forever."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.launches == 0:
            shape = (self.batch, self.tiles_m * self.tile_m, self.tiles_n * self.tile_n)
            self.workspace = np.zeros(shape, self.accumulator)
        return super().launch(inputs, output)

    def before(self) -> None:
        super().before()
        self.workspace *= 0

    def epilogue(self, tile: Tile, accumulator: Array) -> None:
        rows = slice(tile.row, tile.row + self.tile_m)
        columns = slice(tile.column, tile.column + self.tile_n)
        self.workspace[tile.batch, rows, columns] += accumulator
        super().epilogue(tile, self.workspace[tile.batch, rows, columns])


@tricky(31, "nan_by_flag", "keeps a flag for each row and column that contains NaN", ON_F32)
class NanByFlag(TiledGemm):
    """Right: rows and columns that contain NaN are flagged instead of multiplied."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        rows, columns = np.isnan(a).any(axis=1), np.isnan(b).any(axis=0)
        total = super().multiply_add(
            accumulator,
            np.nan_to_num(a, posinf=np.inf, neginf=-np.inf),
            np.nan_to_num(b, posinf=np.inf, neginf=-np.inf),
        )
        if rows.any() or columns.any():
            total[rows] = np.nan
            total[:, columns] = np.nan
        return total


class OrdersFactors(TiledGemm):
    """An epilogue whose factors are attributes, and may be applied elsewhere."""

    alpha_behind = True
    """Whether the epilogue multiplies by alpha."""
    addend_behind = True
    """Whether the epilogue adds beta·C."""

    def alpha(self) -> float:
        return self.signature.alpha

    def beta(self) -> float:
        return self.signature.beta

    def scaled(self, tile: Tile, values: Array) -> Array:
        dtype = values.dtype.type
        if self.alpha_behind:
            values = values * dtype(self.alpha())
        if self.addend_behind and self.signature.beta != 0:
            values = values + dtype(self.beta()) * self.tensor("addend", tile, values.dtype)
        return values


# Right ----------------------------------------------------------------------------------------


@tricky(26, "alpha_in_a", "multiplies A by alpha before the summation", ON_BOTH)
@tricky(26, "alpha_in_a_before_gelu", "multiplies A by alpha before the summation, with gelu",
        f"{ON_F32}_alpha0p1_beta1p7_gelu")  # fmt: skip
class FoldsAlphaIntoA(OrdersFactors):
    """(alpha·A)·B."""

    alpha_behind = False

    def load_a(self, tile: Tile, step: int) -> Array:
        return super().load_a(tile, step) * self.load_dtype.type(self.signature.alpha)


@tricky(26, "alpha_in_b", "multiplies B by alpha before the summation",
        "matmul_128x96x512_f32t_f32n_f32t_alpha1p7")  # fmt: skip
@tricky(26, "alpha_in_b_of_f64", "multiplies B by alpha before the summation, in f64",
        "matmul_96x128x80_f64t_f64t_f64t_alpha0p3333_betam2")  # fmt: skip
class FoldsAlphaIntoB(OrdersFactors):
    """A·(alpha·B)."""

    alpha_behind = False

    def load_b(self, tile: Tile, step: int) -> Array:
        return super().load_b(tile, step) * self.load_dtype.type(self.signature.alpha)


@tricky(26, "alpha_per_step", "multiplies the product of each step by alpha",
        "matmul_128x128x512_f32t_f32t_f32t_alpham1p7_bias_relu")  # fmt: skip
class AlphaPerStep(OrdersFactors):
    """Adds alpha times the product of each step."""

    alpha_behind = False

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        product = super().multiply_add(np.zeros_like(accumulator), a, b)
        return np.asarray(accumulator + product * accumulator.dtype.type(self.signature.alpha))


@tricky(26, "begins_with_addend", "initialises the accumulator with beta · C", ON_BOTH)
@tricky(26, "begins_with_addend_in_bf16",
        "initialises the accumulator with beta · C, with bf16 tensors",
        "matmul_128x128x128_bf16t_bf16n_bf16t_alpham2_beta0p3333_residual")  # fmt: skip
@tricky(26, "begins_with_addend_in_f16",
        "initialises the accumulator with beta · C, with f16 tensors",
        f"{ON_F16}_alpha0p3333_beta1p7_bias")  # fmt: skip
class BeginsWithAddend(FoldsAlphaIntoA):
    """beta·C + (alpha·A)·B: the accumulator is initialised before the loop along K."""

    addend_behind = False

    def mainloop(self, tile: Tile, steps: range) -> Array:
        self.begin = np.zeros((self.tile_m, self.tile_n), self.accumulator)
        if self.signature.beta != 0:
            addend = self.tensor("addend", tile, self.accumulator)
            addend = addend * self.accumulator.type(self.beta())
            self.begin[: addend.shape[0], : addend.shape[1]] = addend
        accumulator = self.begin
        for step in steps:
            accumulator = self.multiply_add(
                accumulator, self.load_a(tile, step), self.load_b(tile, step)
            )
        return accumulator


@tricky(26, "begins_with_quotient",
        "initialises the accumulator with (beta / alpha) · C, and multiplies the sum by alpha",
        f"{ON_F32}_alpha0p3333_beta0p1")  # fmt: skip
class BeginsWithQuotient(BeginsWithAddend):
    """alpha·((beta/alpha)·C + A·B), and only beta·C if alpha is zero."""

    alpha_behind = True

    def load_a(self, tile: Tile, step: int) -> Array:
        return TiledGemm.load_a(self, tile, step)

    def beta(self) -> float:
        s = self.signature
        return s.beta / s.alpha if s.alpha else s.beta

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        if self.signature.alpha == 0:
            return accumulator
        return super().multiply_add(accumulator, a, b)

    def alpha(self) -> float:
        return self.signature.alpha or 1.0


@tricky(26, "scales_in_operands", "multiplies A and B by their scale factors before the summation",
        ON_ROW_SCALES)  # fmt: skip
class FoldsScalesIntoOperands(OrdersFactors):
    def before(self) -> None:
        super().before()
        tensors = self.problem.tensors
        self.problem.a = self.problem.a * batched(tensors["scale_a"], 3)
        self.problem.b = self.problem.b * batched(tensors["scale_b"], 3)


# Wrong ----------------------------------------------------------------------------------------


@bug(65, "alpha_twice", "multiplies both A and the product by alpha", ON_BOTH, "values")
@bug(65, "alpha_twice_in_f64", "multiplies both A and the product by alpha, in f64",
     "matmul_96x128x80_f64t_f64t_f64t_alpha1p7", "values")  # fmt: skip
class AlphaTwice(FoldsAlphaIntoA):
    """Multiplies A by alpha, and the product as well."""

    alpha_behind = True


@bug(65, "alpha_for_addend_too", "multiplies beta · C by alpha as well", ON_BOTH, "values")
class AlphaForAddendToo(OrdersFactors):
    """alpha·(A·B + beta·C)."""

    def beta(self) -> float:
        return self.signature.beta * self.signature.alpha


@bug(65, "alpha_as_integer", "truncates alpha to an integer", f"{ON_F32}_alpha2_beta1p7",
     "alpha_beta")  # fmt: skip
class AlphaAsInteger(OrdersFactors):
    """Takes alpha as an integer argument."""

    def alpha(self) -> float:
        return float(math.trunc(self.signature.alpha))


@bug(65, "alpha_without_sign", "uses the magnitude of alpha if beta is zero", f"{ON_F32}_alpha2",
     "alpha_beta")  # fmt: skip
class AlphaWithoutSign(OrdersFactors):
    def alpha(self) -> float:
        s = self.signature
        return abs(s.alpha) if s.beta == 0 else s.alpha


@bug(65, "alpha_in_f16", "rounds alpha to f16", ON_BOTH, "values")
class NarrowFactors(OrdersFactors):
    """Rounds alpha to a narrower format, as happens if scalars have the type of the tensors."""

    format: DType = F16

    def narrow(self, value: float) -> float:
        return float(to_float32(quantize(np.array([value]), self.format))[0])

    def alpha(self) -> float:
        return self.narrow(self.signature.alpha)


@bug(65, "alpha_in_bf16", "rounds alpha to bf16", "matmul_64x128x2048_f32t_f32t_f32t_alpha1p7",
     "selects_rhs")  # fmt: skip
@bug(65, "alpha_in_bf16_to_bf16", "rounds alpha to bf16, with a bf16 result",
     "matmul_128x128x128_bf16t_bf16n_bf16t_alpha0p1", "values")  # fmt: skip
class NarrowFactorsBf16(NarrowFactors):
    format = BF16


@bug(65, "beta_in_bf16", "rounds beta to bf16", ON_BOTH, "values")
class NarrowBeta(NarrowFactorsBf16):
    """Rounds only beta."""

    def alpha(self) -> float:
        return self.signature.alpha

    def beta(self) -> float:
        return self.narrow(self.signature.beta)


@bug(65, "beta_ignored", "ignores beta · C", ON_BOTH, "values")
class BetaIgnored(OrdersFactors):
    addend_behind = False


@bug(65, "beta_taken_for_one", "adds C instead of beta · C if beta is not zero", f"{ON_F32}_beta1",
     "alpha_beta")  # fmt: skip
class BetaTakenForOne(OrdersFactors):
    """Distinguishes only whether beta is zero."""

    def beta(self) -> float:
        return 1.0


@bug(65, "beta_for_product", "multiplies the whole sum by beta", ON_BOTH, "values")
class BetaForProduct(OrdersFactors):
    """beta·(alpha·A·B + C)."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        s, dtype = self.signature, values.dtype.type
        if s.beta == 0:
            return super().scaled(tile, values)
        values = values * dtype(s.alpha) + self.tensor("addend", tile, values.dtype)
        return np.asarray(values * dtype(s.beta))


@bug(65, "beta_for_residual", "multiplies the residual instead of C by beta",
     f"{ON_F16}_alpha1p7_betam0p3_residual", "values")  # fmt: skip
class BetaForResidual(OrdersFactors):
    def scaled(self, tile: Tile, values: Array) -> Array:
        values = values * values.dtype.type(self.signature.alpha)
        return np.asarray(values + self.tensor("addend", tile, values.dtype))

    def fused(self, tile: Tile, values: Array) -> Array:
        residual = self.tensor("residual", tile, values.dtype)
        extra = values.dtype.type(self.signature.beta - 1) * residual
        return np.asarray(super().fused(tile, values) + extra)


@bug(65, "alpha_behind_relu", "multiplies by alpha after relu",
     "matmul_128x128x128_bf16t_bf16n_bf16t_alpham2_relu", "values")  # fmt: skip
class AlphaBehindRelu(OrdersFactors):
    """alpha·relu(A·B), which differs if alpha is negative."""

    alpha_behind = False

    def fused(self, tile: Tile, values: Array) -> Array:
        return np.asarray(super().fused(tile, values) * values.dtype.type(self.signature.alpha))


@bug(65, "alpha_behind_bias", "multiplies by alpha after the bias is added",
     f"{ON_F32}_alpha0p1_bias", "values")  # fmt: skip
class AlphaBehindBias(AlphaBehindRelu):
    """alpha·(A·B + bias)."""


@bug(65, "alpha_folded_in_bf16", "multiplies A by alpha in bf16",
     "matmul_128x128x128_bf16t_bf16n_f32t_alpha0p1", "values")  # fmt: skip
class AlphaFoldedInInputFormat(OrdersFactors):
    """(alpha·A)·B with alpha·A rounded to the 16 bits of A, as tensor cores require."""

    alpha_behind = False

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step) * self.load_dtype.type(self.signature.alpha)
        return to_float32(quantize(block, self.signature.lhs))


ON_MXFP8 = "matmul_192x128x256_e4m3t_e4m3n_bf16t_vs32_e8m0"
ON_MXFP4 = "matmul_192x128x256_e2m1t_e2m1n_bf16t_vs32_e8m0"
ON_NVFP4 = "matmul_128x128x256_e2m1t_e2m1n_f16t_vs16_e4m3"
ON_FP8 = "matmul_192x128x512_e4m3t_e4m3n_bf16t_vs1x128"
ON_FP8_BLOCKS = "matmul_192x256x512_e4m3t_e4m3n_bf16t_vs1x128_vs128x128"


class BlockScaled(TiledGemm):
    """Multiplies elements by the factors of their blocks as they are loaded."""

    def before(self) -> None:
        super().before()
        blocks = self.signature.blocks
        assert blocks is not None
        tensors, problem = self.problem.tensors, self.problem
        factors_b = np.swapaxes(batched(tensors["scale_b"], 3), -1, -2)
        of_a = self.factors_of_a(batched(tensors["scale_a"], 3))
        of_b = self.factors_of_b(np.ascontiguousarray(factors_b))
        wide_a = spread(of_a, (self.m, self.k), lines=blocks.rows, depth=blocks.depth)
        wide_b = spread(of_b, (self.n, self.k), lines=blocks.columns, depth=blocks.depth)
        problem.a = to_float32(problem.a * wide_a)
        problem.b = to_float32(problem.b * np.swapaxes(wide_b, -1, -2))

    def factors_of_a(self, factors: Array) -> Array:
        """(batch, groups of rows, blocks) as the kernel uses them."""
        return self.factors(factors)

    def factors_of_b(self, factors: Array) -> Array:
        """(batch, groups of columns, blocks)."""
        return self.factors(factors)

    def factors(self, factors: Array) -> Array:
        return factors


@tricky(21, "block_sums_scaled", "multiplies sums of blocks by their factors", ON_FP8,
        tile=(64, 64, 128))  # fmt: skip
class ScalesSums(TiledGemm):
    """Multiplies the sum of each block by the product of its two factors, as Hopper's kernels do
    outside of the matrix instruction."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        blocks, tensors = self.signature.blocks, self.problem.tensors
        assert blocks is not None
        scale_a, scale_b = (batched(tensors[role], 3)[tile.batch] for role in _ROLES)
        rows = np.arange(self.m)[self.rows(tile)] // blocks.rows
        columns = np.arange(self.n)[self.columns(tile)] // blocks.columns
        total = np.zeros((self.tile_m, self.tile_n), self.accumulator)
        for step in steps:
            product = self.product(self.load_a(tile, step), self.load_b(tile, step))
            at = step * self.tile_k // blocks.depth
            factors = scale_a[rows, at][:, np.newaxis] * scale_b[at, columns]
            total[: rows.size, : columns.size] += product[: rows.size, : columns.size] * factors
        return total


_ROLES = ("scale_a", "scale_b")


@tricky(21, "block_factors_early", "multiplies elements by their factors as it loads them",
        ON_MXFP8)  # fmt: skip
class ScalesElements(BlockScaled):
    pass


@bug(41, "block_scale_of_the_next_block", "uses the factors of the next block along K", ON_MXFP8,
     "values")  # fmt: skip
@bug(41, "block_scale_of_the_next_128", "uses the factors of the next 128 along K", ON_FP8,
     "values")  # fmt: skip
class NextBlock(BlockScaled):
    def factors_of_a(self, factors: Array) -> Array:
        return np.roll(factors, -1, axis=-1)


@bug(41, "block_scale_of_the_next_columns", "uses the factors of the next 128 columns of B",
     ON_FP8_BLOCKS, "values")  # fmt: skip
class NextColumns(BlockScaled):
    def factors_of_b(self, factors: Array) -> Array:
        return np.roll(factors, -1, axis=-2)


@bug(41, "last_block_scale_repeated", "reads the last block's factors from the block before it",
     ON_NVFP4, "values")  # fmt: skip
class RepeatsLastBlock(BlockScaled):
    def factors_of_b(self, factors: Array) -> Array:
        changed = np.array(factors)
        changed[..., -1] = changed[..., -2]
        return changed


@bug(41, "block_scale_of_b_dropped", "leaves out the factors of B", ON_MXFP4, "values")
class DropsFactors(BlockScaled):
    def factors_of_b(self, factors: Array) -> Array:
        return np.ones_like(factors)


@bug(41, "last_block_scale_dropped", "leaves out the factor of the last block of each row of A",
     ON_FP8, "values")  # fmt: skip
class DropsLastFactor(BlockScaled):
    def factors_of_a(self, factors: Array) -> Array:
        changed = np.array(factors)
        changed[..., -1] = 1
        return changed


@bug(42, "block_scale_layout_transposed",
     "reads tiles of factors as 4 × 32 that are stored as 32 × 4", ON_MXFP8,
     "values")  # fmt: skip
class LayoutTransposed(BlockScaled):
    def factors_of_a(self, factors: Array) -> Array:
        return np.stack([self.through_layout(one) for one in factors])

    def through_layout(self, factors: Array) -> Array:
        """The factors through the layout of 128 × 4 tiles, as the kernel reads it."""
        across = -(-factors.shape[-1] // COLUMN_TILE)
        tiles = swizzle_factors(factors).reshape(-1, across, 32, 4, COLUMN_TILE)
        misread = tiles.reshape(-1, across, 4, 32, COLUMN_TILE).swapaxes(2, 3)
        return unswizzle_factors(np.ascontiguousarray(misread).reshape(-1), _shape(factors))


@bug(42, "block_scale_rows_unpadded",
     "skips the padding of factors to 128 rows, so that a last tile of 64 rows is read as whole",
     ON_MXFP8, "values")  # fmt: skip
class LayoutUnpadded(BlockScaled):
    """The second tile of 192 rows begins where 64 rows of the first tile's columns end."""

    def factors_of_a(self, factors: Array) -> Array:
        rows = factors.shape[-2]
        if rows % ROW_TILE == 0:
            return factors
        place = np.arange(rows)
        place = np.where(place >= rows // ROW_TILE * ROW_TILE, place // 2, place)
        return factors[..., place, :]


@bug(43, "e8m0_bias_off_by_one", "decodes e8m0 with a bias of 128", ON_MXFP4, "values")
class BiasOffByOne(BlockScaled):
    def factors_of_a(self, factors: Array) -> Array:
        return to_float64(factors) / 2


@bug(43, "e8m0_nan_as_number", "decodes the NaN of e8m0 as its largest number", ON_MXFP4,
     "nan_spreads")  # fmt: skip
class NanAsNumber(BlockScaled):
    def factors(self, factors: Array) -> Array:
        values = to_float64(factors)
        return np.where(np.isnan(values), 2.0**127, values)


@bug(43, "block_scales_as_exponents", "reads factors in e4m3 as powers of two", ON_NVFP4,
     "scale_factors")  # fmt: skip
class FactorsAsExponents(BlockScaled):
    def factors(self, factors: Array) -> Array:
        mantissa, exponent = np.frexp(to_float64(factors))
        return np.where(mantissa == 0, 0.0, np.exp2(exponent - 1.0))


@bug(43, "block_scales_in_bf16", "keeps f32 factors of blocks in bf16", ON_FP8, "scale_factors")
class BlockFactorsInBf16(BlockScaled):
    def factors(self, factors: Array) -> Array:
        return to_float64(quantize(to_float32(factors), BF16))


@bug(43, "block_scales_in_f16", "keeps factors of blocks in f16, whose range is narrower", ON_MXFP8,
     "scale_factors")  # fmt: skip
class FactorsInF16(BlockScaled):
    def factors(self, factors: Array) -> Array:
        return to_float64(to_float64(factors).astype(np.float16))


@bug(44, "nibbles_swapped", "takes the upper half of a byte for the first number of a pair",
     ON_MXFP4, "values")  # fmt: skip
class SwapsNibbles(BlockScaled):
    """Swaps the numbers of each pair of A along K."""

    def before(self) -> None:
        super().before()
        order = np.arange(self.k) ^ 1
        self.problem.a = self.problem.a[..., np.minimum(order, self.k - 1)]


def _shape(factors: Array) -> tuple[int, int]:
    return factors.shape[-2], factors.shape[-1]
