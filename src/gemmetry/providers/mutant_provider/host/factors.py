"""Mutants on the host: alpha, beta and scale factors, in correct and in wrong orders of operations.

alpha·A·B + beta·C may be computed as (alpha·A)·B, as A·(alpha·B), as a sum that starts with beta·C,
or step by step. Each rounds in other places, and libraries do all of these.
"""

from __future__ import annotations

import math

import numpy as np

from gemmetry.domain.dtypes import BF16, F16, DType
from gemmetry.numerics.storage import quantize, to_float32
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm, batched
from gemmetry.providers.mutant_provider.host.kernels import (
    ON_BOTH,
    ON_F16,
    ON_F32,
    ON_ROW_SCALES,
    bug,
    tricky,
)


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
