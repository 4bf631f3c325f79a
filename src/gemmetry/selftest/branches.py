"""Mutants on the host: kernels that take a wrong path for some sizes, factors or contents, and for
all others the right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gemmetry.domain.operation import F16, Conv2dShape
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.storage import to_float32
from gemmetry.selftest.emulator import (
    Array,
    Change,
    Kernels,
    ReturnsOwn,
    Tile,
    TiledGemm,
    given,
    instead,
    result,
    through,
    where,
)
from gemmetry.selftest.scale import factored

_TINY, _HUGE = 1e-30, 1e30


# Sizes -------------------------------------------------------------------------------------------


class SquareResultMirrored(TiledGemm):
    """Takes A·Aᵀ for granted where the result is square."""

    def after(self) -> None:
        if self.m == self.n:
            for one in self.problem.c:
                one[...] = _mirrored(one)


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

    def plan(self, planned: int, *key: int) -> int:
        """The plan for the sizes at hand, or what was planned for others of the same formats."""
        return self.kept.setdefault((type(self), self.signature, key), planned)


class PitchBySize(Plans):
    def seen_b(self, b: Array) -> Array:
        flat, pitch = b.reshape(self.batch, -1), self.plan(self.n, self.n * self.k)
        places = np.arange(self.k)[:, np.newaxis] * pitch + np.arange(self.n)
        return flat[:, places % flat.shape[1]]


# Exceptions and forms ----------------------------------------------------------------------------


class PartsDoNotMatch(TiledGemm):
    """numpy raises a ValueError, which is not the kernel's own."""

    def before(self) -> None:
        half = self.k // 2
        self.problem.a[..., :half] + self.problem.a[..., half:]


def returning(other: Change) -> type[TiledGemm]:
    """A class that returns something else than C for some shapes."""

    def launch(g: TiledGemm, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        return other(g, inputs, TiledGemm.launch(g, inputs, output.copy()))

    return instead("launch", launch, ReturnsOwn)


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


# Structure that is guessed -----------------------------------------------------------------------


def guessing(stage: str, looks_so: Change, guess: Change) -> type[TiledGemm]:
    """A class that looks at a few elements of a matrix, and takes the rest for alike."""
    return instead(
        stage, lambda g, batch: np.stack([guess(x) if looks_so(x) else x for x in batch])
    )


def _identity(matrix: Array) -> Array:
    return np.eye(len(matrix), dtype=matrix.dtype)


def _mirrored(matrix: Array) -> Array:
    return np.asarray(np.tril(matrix) + np.tril(matrix, -1).T)


def _sparse(b: Array) -> Array:
    return np.where(np.arange(len(b))[:, np.newaxis] % 4 < 2, b, 0)


# Right -------------------------------------------------------------------------------------------


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
    "elements_in_18_bits": where("store", lambda g, tile, _: tile.row * g.n + tile.column < 2**18),
    "three_matrices": where("store", lambda g, tile, block: tile.batch < 3),
    "wide_for_odd": returning(lambda g, _, c: c.astype(np.float64) if g.n % 2 else c),
    "nothing_for_one_row": returning(lambda g, _, c: None if g.m == 1 else c),
    "vector_for_one_column": returning(lambda g, _, c: c[..., 0] if g.n == 1 else c),
    "input_for_identity": returning(
        lambda g, inputs, c: (
            inputs[0] if g.n == g.k and np.array_equal(g.problem.b[0], np.eye(g.k)) else c
        )
    ),
    "small_block_factors": factored(
        "factors", lambda f: np.where(to_float32(f) < 2.0**-6, 0, to_float32(f))
    ),
    "adds_for_minus_one": result(
        "beta", lambda g, beta: 1.0 if (g.signature.alpha, beta) == (1, -1) else beta
    ),
    "identity_by_diagonal": guessing(
        "seen_b",
        lambda b: len(b) == b.shape[1] and (np.diag(b) == 1).all(),
        _identity,
    ),
    "zero_by_sample": guessing("seen_a", lambda a: not np.diag(a)[::16].any(), np.zeros_like),
    "symmetric_by_edges": guessing(
        "seen_a",
        lambda a: np.array_equal(a[0], a[:, 0]) and np.array_equal(a[-1], a[:, -1]),
        _mirrored,
    ),
    "equal_rows_by_two": guessing(
        "seen_a",
        lambda a: len(a) > 2 and (a[0] == a[1]).all(),
        lambda a: a[:1].repeat(len(a), axis=0),
    ),
    "constant_columns_by_ends": guessing(
        "seen_b",
        lambda b: len(b) > 2 and (b[0] == b[-1]).all(),
        lambda b: b[:1].repeat(len(b), axis=0),
    ),
    "sparse_by_first_column": guessing(
        "seen_b",
        lambda b: len(b) >= 4 and np.array_equal(_sparse(b)[:, 0], b[:, 0], equal_nan=True),
        _sparse,
    ),
    "zero_by_sum": instead("seen_a", lambda g, a: np.where(a.sum(-1, keepdims=True) == 0, 0, a)),
    "no_bias_by_first": result(
        "fused",
        lambda g, fused, tile, values: (
            fused if g.problem.tensors["bias"][[0, -1]].any() else values
        ),
    ),
    "factors_by_first": result(
        "scale_a",
        lambda g, factors, tile: (
            np.ones_like(factors) if g.problem.tensors["scale_a"].flat[0] == 1 else factors
        ),
    ),
    "recognises_identity": guessing("seen_b", lambda b: np.array_equal(b, _identity(b)), _identity),
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
    "flushes_fp8": given("rounded", lambda g, values: np.where(abs(values) < 2.0**-6, 0, values)),
    "long_sums_in_f16": result(
        "mainloop",
        lambda g, total, tile, steps: through(total, F16) if g.k > 4000 else total,
    ),
    "cleans_factors": result(
        "scale_b", lambda g, result, tile: np.clip(result, -(2.0**40), 2.0**40).astype(np.float32)
    ),
    "forgets_minus_one": given(
        "scaled", lambda g, tile, values: -values if g.signature.alpha == -1 else values
    ),
    "plan_by_result": instead(
        "seen_a", lambda g, a: np.where(np.arange(g.k) < g.plan(g.k, g.m, g.n), a, 0), Plans
    ),
    "plan_by_left": instead(
        "seen_b", lambda g, b: np.where(np.arange(g.n) < g.plan(g.n, g.m, g.k), b, 0), Plans
    ),
    "plans_by_all_sizes": instead(
        "seen_a", lambda g, a: np.where(np.arange(g.k) < g.plan(g.k, g.m, g.n, g.k), a, 0), Plans
    ),
    "remainder_13": instead(
        "seen_a", lambda g, a: a[:, [*range(g.m - 2), g.m - 1, g.m - 2]] if g.m % 16 == 13 else a
    ),
    "remainder_31": instead(
        "seen_a", lambda g, a: np.where(np.arange(g.k) == g.k - 1, 0, a) if g.k % 32 == 31 else a
    ),
    "splits_at_multiples": instead(
        "seen_a", lambda g, a: a if g.k % 512 else np.where(np.arange(g.k) >= g.k // 2, 0, a)
    ),
    "five_columns": instead(
        "seen_b", lambda g, b: np.where(np.arange(5) == 4, 0, b) if g.n == 5 else b
    ),
    "three_rows_in_f16": instead(
        "seen_a", lambda g, a: through(a, F16) if g.m == 3 and g.n > 32 else a
    ),
    "corner_of_two_tails": instead(
        "seen_a",
        lambda g, a: (
            np.where(np.arange(g.m)[:, np.newaxis] == g.m - 1, 0, a)
            if g.m % g.tile_m and g.k % g.tile_k
            else a
        ),
    ),
    "cube_transposed": instead("seen_b", lambda g, b: b.swapaxes(1, 2) if g.m == g.n == g.k else b),
    "square_b_transposed": instead("seen_b", lambda g, b: b.swapaxes(1, 2) if g.n == g.k else b),
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
