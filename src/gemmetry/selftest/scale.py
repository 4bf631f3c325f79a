"""Mutants on the host: shared exponents, fixed point, epsilons, both ends of the range of f16, and
how NaN and infinity spread; with correct kernels that resemble them.

Mutants on the host: alpha, beta and scale factors, in correct and in wrong orders of operations.

alpha·A·B + beta·C may be computed as (alpha·A)·B, as A·(alpha·B), as a sum that starts with beta·C,
or step by step. Each rounds in other places, and libraries do all of these.

Mutants on the host: factors of blocks that are read, decoded or applied wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gemmetry.domain.operation import BF16, F16, F32, DType
from gemmetry.numerics.storage import (
    COLUMN_TILE,
    ROW_TILE,
    smallest_normal,
    spread,
    swizzle_factors,
    to_float32,
    to_float64,
    unswizzle_factors,
)
from gemmetry.selftest.arithmetic import clamped, loading
from gemmetry.selftest.emulator import (
    Array,
    Change,
    Kernels,
    Tile,
    TiledGemm,
    batched,
    given,
    instead,
    padded,
    result,
    through,
)
from gemmetry.selftest.memory import NormalisesRows

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


class FixedPointRows(NormalisesRows):
    """Stores rows of A as 25-bit integers and a factor, as integer units need them."""

    def before(self) -> None:
        super().before()
        self.problem.a = _fixed(self.problem.a, 1.0)


class BalancesColumns(TiledGemm):
    """Right: divides columns of A by powers of two near their largest numbers, and multiplies the
    rows of B by them."""

    def divisors(self, largest: Array) -> Array:
        return self.factors(largest)

    def factors(self, largest: Array) -> Array:
        return _power_of_two(largest)

    def before(self) -> None:
        largest = np.abs(self.problem.a).max(axis=1, keepdims=True)
        self.problem.a = self.problem.a / self.divisors(largest)
        self.problem.b = self.problem.b * np.swapaxes(self.factors(largest), 1, 2)


class EpsilonInDivisor(BalancesColumns):
    """Divides columns of A by their largest number plus 1e-12, and multiplies rows of B by it."""

    def divisors(self, largest: Array) -> Array:
        return np.asarray(largest + largest.dtype.type(EPSILON))

    def factors(self, largest: Array) -> Array:
        return largest


class ScalesRowsGently(NormalisesRows):
    """Right: uses a power of two between 2**-20 and 2**20 for each row, so that nothing
    underflows."""

    def factors_of(self, largest: Array) -> Array:
        return np.asarray(np.clip(_power_of_two(largest), 2.0**-20, 2.0**20), largest.dtype)


class ScaledByLargest(TiledGemm):
    """Right: numbers far below the largest of a tensor are lost, a property of the format."""

    def before(self) -> None:
        self.factors = [_power_of_two(np.abs(x).max()) for x in (self.problem.a, self.problem.b)]
        self.problem.a = self.problem.a / self.factors[0]
        self.problem.b = self.problem.b / self.factors[1]

    def scaled(self, tile: Tile, values: Array) -> Array:
        return super().scaled(tile, values * (self.factors[0] * self.factors[1]))


# f16 at both ends --------------------------------------------------------------------------------


def _flushed(block: Array, least: float) -> Array:
    """Numbers below the least one become zero."""
    return np.where(np.abs(block) < least, block * 0, block)


class FlushesResults(TiledGemm):
    def rounded(self, values: Array) -> Array:
        block = super().rounded(values)
        tiny = np.abs(to_float32(block)) < smallest_normal(self.signature.result)
        return np.where(tiny, block.dtype.type(0), block)


# NaN and infinity --------------------------------------------------------------------------------


class NanSpoilsNeighbours(TiledGemm):
    """Takes a short cut in tiles with NaN, which leaves out their last 16 products along K."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        if np.isnan(a).any() or np.isnan(b).any():
            a, b = a[:, :-16], b[:-16]
        return super().multiply_add(accumulator, a, b)


class ClearsByMultiplying(TiledGemm):
    """Multiplies a workspace of sums by zero, which leaves NaN in it forever."""

    def prepare(self) -> None:
        shape = (self.batch, self.tiles_m * self.tile_m, self.tiles_n * self.tile_n)
        self.workspace = np.zeros(shape, self.accumulator)

    def before(self) -> None:
        self.workspace *= 0

    def epilogue(self, tile: Tile, accumulator: Array) -> None:
        sums = self.workspace[tile.batch, tile.row :, tile.column :][: self.tile_m, : self.tile_n]
        sums += accumulator
        super().epilogue(tile, sums)


class NanByFlag(TiledGemm):
    """Right: rows and columns that contain NaN are flagged instead of multiplied."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        rows, columns = np.isnan(a).any(axis=1), np.isnan(b).any(axis=0)
        total = super().multiply_add(
            accumulator,
            np.nan_to_num(a, posinf=np.inf, neginf=-np.inf),
            np.nan_to_num(b, posinf=np.inf, neginf=-np.inf),
        )
        total[rows] = total[:, columns] = np.nan
        return total


# Right ----------------------------------------------------------------------------------------


class AlphaAhead(TiledGemm):
    """Alpha is not applied in the epilogue, but earlier."""

    alpha_behind = False


class FoldsAlphaIntoA(AlphaAhead):
    """(alpha·A)·B."""

    def load_a(self, tile: Tile, step: int) -> Array:
        return super().load_a(tile, step) * self.load_dtype.type(self.signature.alpha)


class FoldsAlphaIntoB(AlphaAhead):
    """A·(alpha·B)."""

    def load_b(self, tile: Tile, step: int) -> Array:
        return super().load_b(tile, step) * self.load_dtype.type(self.signature.alpha)


class AlphaPerStep(AlphaAhead):
    """Adds alpha times the product of each step."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        product = super().multiply_add(np.zeros_like(accumulator), a, b)
        return np.asarray(accumulator + product * accumulator.dtype.type(self.signature.alpha))


class BeginsWithAddend(FoldsAlphaIntoA):
    """beta·C + (alpha·A)·B: the accumulator is initialised before the loop along K."""

    addend_behind = False

    def mainloop(self, tile: Tile, steps: range) -> Array:
        begin = self.zeros()
        if self.signature.beta != 0:
            addend = self.tensor("addend", tile, self.accumulator)
            begin = padded(addend * self.accumulator.type(self.beta()), begin.shape)
        return self.added(begin, tile, steps)


class BeginsWithQuotient(BeginsWithAddend):
    """alpha·((beta/alpha)·C + A·B), and only beta·C if alpha is zero."""

    alpha_behind = True
    load_a = TiledGemm.load_a

    def beta(self) -> float:
        s = self.signature
        return s.beta / s.alpha if s.alpha else s.beta

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        if self.signature.alpha == 0:
            return accumulator
        return super().multiply_add(accumulator, a, b)

    def alpha(self) -> float:
        return self.signature.alpha or 1.0


class FoldsScalesIntoOperands(TiledGemm):
    def before(self) -> None:
        tensors = self.problem.tensors
        self.problem.a = self.problem.a * batched(tensors["scale_a"])
        self.problem.b = self.problem.b * batched(tensors["scale_b"])
        tensors |= {role: np.ones_like(tensors[role]) for role in _ROLES}


# Wrong ----------------------------------------------------------------------------------------


def _narrow(value: float, dtype: DType) -> float:
    """A factor in a narrower format, as happens if scalars have the type of the tensors."""
    return float(through(np.array([value]), dtype)[0])


class BetaForProduct(TiledGemm):
    """beta·(alpha·A·B + C)."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        s, dtype = self.signature, values.dtype.type
        if s.beta == 0:
            return super().scaled(tile, values)
        values = values * dtype(s.alpha) + self.tensor("addend", tile, values.dtype)
        return np.asarray(values * dtype(s.beta))


class BetaForResidual(TiledGemm):
    def scaled(self, tile: Tile, values: Array) -> Array:
        values = values * values.dtype.type(self.signature.alpha)
        return np.asarray(values + self.tensor("addend", tile, values.dtype))

    def fused(self, tile: Tile, values: Array) -> Array:
        residual = self.tensor("residual", tile, values.dtype)
        extra = values.dtype.type(self.signature.beta - 1) * residual
        return np.asarray(super().fused(tile, values) + extra)


class AlphaBehindRelu(AlphaAhead):
    """alpha·relu(A·B), which differs if alpha is negative."""

    def fused(self, tile: Tile, values: Array) -> Array:
        return np.asarray(super().fused(tile, values) * values.dtype.type(self.signature.alpha))


class BlockScaled(TiledGemm):
    """Multiplies elements by the factors of their blocks as they are loaded."""

    def before(self) -> None:
        blocks = self.signature.blocks
        assert blocks is not None
        tensors, problem = self.problem.tensors, self.problem
        factors_b = np.swapaxes(batched(tensors["scale_b"]), -1, -2)
        of_a = self.factors_of_a(batched(tensors["scale_a"]))
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


class ScalesSums(TiledGemm):
    """Multiplies the sum of each block by the product of its two factors, as Hopper's kernels do
    outside of the matrix instruction."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        blocks, tensors = self.signature.blocks, self.problem.tensors
        assert blocks is not None
        scale_a, scale_b = (batched(tensors[role])[tile.batch] for role in _ROLES)
        rows = np.arange(self.m)[self.rows(tile)] // blocks.rows
        columns = np.arange(self.n)[self.columns(tile)] // blocks.columns
        total = self.zeros()
        for step in steps:
            product = self.product(self.load_a(tile, step), self.load_b(tile, step))
            at = step * self.tile_k // blocks.depth
            factors = scale_a[rows, at][:, np.newaxis] * scale_b[at, columns]
            total[: rows.size, : columns.size] += product[: rows.size, : columns.size] * factors
        return total


_ROLES = ("scale_a", "scale_b")


def _through_layout(factors: Array) -> Array:
    """The factors through the layout of 128 × 4 tiles, as a kernel reads it that transposes it."""
    rows, columns = factors.shape
    across = -(-columns // COLUMN_TILE)
    misread = swizzle_factors(factors).reshape(-1, across, 4, 32, COLUMN_TILE).swapaxes(2, 3)
    return unswizzle_factors(np.ascontiguousarray(misread).reshape(-1), (rows, columns))


class LayoutUnpadded(BlockScaled):
    """The second tile of 192 rows begins where 64 rows of the first tile's columns end."""

    def factors_of_a(self, factors: Array) -> Array:
        rows = factors.shape[-2]
        if rows % ROW_TILE == 0:
            return factors
        place = np.arange(rows)
        place = np.where(place >= rows // ROW_TILE * ROW_TILE, place // 2, place)
        return factors[..., place, :]


def _exponents(factors: Array) -> Array:
    mantissa, exponent = np.frexp(to_float64(factors))
    return np.where(mantissa == 0, 0.0, np.exp2(exponent - 1.0))


class SwapsNibbles(BlockScaled):
    """Swaps the numbers of each pair of A along K."""

    def before(self) -> None:
        super().before()
        self.problem.a = self.problem.a[..., np.minimum(np.arange(self.k) ^ 1, self.k - 1)]


def factored(stage: str, change: Change) -> type[TiledGemm]:
    """A class that changes the factors of blocks."""
    return instead(stage, lambda g, factors: change(factors), BlockScaled)


def _clean(g: TiledGemm, role: str, found: Callable[[Array], Array], value: float) -> None:
    values = g.problem.buffers[role]
    values[found(to_float64(values))] = value


KERNELS: Kernels = {
    # The numbers of one row and step along K share an exponent, and keep 24 bits
    # below it.
    "shares_exponents": result(
        "load_a",
        lambda g, block, tile, step: _fixed(
            block, _power_of_two(np.abs(block).max(axis=1, keepdims=True))
        ),
    ),
    # The same for columns of B.
    "shares_exponents_of_b": result(
        "load_b",
        lambda g, block, tile, step: _fixed(
            block, _power_of_two(np.abs(block).max(axis=0, keepdims=True))
        ),
    ),
    # All inputs become multiples of 2**-40.
    "fixed_point": loading(lambda block: _fixed(block, 2.0 ** (-16))),
    "ends_at_epsilon": loading(lambda x: _flushed(x, EPSILON)),
    # The threshold is far above subnormal numbers.
    "flushes_small_bf16": loading(lambda x: _flushed(x, 2.0**-60)),
    # Treats f16 numbers below 2^-14 as zero, although every f16 instruction respects them.
    "flushes_inputs": loading(lambda x: _flushed(x, smallest_normal(F16))),
    # Subnormal inputs and results become zero, as with CUDA's ``-ftz=true``.
    "flushes_subnormals": loading(lambda x: _flushed(x, smallest_normal(F32)), FlushesResults),
    # Stores 65504 where the result is out of range, and not itself infinity.
    "saturates_f16": given(
        "rounded",
        lambda g, values: np.where(np.isinf(values), values, clamped(values, g.signature.result)),
    ),
    # Stores +infinity for every result that is out of range, whatever its sign.
    "overflows_upwards": result(
        "rounded", lambda g, block, values: np.where(np.isinf(to_float32(block)), np.inf, block)
    ),
    # Clamps numbers to 2**30, far beyond activations; NaN is unchanged.
    "clamps_inputs": loading(
        lambda block: np.where(np.isinf(block), block, np.clip(block, -(2.0**30), 2.0**30))
    ),
    # The squares overflow and underflow before their roots do.
    "squares_on_the_way": loading(
        lambda block: np.copysign(np.sqrt(np.square(block.astype(np.float32))), block)
    ),
    # Infinity in the inputs becomes +infinity, whatever it is multiplied by.
    "infinity_without_sign": given(
        "store", lambda g, tile, block: np.where(np.isinf(block), np.abs(block), block)
    ),
    # alpha·(A·B + beta·C).
    "alpha_for_addend_too": result("beta", lambda g, beta: beta * g.signature.alpha),
    # Distinguishes only whether beta is zero.
    "beta_taken_for_one": instead("beta", lambda g: 1.0),
    # Takes alpha as an integer argument.
    "alpha_as_integer": result("alpha", lambda g, alpha: float(math.trunc(alpha))),
    "alpha_without_sign": result(
        "alpha", lambda g, alpha: abs(alpha) if g.signature.beta == 0 else alpha
    ),
    "alpha_in_f16": result("alpha", lambda g, alpha: _narrow(alpha, F16)),
    "alpha_in_bf16": result("alpha", lambda g, alpha: _narrow(alpha, BF16)),
    "beta_in_bf16": result("beta", lambda g, beta: _narrow(beta, BF16)),
    # (alpha·A)·B with alpha·A rounded to the 16 bits of A, as tensor cores require.
    "alpha_folded_in_input_format": result(
        "load_a", lambda g, block, *_: through(block, g.signature.lhs), FoldsAlphaIntoA
    ),
    "layout_transposed": factored("factors_of_a", lambda f: np.stack([*map(_through_layout, f)])),
    "factors_as_exponents": factored("factors", _exponents),
    "next_block": factored("factors_of_a", lambda f: np.roll(f, -1, axis=-1)),
    "repeats_last_block": factored(
        "factors_of_b", lambda f: np.append(f[..., :-1], f[..., -2:-1], axis=-1)
    ),
    "drops_last_factor": factored(
        "factors_of_a", lambda f: np.append(f[..., :-1], np.ones_like(f[..., -1:]), axis=-1)
    ),
    "bias_off_by_one": factored("factors_of_a", lambda f: to_float64(f) / 2),
    "nan_as_number": factored("factors", lambda f: np.nan_to_num(to_float64(f), nan=2.0**127)),
    "next_columns": factored("factors_of_b", lambda f: np.roll(f, -1, axis=-2)),
    "drops_factors": factored("factors_of_b", np.ones_like),
    "block_factors_in_bf16": factored("factors", lambda f: through(to_float32(f), BF16)),
    "factors_in_f16": factored("factors", lambda f: through(to_float64(f), F16)),
    # Multiplies correctly, and then replaces NaN in A by zero.
    "cleans_inputs": instead("after", lambda g: _clean(g, "lhs", np.isnan, 0)),
    # Multiplies correctly, and then replaces infinity in B by the largest number.
    "cleans_infinity": instead(
        "after", lambda g: _clean(g, "rhs", np.isinf, g.signature.rhs.maximum)
    ),
}
