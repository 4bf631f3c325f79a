"""Mutants on the host: shared exponents, fixed point, epsilons, both ends of the range of f16, and
how NaN and infinity spread; with correct kernels that resemble them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmetry.devices.host import HostBuffer
from gemmetry.domain.record import Trait
from gemmetry.numerics.storage import smallest_normal, to_float32, to_float64
from gemmetry.providers.mutant_provider.host.arithmetic import RoundsInputs
from gemmetry.providers.mutant_provider.host.edges import NormalisesRows
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm
from gemmetry.providers.mutant_provider.host.kernels import (
    ON_BF16,
    ON_DEEP,
    ON_F16,
    ON_F32,
    bug,
    tricky,
)

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
