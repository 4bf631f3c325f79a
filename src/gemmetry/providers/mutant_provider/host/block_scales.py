"""Mutants on the host: factors of blocks that are read, decoded or applied wrongly."""

from __future__ import annotations

import numpy as np

from gemmetry.domain.dtypes import BF16
from gemmetry.numerics.block_scaling import (
    COLUMN_TILE,
    ROW_TILE,
    spread,
    swizzle_factors,
    unswizzle_factors,
)
from gemmetry.numerics.storage import quantize, to_float32, to_float64
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm, batched
from gemmetry.providers.mutant_provider.host.kernels import bug, tricky

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
