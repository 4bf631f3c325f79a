"""Unseen mutants: factors, shared exponents and intermediate formats that lose significant bits."""

from __future__ import annotations

import numpy as np

from gemmetry.domain.dtypes import F16
from gemmetry.numerics.storage import quantize, smallest_normal, to_float32
from gemmetry.providers.mutant_provider.host.arithmetic import RoundsInputs
from gemmetry.providers.mutant_provider.host.edges import NormalisesRows
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm
from gemmetry.providers.mutant_provider.unseen.kernels import (
    ON_BATCH,
    ON_BF16,
    ON_F16,
    ON_F32,
    ON_FACTORS,
    ON_ROW_SCALES,
    bug,
)

_S16_BITS = 15
_FIXED_POINT_BITS = 23
_EPSILON = 1e-8


def _on_grid(values: Array, largest: Array, bits: int) -> Array:
    """`values` rounded to multiples of 2^-bits of the power of two above `largest`; unchanged where
    that is zero or not finite."""
    is_usual = np.isfinite(largest) & (largest > 0)
    exponents = np.frexp(np.where(is_usual, largest, 1))[1]
    unit = np.exp2(exponents - np.float64(bits))
    return np.where(is_usual, np.rint(values / unit) * unit, values).astype(values.dtype)


@bug(1, "shared_exponents",
     "loses bits of small numbers in A that share an exponent with a large one",
     ON_F16)  # fmt: skip
class SharesExponentsOfA(TiledGemm):
    """Stores A as s16 numbers that share an exponent within a row and step (32 of them)."""

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step)
        return _on_grid(block, np.abs(block).max(axis=1, keepdims=True), _S16_BITS)


@bug(2, "fixed_point", "loses bits of rows of A that are small compared with the rest of A",
     ON_BF16)  # fmt: skip
class FixedPointOfMatrix(TiledGemm):
    """Stores A in fixed point, 23 bits below the largest number of the whole matrix."""

    def before(self) -> None:
        super().before()
        a = self.problem.a
        self.problem.a = _on_grid(a, np.abs(a).max(axis=(1, 2), keepdims=True), _FIXED_POINT_BITS)


@bug(3, "epsilon_added", "returns results that are too small, or zero, for rows of A around 1e-8",
     ON_F32)  # fmt: skip
class AddsEpsilon(NormalisesRows):
    """Divides rows of A by their largest number plus 1e-8, and multiplies the sums by the largest
    number."""

    def before(self) -> None:
        super().before()
        self.factors = self.factors - np.float32(_EPSILON)

    def factors_of(self, largest: Array) -> Array:
        usual = np.where(np.isfinite(largest), largest, largest.dtype.type(1))
        return np.asarray(usual + largest.dtype.type(_EPSILON))


@bug(4, "scale_product_in_f16", "stores products of scale factors in f16", ON_ROW_SCALES)
class ScaleProductInF16(TiledGemm):
    """Stores the product of a row's and a column's scale factor in f16."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        product = (self.scale_a(tile) * self.scale_b(tile)).astype(np.float16)
        return np.asarray(values * product.astype(values.dtype))


@bug(5, "scales_of_first_batch", "uses the scale factors of the first B for all of a batch",
     f"{ON_BATCH}_e4m3t_e4m3n_bf16t_scalerow")  # fmt: skip
class ScalesOfFirstBatch(TiledGemm):
    """Uses the scale factors of the first matrix of a batch for all of them."""

    def scale_b(self, tile: Tile) -> Array:
        return super().scale_b(Tile(tile.number, 0, tile.row, tile.column))


@bug(6, "alpha_behind_bias", "multiplies the bias by alpha",
     "matmul_128x64x128_f32t_f32t_f32t_alpha0p5_bias")  # fmt: skip
class MultipliesBiasByAlpha(TiledGemm):
    """alpha · (A·B + bias), although the operation is alpha · A·B + bias."""

    def before(self) -> None:
        super().before()
        tensors = self.problem.tensors
        tensors["bias"] = tensors["bias"].astype(np.float32) * np.float32(self.signature.alpha)


@bug(7, "rounds_before_addend", "rounds the product before it adds beta · C",
     "matmul_128x128x128_bf16t_bf16n_bf16t_beta1")  # fmt: skip
class RoundsBeforeAddend(TiledGemm):
    """Rounds alpha · A·B to the result's format before it adds beta · C, as two kernels would."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        s = self.signature
        product = to_float32(quantize(values * np.float32(s.alpha), s.result))
        if s.beta == 0:
            return product
        addend = self.problem.tensors["addend"][self.rows(tile), self.columns(tile)]
        return np.asarray(product + np.float32(s.beta) * addend.astype(np.float32))


@bug(8, "alpha_folded", "rounds alpha · A to f16, which may overflow", f"{ON_F16}_alpha0p3")
class FoldsAlpha(TiledGemm):
    """Multiplies A by alpha when it loads it, and rounds to A's format."""

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step) * np.float32(self.signature.alpha)
        return to_float32(quantize(block, self.signature.lhs))

    def scaled(self, tile: Tile, values: Array) -> Array:
        s = self.signature
        if s.beta == 0:
            return values
        addend = self.problem.tensors["addend"][self.rows(tile), self.columns(tile)]
        return np.asarray(values + np.float32(s.beta) * addend.astype(np.float32))


@bug(9, "beta_as_flag", "adds C instead of beta · C if beta is not zero", f"{ON_F32}_beta1")
class BetaAsFlag(TiledGemm):
    """Adds C unscaled if beta is not zero."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        s = self.signature
        values = values * values.dtype.type(s.alpha)
        if s.beta == 0:
            return values
        addend = self.problem.tensors["addend"][self.rows(tile), self.columns(tile)]
        return np.asarray(values + addend.astype(values.dtype))


@bug(10, "beta_divided_by_alpha", "divides beta by alpha, which fails if alpha is zero", ON_FACTORS)
class DividesBetaByAlpha(TiledGemm):
    """alpha · (A·B + beta / alpha · C): NaN if alpha is zero."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        s, dtype = self.signature, values.dtype.type
        if s.beta != 0:
            addend = self.problem.tensors["addend"][self.rows(tile), self.columns(tile)]
            values = values + dtype(s.beta) / dtype(s.alpha) * addend.astype(dtype)
        return np.asarray(values * dtype(s.alpha))


@bug(11, "f16_subnormals_flushed", "treats subnormal f16 inputs as zero", ON_F16)
class FlushesF16(RoundsInputs):
    """Treats f16 numbers below 2^-14 as zero."""

    def rounded_input(self, block: Array) -> Array:
        return np.where(np.abs(block) < np.float32(smallest_normal(F16)), np.float32(0), block)
