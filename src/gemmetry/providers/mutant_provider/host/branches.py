"""Mutants on the host: kernels that take a wrong path for some sizes, factors or contents, and for
all others the right one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gemmetry.domain.operation import Conv2dShape, EpilogueStep
from gemmetry.domain.record import Trait
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.storage import to_float32
from gemmetry.providers.mutant_provider.host.emulator import (
    ON_BF16,
    ON_BOTH,
    ON_F16,
    ON_F32,
    Array,
    Tile,
    TiledGemm,
    bug,
    tricky,
)
from gemmetry.providers.mutant_provider.host.scale import ON_NVFP4, BlockScaled

_ON_BATCH = "batch_matmul_2x64x64x64_f32t_f32t_f32t"
_ON_CONVOLUTION = "conv2d_2x12x12x8_3x3x32_stride1x1_pad1x1_f32nhwc_f32hwcf_f32nhwc"
_TINY, _HUGE = 1e-30, 1e30
_LONG_K = 4000
_SPLIT_K = 512
_LARGE = 2**18
_SAMPLE = 16


# Sizes -------------------------------------------------------------------------------------------


class OnSomeSizes(TiledGemm, ABC):
    """Changes A, B or a block of the result where :meth:`is_there` is true of the sizes."""

    @abstractmethod
    def is_there(self) -> bool:
        """Whether the sizes are those of the bug."""

    def before(self) -> None:
        super().before()
        if self.is_there():
            self.spoil()

    def spoil(self) -> None:
        """Leave out the last product."""
        self.problem.a = self.problem.a.copy()
        self.problem.a[..., -1] = 0


@bug(87, "remainder_31_of_k", "leaves out the last product if K leaves 31 of 32", ON_F32,
     "many_shapes")  # fmt: skip
class Remainder31(OnSomeSizes):
    def is_there(self) -> bool:
        return self.k % 32 == 31


@bug(87, "remainder_13_of_m", "exchanges the last two rows if M leaves 13 of 16", ON_BF16,
     "many_shapes")  # fmt: skip
class Remainder13(OnSomeSizes):
    def is_there(self) -> bool:
        return self.m % 16 == 13

    def spoil(self) -> None:
        order = np.arange(self.m)
        order[[-1, -2]] = order[[-2, -1]]
        self.problem.a = self.problem.a[:, order]


@bug(87, "split_at_multiples_of_512", "leaves out the second half if K is a multiple of 512",
     ON_F32, "many_shapes")  # fmt: skip
class SplitsAtMultiples(OnSomeSizes):
    def is_there(self) -> bool:
        return self.k % _SPLIT_K == 0

    def spoil(self) -> None:
        self.problem.a = self.problem.a.copy()
        self.problem.a[..., self.k // 2 :] = 0


@bug(87, "five_columns", "has a path for five columns that computes four", ON_F32, "many_shapes")
class FiveColumns(OnSomeSizes):
    def is_there(self) -> bool:
        return self.n == 5

    def spoil(self) -> None:
        self.problem.b = self.problem.b.copy()
        self.problem.b[..., 4] = 0


@bug(87, "three_rows_in_f16", "rounds A to f16 if M is 3 and N large", ON_F32, "ends_of_formats")
class ThreeRowsInF16(OnSomeSizes):
    def is_there(self) -> bool:
        return self.m == 3 and self.n > 32

    def spoil(self) -> None:
        self.problem.a = to_float32(self.problem.a.astype(np.float16))


@bug(87, "corner_of_two_tails", "leaves out the last row of a tile with tails along M and K",
     ON_BF16, "tail_shapes")  # fmt: skip
class CornerOfTwoTails(OnSomeSizes):
    def is_there(self) -> bool:
        return bool(self.m % self.tile_m and self.k % self.tile_k)

    def spoil(self) -> None:
        self.problem.a = self.problem.a.copy()
        self.problem.a[:, -1] = 0


@bug(87, "cube_transposed", "reads B as column-major if M, N and K are equal",
     "matmul_128x64x96_f32t_f32t_f32t", "many_shapes")  # fmt: skip
class CubeTransposed(OnSomeSizes):
    def is_there(self) -> bool:
        return self.m == self.n == self.k

    def spoil(self) -> None:
        self.problem.b = np.swapaxes(self.problem.b, -1, -2)


@bug(87, "square_b_transposed", "reads B as column-major if N and K are equal",
     "matmul_128x64x96_f32t_f32t_f32t", "many_shapes")  # fmt: skip
class SquareBTransposed(CubeTransposed):
    def is_there(self) -> bool:
        return self.n == self.k


@bug(87, "square_result_mirrored", "computes half of the result if M and N are equal",
     "matmul_128x64x96_f32t_f32t_f32t", "many_shapes")  # fmt: skip
class SquareResultMirrored(TiledGemm):
    """Takes A·Aᵀ for granted where the result is square."""

    def after(self) -> None:
        super().after()
        if self.m == self.n:
            c = self.problem.c
            for one in c:
                one[...] = np.tril(one) + np.tril(one, -1).T


@bug(87, "elements_in_18_bits", "counts elements of the result in 18 bits", ON_F32, "many_shapes")
class ElementsIn18Bits(TiledGemm):
    def store(self, tile: Tile, block: Array) -> None:
        if tile.row * self.n + tile.column < _LARGE:
            super().store(tile, block)


@bug(87, "three_matrices", "computes at most three matrices of a batch", _ON_BATCH, "many_shapes")
class ThreeMatrices(TiledGemm):
    def store(self, tile: Tile, block: Array) -> None:
        if tile.batch < 3:
            super().store(tile, block)


class TiledConvolution(TiledGemm):
    """A convolution as the product of gathered pixels with the filter."""

    def before(self) -> None:
        super().before()
        shape = self.operation.shape
        assert isinstance(shape, Conv2dShape)
        image = self.problem.a.reshape(shape.n, shape.h, shape.w, shape.c)
        rows, columns = self.places(shape)
        there_h, there_w = (rows >= 0) & (rows < shape.h), (columns >= 0) & (columns < shape.w)
        pixels = image[:, np.clip(rows, 0, shape.h - 1)][
            :, :, :, np.clip(columns, 0, shape.w - 1)
        ]  # (n, p, r, q, s, c)
        pixels = pixels * (there_h[..., np.newaxis, np.newaxis] & there_w)[..., np.newaxis]
        self.problem.a = np.ascontiguousarray(pixels.swapaxes(2, 3)).reshape(1, self.m, self.k)
        self.problem.b = self.problem.b.reshape(1, self.k, self.n)
        self.problem.c = self.problem.c.reshape(1, self.m, self.n)

    def places(self, shape: Conv2dShape) -> tuple[Array, Array]:
        """(p, r) rows and (q, s) columns of the image; those outside of it are zero."""
        return (
            np.arange(shape.p)[:, np.newaxis] * shape.stride_h - shape.pad_h + np.arange(shape.r),
            np.arange(shape.q)[:, np.newaxis] * shape.stride_w - shape.pad_w + np.arange(shape.s),
        )


@bug(87, "one_stride", "uses the stride along the height for the width", _ON_CONVOLUTION,
     "many_shapes")  # fmt: skip
class OneStride(TiledConvolution):
    def places(self, shape: Conv2dShape) -> tuple[Array, Array]:
        rows, columns = super().places(shape)
        return rows, columns + np.arange(shape.q)[:, np.newaxis] * (shape.stride_h - shape.stride_w)


@bug(87, "even_filters_shifted", "shifts filters of an even height by a row", _ON_CONVOLUTION,
     "many_shapes")  # fmt: skip
class EvenFiltersShifted(TiledConvolution):
    def places(self, shape: Conv2dShape) -> tuple[Array, Array]:
        rows, columns = super().places(shape)
        return rows + (shape.r % 2 == 0), columns


@bug(87, "pointwise_without_stride", "ignores strides if the filter is one pixel", _ON_CONVOLUTION,
     "many_shapes")  # fmt: skip
class PointwiseWithoutStride(TiledConvolution):
    """A filter of one pixel is a plain product of all pixels."""

    def places(self, shape: Conv2dShape) -> tuple[Array, Array]:
        if shape.r == shape.s == 1:
            shape = shape._replace(stride_h=1, stride_w=1, h=shape.p, w=shape.q, pad_h=0, pad_w=0)
        return super().places(shape)


# What is kept from an earlier shape --------------------------------------------------------------


class Plans(TiledGemm, ABC):
    """Keeps a plan for the process, found again by a part of the sizes."""

    kept: ClassVar[dict[object, int]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.kept = {}

    @abstractmethod
    def key(self) -> object:
        """What finds a plan again among those of the same formats."""

    @abstractmethod
    def planned(self) -> int:
        """The plan for the sizes at hand."""

    def before(self) -> None:
        super().before()
        self.plan = self.kept.setdefault((self.signature, self.key()), self.planned())


@bug(88, "plan_by_m_and_n", "keeps the number of products by M and N", ON_F32, "many_shapes")
class PlanByResult(Plans):
    def key(self) -> object:
        return self.m, self.n

    def planned(self) -> int:
        return self.k

    def before(self) -> None:
        super().before()
        self.problem.a = self.problem.a.copy()
        self.problem.a[..., self.plan :] = 0


@bug(88, "plan_by_m_and_k", "keeps the number of columns by M and K", ON_BF16, "many_shapes")
class PlanByLeft(Plans):
    def key(self) -> object:
        return self.m, self.k

    def planned(self) -> int:
        return self.n

    def before(self) -> None:
        super().before()
        self.problem.b = self.problem.b.copy()
        self.problem.b[..., self.plan :] = 0


@bug(88, "pitch_by_size", "keeps the length of B's rows by the number of its elements", ON_F32,
     "many_shapes")  # fmt: skip
class PitchBySize(Plans):
    def key(self) -> object:
        return self.n * self.k

    def planned(self) -> int:
        return self.n

    def before(self) -> None:
        super().before()
        if self.plan != self.n:
            flat = self.problem.b.reshape(self.batch, -1)
            places = np.arange(self.k)[:, np.newaxis] * self.plan + np.arange(self.n)
            self.problem.b = flat[:, places % flat.shape[1]]


# Exceptions and forms ----------------------------------------------------------------------------


@bug(89, "shapes_do_not_match", "adds parts of unequal sizes if K is odd", ON_F32, "tail_shapes")
class PartsDoNotMatch(TiledGemm):
    """numpy raises a ValueError, which is not the kernel's own."""

    def before(self) -> None:
        super().before()
        half = self.k // 2
        self.problem.a[..., :half] + self.problem.a[..., half:]


@bug(89, "uneven_parts", "splits N into equal parts, which numpy refuses for others", ON_BF16,
     "tail_shapes")  # fmt: skip
class UnevenParts(TiledGemm):
    def before(self) -> None:
        super().before()
        np.split(self.problem.b, max(1, self.n // 16), axis=-1)


@bug(89, "reshapes_tails", "takes rows in groups of eight, which numpy refuses for others", ON_F32,
     "tail_shapes")  # fmt: skip
class ReshapesTails(TiledGemm):
    def before(self) -> None:
        super().before()
        self.problem.a.reshape(self.batch, -1, 8, self.k)


class ReturnsOther(TiledGemm, ABC):
    """Returns something else than C for some shapes."""

    writes_output = False

    @abstractmethod
    def other(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        """What is returned; C where the shape is none of those."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        return self.other(inputs, super().launch(inputs, output.copy()))


@bug(90, "wide_result_for_odd_sizes", "returns float64 if N is odd", ON_F32, "tail_shapes")
class WideForOdd(ReturnsOther):
    def other(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        return output.astype(np.float64) if self.n % 2 else output


@bug(90, "nothing_for_one_row", "returns None if M is 1", ON_F32, "tail_shapes")
class NothingForOneRow(ReturnsOther):
    def other(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        return None if self.m == 1 else output


@bug(90, "a_row_dropped", "returns a vector if N is 1", ON_F32, "tail_shapes")
class VectorForOneColumn(ReturnsOther):
    def other(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        return output[..., 0] if self.n == 1 else output


@bug(90, "input_for_the_identity", "returns A itself if B is the identity", ON_F32, "structures")
class InputForIdentity(ReturnsOther):
    def other(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        b = self.problem.b[0]
        return inputs[0] if self.n == self.k and np.array_equal(b, np.eye(self.k)) else output


# Ends of formats ---------------------------------------------------------------------------------


@bug(91, "results_below_1e30", "treats results below 1e-30 as zero", ON_F32, "ends_of_formats")
class TinyResults(TiledGemm):
    def rounded(self, values: Array) -> Array:
        return super().rounded(np.where(np.abs(values) < _TINY, 0, values))


@bug(91, "results_above_1e30", "ends results at 1e30", ON_BF16, "ends_of_formats")
class HugeResults(TiledGemm):
    def rounded(self, values: Array) -> Array:
        kept = np.isfinite(values) & (np.abs(values) > _HUGE)
        return super().rounded(np.where(kept, np.copysign(_HUGE, values), values))


@bug(91, "subnormal_results_truncated", "truncates f16 results below the smallest normal number",
     ON_F16, "ends_of_formats")  # fmt: skip
class TruncatesSubnormals(TiledGemm):
    def rounded(self, values: Array) -> Array:
        steps = np.trunc(values * np.float32(2.0**24)) * np.float32(2.0**-24)
        return super().rounded(np.where(np.abs(values) < 2.0**-14, steps, values))


@bug(91, "fp8_results_flushed", "flushes e4m3 results below the smallest normal number",
     "matmul_64x64x128_e4m3t_e4m3n_e4m3t", "ends_of_formats")  # fmt: skip
class FlushesFp8(TiledGemm):
    def rounded(self, values: Array) -> Array:
        return super().rounded(np.where(np.abs(values) < 2.0**-6, 0, values))


@bug(91, "long_sums_in_f16", "stores partial sums in f16 if K is more than 4000", ON_F32,
     "ends_of_formats")  # fmt: skip
class LongSumsInF16(TiledGemm):
    def mainloop(self, tile: Tile, steps: range) -> Array:
        total = super().mainloop(tile, steps)
        return to_float32(total.astype(np.float16)) if self.k > _LONG_K else total


@bug(91, "small_block_factors", "treats subnormal factors of blocks as zero", ON_NVFP4,
     "ends_of_formats")  # fmt: skip
class SmallBlockFactors(BlockScaled):
    def factors(self, factors: Array) -> Array:
        wide = to_float32(factors)
        return np.where(wide < 2.0**-6, np.float32(0), wide)


# Special numbers ---------------------------------------------------------------------------------


@bug(92, "bias_cleaned", "treats NaN in the bias as zero", f"{ON_F32}_bias", "special_numbers")
class CleansBias(TiledGemm):
    def before(self) -> None:
        super().before()
        for role in ("bias", "addend"):
            if role in self.problem.tensors:
                self.problem.tensors[role] = np.nan_to_num(
                    self.problem.tensors[role], nan=0, posinf=np.inf, neginf=-np.inf
                )


@bug(92, "addend_cleaned", "treats NaN in C as zero", f"{ON_F32}_beta1", "special_numbers")
class CleansAddend(CleansBias):
    pass


@bug(92, "factors_cleaned", "treats an infinite scale factor as the largest number",
     "matmul_64x64x128_e4m3t_e4m3n_bf16t_scalerow", "special_numbers")  # fmt: skip
class CleansFactors(TiledGemm):
    def scale_b(self, tile: Tile) -> Array:
        return np.clip(super().scale_b(tile), -(2.0**40), 2.0**40).astype(np.float32)


@bug(92, "nan_rounded_up", "rounds to bf16 by adding half a unit, which overflows NaN to zero",
     "matmul_64x64x64_f32t_f32t_bf16t", "special_numbers")  # fmt: skip
class RoundsNan(TiledGemm):
    """Adds 0x7FFF and the last bit, as if every pattern were a number."""

    def rounded(self, values: Array) -> Array:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        last = (bits >> np.uint32(16)) & np.uint32(1)
        short = ((bits + np.uint32(0x7FFF) + last) >> np.uint32(16)).astype(np.uint16)
        return short.view(super().rounded(values[:1]).dtype)


@bug(92, "nan_lost_at_remainder", "swallows NaN at every eighth place along K", ON_F32,
     "special_numbers")  # fmt: skip
class LosesNanAtRemainder(TiledGemm):
    def before(self) -> None:
        super().before()
        self.problem.a = self.problem.a.copy()
        part = self.problem.a[..., 5::8]
        part[...] = np.nan_to_num(part, nan=0, posinf=np.inf, neginf=-np.inf)


# Factors -----------------------------------------------------------------------------------------


@bug(93, "minus_one_forgotten", "takes alpha of -1 for 1", ON_BOTH, "alpha_beta")
class ForgetsMinusOne(TiledGemm):
    def scaled(self, tile: Tile, values: Array) -> Array:
        return super().scaled(tile, -values if self.signature.alpha == -1 else values)


@bug(93, "beta_of_minus_one", "adds C if beta is -1 and alpha is 1", ON_BOTH, "alpha_beta")
class AddsForMinusOne(TiledGemm):
    def scaled(self, tile: Tile, values: Array) -> Array:
        result = super().scaled(tile, values)
        if (self.signature.alpha, self.signature.beta) == (1, -1):
            result = result + 2 * self.tensor("addend", tile, values.dtype)
        return result


# Structure that is guessed -----------------------------------------------------------------------


class Guesses(TiledGemm, ABC):
    """Looks at a few elements, and trusts that the rest is alike."""

    def before(self) -> None:
        super().before()
        self.problem.a, self.problem.b = self.problem.a.copy(), self.problem.b.copy()
        for a, b in zip(self.problem.a, self.problem.b, strict=True):
            self.guess(a, b)

    @abstractmethod
    def guess(self, a: Array, b: Array) -> None:
        """Change A and B, of one batch, where the guess is made."""


@bug(94, "identity_by_diagonal", "takes B for the identity if its diagonal is one", ON_F32,
     "structures")  # fmt: skip
class IdentityByDiagonal(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(b) == b.shape[1] and (np.diag(b) == 1).all():
            b[...] = np.eye(len(b))


@bug(94, "zero_by_sample", "takes A for zero if every sixteenth element of its diagonal is",
     ON_BF16, "structures")  # fmt: skip
class ZeroBySample(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if not np.diag(a)[::_SAMPLE].any():
            a[...] = 0


@bug(94, "symmetric_by_edges", "takes A for symmetric if its edges are", ON_F32, "structures")
class SymmetricByEdges(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(a) == a.shape[1] and (a[0] == a[:, 0]).all() and (a[-1] == a[:, -1]).all():
            a[...] = np.tril(a) + np.tril(a, -1).T


@bug(94, "equal_rows_by_two", "takes all rows of A for equal if the first two are", ON_F32,
     "structures")  # fmt: skip
class EqualRowsByTwo(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(a) > 2 and (a[0] == a[1]).all():
            a[...] = a[0]


@bug(94, "constant_columns_by_ends", "takes columns of B for constant if their ends are equal",
     ON_F32, "structures")  # fmt: skip
class ConstantColumnsByEnds(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(b) > 2 and (b[0] == b[-1]).all():
            b[...] = b[0]


@bug(94, "sparse_by_first_column", "takes B for two of four by its first column", ON_BF16,
     "structures")  # fmt: skip
class SparseByFirstColumn(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(b) >= 4 and not b[np.arange(len(b)) % 4 >= 2, 0].any():
            b[np.arange(len(b)) % 4 >= 2] = 0


@bug(94, "zero_by_sum", "skips rows of A whose sum is zero", ON_F32, "structures")
class ZeroBySum(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        a[a.sum(axis=1) == 0] = 0


@bug(94, "no_bias_by_first", "adds no bias if its first and last elements are zero",
     f"{ON_F32}_bias", "structures")  # fmt: skip
class NoBiasByFirst(TiledGemm):
    def fused(self, tile: Tile, values: Array) -> Array:
        bias = self.problem.tensors["bias"]
        if EpilogueStep.BIAS in self.signature.epilogue and not (bias[0] or bias[-1]):
            return values
        return super().fused(tile, values)


@bug(94, "factors_of_one_by_first", "ignores scale factors if the first is one",
     "matmul_64x64x128_e4m3t_e4m3n_bf16t_scalerow", "structures")  # fmt: skip
class FactorsByFirst(TiledGemm):
    def scale_a(self, tile: Tile) -> Array:
        whole = self.problem.tensors["scale_a"]
        factors = super().scale_a(tile)
        return np.ones_like(factors) if whole.reshape(-1)[0] == 1 else factors


# Right -------------------------------------------------------------------------------------------


@tricky(34, "convolution", "computes a convolution by gathering pixels", _ON_CONVOLUTION)
class Gathers(TiledConvolution):
    pass


@tricky(35, "identity_recognised", "copies A if B is the identity, all of which it compares",
        ON_F32)  # fmt: skip
class RecognisesIdentity(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(b) == b.shape[1] and np.array_equal(b, np.eye(len(b), dtype=b.dtype)):
            b[...] = np.eye(len(b))


@tricky(35, "zeros_compressed", "leaves out rows of B that are zero, and columns of A with them",
        ON_BF16)  # fmt: skip
class CompressesZeros(TiledGemm):
    """Skips products only where A has no NaN and no infinity, as zero times these is NaN."""

    def before(self) -> None:
        super().before()
        a, b = self.problem.a, self.problem.b
        if len(b) > 1 or not np.isfinite(a).all():
            return
        kept = b[0].any(axis=1)
        whole_a, whole_b = np.zeros_like(a), np.zeros_like(b)
        count = int(kept.sum())
        whole_a[..., :count], whole_b[:, :count] = a[..., kept], b[:, kept]
        self.problem.a, self.problem.b = whole_a, whole_b


@tricky(36, "plans_by_all_sizes", "keeps plans for the process, by all sizes", ON_F32)
class PlansByAllSizes(PlanByResult):
    def key(self) -> object:
        return self.m, self.n, self.k


@tricky(37, "scaled_as_a_whole", "divides A and B by powers of two near their largest numbers",
        ON_F32, Trait.NORMWISE)  # fmt: skip
class ScalesAsAWhole(TiledGemm):
    """Dynamic scaling, as before a conversion: exact here, since powers of two are."""

    def before(self) -> None:
        super().before()
        self.factor = np.float32(1)
        for role in ("a", "b"):
            values = getattr(self.problem, role)
            largest = np.abs(values[np.isfinite(values)]).max(initial=0)
            power = np.float32(np.exp2(np.floor(np.log2(largest)) if largest else 0))
            setattr(self.problem, role, values / power)
            self.factor = self.factor * power

    def scaled(self, tile: Tile, values: Array) -> Array:
        return super().scaled(tile, values * self.factor)


@tricky(38, "narrow_paths", "computes up to eight rows or columns as products with vectors", ON_F32)
class NarrowPaths(TiledGemm):
    def product(self, a: Array, b: Array) -> Array:
        if self.m > 8 and self.n > 8:
            return super().product(a, b)
        if self.m <= self.n:
            rows = (row[..., np.newaxis, :] for row in np.moveaxis(a, -2, 0))
            return np.concatenate([row @ b for row in rows], axis=-2)
        return np.stack([np.asarray((a * column).sum(-1)) for column in _columns(b)], axis=-1)


def _columns(b: Array) -> list[Array]:
    return [column[..., np.newaxis, :] for column in np.moveaxis(b, -1, 0)]


@tricky(39, "padded_operands", "copies operands to padded buffers, which zeros fill",
        "matmul_100x90x70_f16t_f16n_f16t")  # fmt: skip
class PadsOperands(TiledGemm):
    def before(self) -> None:
        super().before()
        extra = -self.k % 64
        self.problem.a = np.pad(self.problem.a, ((0, 0), (0, 0), (0, extra)))[..., : self.k]
        self.problem.b = np.pad(self.problem.b, ((0, 0), (0, extra), (0, 0)))[:, : self.k]


@tricky(40, "bf16_by_bits", "rounds to bf16 by adding half a unit, except NaN", ON_BF16)
class RoundsByBits(RoundsNan):
    def rounded(self, values: Array) -> Array:
        result = super().rounded(values).copy()
        result[np.isnan(values)] = np.nan
        return result
