"""Mutants on the host: kernels that take a wrong path for some sizes, factors or contents, and for
all others the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from gemmetry.domain.operation import Conv2dShape, EpilogueStep
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.storage import to_float32
from gemmetry.selftest.emulator import (
    Array,
    Kernels,
    Tile,
    TiledGemm,
    given,
    instead,
    result,
    where,
)
from gemmetry.selftest.scale import BlockScaled

_TINY, _HUGE = 1e-30, 1e30
_LONG_K = 4000
_SPLIT_K = 512
_LARGE = 2**18
_SAMPLE = 16


# Sizes -------------------------------------------------------------------------------------------


class SquareResultMirrored(TiledGemm):
    """Takes A·Aᵀ for granted where the result is square."""

    def after(self) -> None:
        if self.m == self.n:
            c = self.problem.c
            for one in c:
                one[...] = np.tril(one) + np.tril(one, -1).T


class TiledConvolution(TiledGemm):
    """A convolution as the product of gathered pixels with the filter."""

    def before(self) -> None:
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


class OneStride(TiledConvolution):
    def places(self, shape: Conv2dShape) -> tuple[Array, Array]:
        rows, columns = super().places(shape)
        return rows, columns + np.arange(shape.q)[:, np.newaxis] * (shape.stride_h - shape.stride_w)


class EvenFiltersShifted(TiledConvolution):
    def places(self, shape: Conv2dShape) -> tuple[Array, Array]:
        rows, columns = super().places(shape)
        return rows + (shape.r % 2 == 0), columns


class PointwiseWithoutStride(TiledConvolution):
    """A filter of one pixel is a plain product of all pixels."""

    def places(self, shape: Conv2dShape) -> tuple[Array, Array]:
        if shape.r == shape.s == 1:
            shape = shape._replace(stride_h=1, stride_w=1, h=shape.p, w=shape.q, pad_h=0, pad_w=0)
        return super().places(shape)


# What is kept from an earlier shape --------------------------------------------------------------


class Plans(TiledGemm):
    """Keeps a plan for the process, found again by a part of the sizes."""

    kept: ClassVar[dict[object, int]] = {}
    key: Callable[[], object]
    """What finds a plan again among those of the same formats."""

    def plan(self, planned: int) -> int:
        """The plan for the sizes at hand, or what was planned for others."""
        return self.kept.setdefault((type(self), self.signature, self.key()), planned)


class PlanByResult(Plans):
    def key(self) -> object:
        return self.m, self.n

    def seen_a(self, a: Array) -> Array:
        return np.where(np.arange(self.k) < self.plan(self.k), a, 0)


class PlanByLeft(Plans):
    def key(self) -> object:
        return self.m, self.k

    def seen_b(self, b: Array) -> Array:
        return np.where(np.arange(self.n) < self.plan(self.n), b, 0)


class PitchBySize(Plans):
    def key(self) -> object:
        return self.n * self.k

    def seen_b(self, b: Array) -> Array:
        flat, pitch = b.reshape(self.batch, -1), self.plan(self.n)
        places = np.arange(self.k)[:, np.newaxis] * pitch + np.arange(self.n)
        return flat[:, places % flat.shape[1]]


# Exceptions and forms ----------------------------------------------------------------------------


class PartsDoNotMatch(TiledGemm):
    """numpy raises a ValueError, which is not the kernel's own."""

    def before(self) -> None:
        half = self.k // 2
        self.problem.a[..., :half] + self.problem.a[..., half:]


class ReturnsOther(TiledGemm):
    """Returns something else than C for some shapes."""

    writes_output = False

    other: Callable[[Sequence[HostBuffer], HostBuffer], Any]
    """What is returned; C where the shape is none of those."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        return self.other(inputs, super().launch(inputs, output.copy()))


# Ends of formats ---------------------------------------------------------------------------------


class SmallBlockFactors(BlockScaled):
    def factors(self, factors: Array) -> Array:
        wide = to_float32(factors)
        return np.where(wide < 2.0**-6, np.float32(0), wide)


# Special numbers ---------------------------------------------------------------------------------


class CleansBias(TiledGemm):
    def before(self) -> None:
        tensors = self.problem.tensors
        for role in {"bias", "addend"} & set(tensors):
            tensors[role] = np.nan_to_num(tensors[role], nan=0, posinf=np.inf, neginf=-np.inf)


class RoundsNan(TiledGemm):
    """Adds 0x7FFF and the last bit, as if every pattern were a number."""

    def rounded(self, values: Array) -> Array:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        last = (bits >> np.uint32(16)) & np.uint32(1)
        short = ((bits + np.uint32(0x7FFF) + last) >> np.uint32(16)).astype(np.uint16)
        return short.view(super().rounded(values[:1]).dtype)


# Factors -----------------------------------------------------------------------------------------


class AddsForMinusOne(TiledGemm):
    def scaled(self, tile: Tile, values: Array) -> Array:
        result = super().scaled(tile, values)
        if (self.signature.alpha, self.signature.beta) == (1, -1):
            result = result + 2 * self.tensor("addend", tile, values.dtype)
        return result


# Structure that is guessed -----------------------------------------------------------------------


class Guesses(TiledGemm):
    """Looks at a few elements, and trusts that the rest is alike."""

    def before(self) -> None:
        self.problem.a, self.problem.b = self.problem.a.copy(), self.problem.b.copy()
        for a, b in zip(self.problem.a, self.problem.b, strict=True):
            self.guess(a, b)

    guess: Callable[[Array, Array], None]
    """Changes A and B, of one batch, where the guess is made."""


class IdentityByDiagonal(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(b) == b.shape[1] and (np.diag(b) == 1).all():
            b[...] = np.eye(len(b))


class ZeroBySample(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if not np.diag(a)[::_SAMPLE].any():
            a[...] = 0


class SymmetricByEdges(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(a) == a.shape[1] and (a[0] == a[:, 0]).all() and (a[-1] == a[:, -1]).all():
            a[...] = np.tril(a) + np.tril(a, -1).T


class EqualRowsByTwo(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(a) > 2 and (a[0] == a[1]).all():
            a[...] = a[0]


class ConstantColumnsByEnds(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(b) > 2 and (b[0] == b[-1]).all():
            b[...] = b[0]


class SparseByFirstColumn(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(b) >= 4 and not b[np.arange(len(b)) % 4 >= 2, 0].any():
            b[np.arange(len(b)) % 4 >= 2] = 0


class ZeroBySum(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        a[a.sum(axis=1) == 0] = 0


class NoBiasByFirst(TiledGemm):
    def fused(self, tile: Tile, values: Array) -> Array:
        bias = self.problem.tensors["bias"]
        if EpilogueStep.BIAS in self.signature.epilogue and not (bias[0] or bias[-1]):
            return values
        return super().fused(tile, values)


class FactorsByFirst(TiledGemm):
    def scale_a(self, tile: Tile) -> Array:
        whole = self.problem.tensors["scale_a"]
        factors = super().scale_a(tile)
        return np.ones_like(factors) if whole.reshape(-1)[0] == 1 else factors


# Right -------------------------------------------------------------------------------------------


class RecognisesIdentity(Guesses):
    def guess(self, a: Array, b: Array) -> None:
        if len(b) == b.shape[1] and np.array_equal(b, np.eye(len(b), dtype=b.dtype)):
            b[...] = np.eye(len(b))


class CompressesZeros(TiledGemm):
    """Skips products only where A has no NaN and no infinity, as zero times these is NaN."""

    def before(self) -> None:
        a, b = self.problem.a, self.problem.b
        if len(b) > 1 or not np.isfinite(a).all():
            return
        kept = b[0].any(axis=1)
        whole_a, whole_b = np.zeros_like(a), np.zeros_like(b)
        count = int(kept.sum())
        whole_a[..., :count], whole_b[:, :count] = a[..., kept], b[:, kept]
        self.problem.a, self.problem.b = whole_a, whole_b


class ScalesAsAWhole(TiledGemm):
    """Dynamic scaling, as before a conversion: exact here, since powers of two are."""

    def before(self) -> None:
        self.factor = np.float32(1)
        for role in ("a", "b"):
            values = getattr(self.problem, role)
            largest = np.abs(values[np.isfinite(values)]).max(initial=0)
            power = np.float32(np.exp2(np.floor(np.log2(largest)) if largest else 0))
            setattr(self.problem, role, values / power)
            self.factor = self.factor * power

    def scaled(self, tile: Tile, values: Array) -> Array:
        return super().scaled(tile, values * self.factor)


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


class PadsOperands(TiledGemm):
    def seen_a(self, a: Array) -> Array:
        return np.pad(a, ((0, 0), (0, 0), (0, -self.k % 64)))[..., : self.k]

    def seen_b(self, b: Array) -> Array:
        return np.pad(b, ((0, 0), (0, -self.k % 64), (0, 0)))[:, : self.k]


class RoundsByBits(RoundsNan):
    def rounded(self, values: Array) -> Array:
        result = super().rounded(values).copy()
        result[np.isnan(values)] = np.nan
        return result


KERNELS: Kernels = {
    "elements_in_18_bits": where(
        "store", lambda g, tile, block: tile.row * g.n + tile.column < _LARGE
    ),
    "three_matrices": where("store", lambda g, tile, block: tile.batch < 3),
    "wide_for_odd": instead(
        "other",
        lambda g, inputs, output: output.astype(np.float64) if g.n % 2 else output,
        ReturnsOther,
    ),
    "nothing_for_one_row": instead(
        "other", lambda g, inputs, output: None if g.m == 1 else output, ReturnsOther
    ),
    "vector_for_one_column": instead(
        "other", lambda g, inputs, output: output[..., 0] if g.n == 1 else output, ReturnsOther
    ),
    "input_for_identity": instead(
        "other",
        lambda g, inputs, output: (
            inputs[0] if g.n == g.k and np.array_equal(g.problem.b[0], np.eye(g.k)) else output
        ),
        ReturnsOther,
    ),
    "tiny_results": given("rounded", lambda g, values: np.where(np.abs(values) < _TINY, 0, values)),
    "huge_results": given(
        "rounded",
        lambda g, values: np.where(
            np.isfinite(values) & (np.abs(values) > _HUGE), np.copysign(_HUGE, values), values
        ),
    ),
    "truncates_subnormals": given(
        "rounded",
        lambda g, values: np.where(
            np.abs(values) < 2.0 ** (-14),
            np.trunc(values * np.float32(2.0**24)) * np.float32(2.0 ** (-24)),
            values,
        ),
    ),
    "flushes_fp8": given(
        "rounded", lambda g, values: np.where(np.abs(values) < 2.0 ** (-6), 0, values)
    ),
    "long_sums_in_f16": result(
        "mainloop",
        lambda g, total, tile, steps: (
            to_float32(total.astype(np.float16)) if g.k > _LONG_K else total
        ),
    ),
    "cleans_factors": result(
        "scale_b", lambda g, result, tile: np.clip(result, -(2.0**40), 2.0**40).astype(np.float32)
    ),
    "forgets_minus_one": given(
        "scaled", lambda g, tile, values: -values if g.signature.alpha == -1 else values
    ),
    "plans_by_all_sizes": instead("key", lambda g: (g.m, g.n, g.k), PlanByResult),
    "remainder_13": instead(
        "seen_a", lambda g, a: a[:, [*range(g.m - 2), g.m - 1, g.m - 2]] if g.m % 16 == 13 else a
    ),
    "remainder_31": instead(
        "seen_a", lambda g, a: np.where(np.arange(g.k) == g.k - 1, 0, a) if g.k % 32 == 31 else a
    ),
    "splits_at_multiples": instead(
        "seen_a", lambda g, a: a if g.k % _SPLIT_K else np.where(np.arange(g.k) >= g.k // 2, 0, a)
    ),
    "five_columns": instead(
        "seen_b", lambda g, b: np.where(np.arange(5) == 4, 0, b) if g.n == 5 else b
    ),
    "three_rows_in_f16": instead(
        "seen_a", lambda g, a: to_float32(a.astype(np.float16)) if g.m == 3 and g.n > 32 else a
    ),
    "corner_of_two_tails": instead(
        "seen_a",
        lambda g, a: (
            np.where(np.arange(g.m)[:, np.newaxis] == g.m - 1, 0, a)
            if g.m % g.tile_m and g.k % g.tile_k
            else a
        ),
    ),
    "cube_transposed": instead(
        "seen_b", lambda g, b: np.swapaxes(b, -1, -2) if g.m == g.n == g.k else b
    ),
    "square_b_transposed": instead(
        "seen_b", lambda g, b: np.swapaxes(b, -1, -2) if g.n == g.k else b
    ),
    "uneven_parts": instead(
        "seen_b", lambda g, b: np.concatenate(np.split(b, max(1, g.n // 16), axis=-1), axis=-1)
    ),
    "reshapes_tails": instead(
        "seen_a", lambda g, a: a.reshape(g.batch, -1, 8, g.k).reshape(a.shape)
    ),
    "loses_nan_at_remainder": instead(
        "seen_a", lambda g, a: np.where(np.isnan(a) & (np.arange(g.k) % 8 == 5), 0, a)
    ),
}
