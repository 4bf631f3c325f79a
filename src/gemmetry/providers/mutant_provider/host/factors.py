"""alpha, beta and scale factors on the host: orders of operations that are right, and planted bugs.

alpha·A·B + beta·C may be computed as (alpha·A)·B, A·(alpha·B), a sum that begins with beta·C, or
step by step. Each rounds elsewhere, and libraries do all of it.
"""

from __future__ import annotations

import math

import numpy as np

from gemmetry.domain.dtypes import BF16, F16, DType
from gemmetry.numerics.storage import quantize, to_float32
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm, batched


class OrdersFactors(TiledGemm):
    """An epilogue whose factors are attributes, and may be applied somewhere else."""

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
            values = values + dtype(self.beta()) * self.addend(tile, values.dtype)
        return values

    def addend(self, tile: Tile, dtype: np.dtype[np.generic]) -> Array:
        """C as far as the tile covers it."""
        addend = batched(self.problem.tensors["addend"], 3)
        return np.asarray(addend[tile.batch, self.rows(tile), self.columns(tile)].astype(dtype))


# Right ----------------------------------------------------------------------------------------


class FoldsAlphaIntoA(OrdersFactors):
    """(alpha·A)·B."""

    alpha_behind = False

    def load_a(self, tile: Tile, step: int) -> Array:
        return super().load_a(tile, step) * self.load_dtype.type(self.signature.alpha)


class FoldsAlphaIntoB(OrdersFactors):
    """A·(alpha·B)."""

    alpha_behind = False

    def load_b(self, tile: Tile, step: int) -> Array:
        return super().load_b(tile, step) * self.load_dtype.type(self.signature.alpha)


class AlphaPerStep(OrdersFactors):
    """Adds alpha times the product of each step."""

    alpha_behind = False

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        product = super().multiply_add(np.zeros_like(accumulator), a, b)
        return np.asarray(accumulator + product * accumulator.dtype.type(self.signature.alpha))


class BeginsWithAddend(FoldsAlphaIntoA):
    """beta·C + (alpha·A)·B: the accumulator is loaded before the loop along K."""

    addend_behind = False

    def mainloop(self, tile: Tile, steps: range) -> Array:
        self.begin = np.zeros((self.tile_m, self.tile_n), self.accumulator)
        if self.signature.beta != 0:
            addend = self.addend(tile, self.accumulator) * self.accumulator.type(self.beta())
            self.begin[: addend.shape[0], : addend.shape[1]] = addend
        accumulator = self.begin
        for step in steps:
            accumulator = self.multiply_add(
                accumulator, self.load_a(tile, step), self.load_b(tile, step)
            )
        return accumulator


class BeginsWithQuotient(BeginsWithAddend):
    """alpha·((beta/alpha)·C + A·B), and beta·C alone where alpha is zero."""

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


class FoldsScalesIntoOperands(OrdersFactors):
    """Multiplies rows of A and columns of B by their scale factors before the loop along K."""

    def before(self) -> None:
        super().before()
        tensors = self.problem.tensors
        self.problem.a = self.problem.a * batched(tensors["scale_a"], 3)
        self.problem.b = self.problem.b * batched(tensors["scale_b"], 3)


# Wrong ----------------------------------------------------------------------------------------


class AlphaTwice(FoldsAlphaIntoA):
    """Folds alpha into A, and multiplies by it behind the product as well."""

    alpha_behind = True


class AlphaForAddendToo(OrdersFactors):
    """alpha·(A·B + beta·C)."""

    def beta(self) -> float:
        return self.signature.beta * self.signature.alpha


class AlphaAsInteger(OrdersFactors):
    """Takes alpha as an int argument."""

    def alpha(self) -> float:
        return float(math.trunc(self.signature.alpha))


class AlphaWithoutSign(OrdersFactors):
    """Takes the magnitude of alpha where there is no beta."""

    def alpha(self) -> float:
        s = self.signature
        return abs(s.alpha) if s.beta == 0 else s.alpha


class NarrowFactors(OrdersFactors):
    """Rounds alpha to a narrower format, as where scalars have the type of the tensors."""

    format: DType = F16

    def narrow(self, value: float) -> float:
        return float(to_float32(quantize(np.array([value]), self.format))[0])

    def alpha(self) -> float:
        return self.narrow(self.signature.alpha)


class NarrowFactorsBf16(NarrowFactors):
    format = BF16


class NarrowBeta(NarrowFactorsBf16):
    """Rounds beta alone."""

    def alpha(self) -> float:
        return self.signature.alpha

    def beta(self) -> float:
        return self.narrow(self.signature.beta)


class BetaIgnored(OrdersFactors):
    addend_behind = False


class BetaTakenForOne(OrdersFactors):
    """Asks only whether beta is zero."""

    def beta(self) -> float:
        return 1.0


class BetaForProduct(OrdersFactors):
    """beta·(alpha·A·B + C)."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        s, dtype = self.signature, values.dtype.type
        if s.beta == 0:
            return super().scaled(tile, values)
        values = values * dtype(s.alpha) + self.addend(tile, values.dtype)
        return np.asarray(values * dtype(s.beta))


class BetaForResidual(OrdersFactors):
    """Adds C and beta times the residual."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        dtype = values.dtype.type
        values = values * dtype(self.signature.alpha)
        return np.asarray(values + self.addend(tile, values.dtype))

    def fused(self, tile: Tile, values: Array) -> Array:
        residual = batched(self.problem.tensors["residual"], 3)
        residual = residual[tile.batch, self.rows(tile), self.columns(tile)]
        extra = values.dtype.type(self.signature.beta - 1) * residual.astype(values.dtype)
        return np.asarray(super().fused(tile, values) + extra)


class AlphaBehindRelu(OrdersFactors):
    """alpha·relu(A·B): another result where alpha is negative."""

    alpha_behind = False

    def fused(self, tile: Tile, values: Array) -> Array:
        return np.asarray(super().fused(tile, values) * values.dtype.type(self.signature.alpha))


class AlphaBehindBias(AlphaBehindRelu):
    """alpha·(A·B + bias)."""


class AlphaFoldedInInputFormat(OrdersFactors):
    """(alpha·A)·B with alpha·A rounded to the 16 bits of A, as tensor cores want it."""

    alpha_behind = False

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step) * self.load_dtype.type(self.signature.alpha)
        return to_float32(quantize(block, self.signature.lhs))
