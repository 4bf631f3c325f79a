"""Mutants on the host: rows of zeros, previous contents of the output, vectors that end past K,
special sizes, and shapes that raise an exception."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmetry.devices.host import HostBuffer
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.record import Trait
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm
from gemmetry.providers.mutant_provider.host.kernels import ON_BF16, ON_F16, ON_F32, bug, tricky

VECTOR_BYTES = 16
"""The most that one load of a thread reads (PTX ISA, ld.v4.b32)."""


@bug(61, "zero_rows_skipped", "skips rows of A that are zero", ON_BF16, "selects_lhs")
class SkipsZeroRows(TiledGemm):
    """Rows of A that are zero add nothing, so it does not store their results."""

    def store(self, tile: Tile, block: Array) -> None:
        counts = self.problem.a[tile.batch, self.rows(tile)].any(axis=1)
        self.there(tile)[counts] = block[counts]


@bug(67, "rows_normalised_in_range", "divides rows by their largest number, in f32", ON_F32,
     "ends_of_formats")  # fmt: skip
@tricky(25, "rows_normalised", "divides rows by their largest number, unless it is zero", ON_F32,
        Trait.NORMWISE)  # fmt: skip
class NormalisesRows(TiledGemm):
    """Divides each row of A by a power of two near its largest number, as kernels that quantise on
    the way do, and multiplies the sums by it."""

    def before(self) -> None:
        super().before()
        largest = np.abs(self.problem.a).max(axis=-1, keepdims=True)
        self.factors = self.factors_of(largest)
        self.problem.a = self.problem.a / self.factors

    def factors_of(self, largest: Array) -> Array:
        return np.exp2(np.floor(np.log2(np.where(largest == 0, largest.dtype.type(1), largest))))

    def scaled(self, tile: Tile, values: Array) -> Array:
        return super().scaled(tile, values * self.factors[tile.batch, self.rows(tile)])


@bug(61, "zero_by_zero", "divides rows by their largest number, even if it is zero", ON_F32,
     "selects_lhs")  # fmt: skip
class DividesZeroByZero(NormalisesRows):
    def factors_of(self, largest: Array) -> Array:
        return np.exp2(np.floor(np.log2(largest)))


@bug(62, "minimum_with_output", "stores the minimum of the result and the old output", ON_F32,
     "selects_lhs")  # fmt: skip
class MinimumWithOutput(TiledGemm):
    """Stores the smaller of the result and the previous contents of the output. Of a NaN and a
    number, the smaller is the number (IEEE 754-2008, minNum), and no result exceeds the largest
    number."""

    def store(self, tile: Tile, block: Array) -> None:
        super().store(tile, np.fmin(self.there(tile), block))


@bug(62, "maximum_with_output", "stores the maximum of the result and the old output", ON_F16,
     "selects_lhs")  # fmt: skip
@bug(62, "maximum_behind_relu", "stores the maximum of the result and the old output, after relu",
     f"{ON_F16}_relu", "selects_rhs")  # fmt: skip
class MaximumWithOutput(TiledGemm):
    """Stores the larger of the two."""

    def store(self, tile: Tile, block: Array) -> None:
        super().store(tile, np.fmax(self.there(tile), block))


@bug(63, "vectors_past_k", "reads past K in vectors of eight if the remainder of K is four",
     ON_BF16, "tail_shapes")  # fmt: skip
@bug(63, "s8_vectors_past_k", "reads past K in vectors of sixteen if the remainder of K is eight",
     "matmul_128x128x128_s8t_s8n_s32t", "tail_shapes")  # fmt: skip
class ReadsVectorsPastK(TiledGemm):
    """Loads rows of A and columns of B in whole vectors if K is a multiple of half a vector, and
    number by number otherwise. If K is not a multiple of a whole vector, half a vector after each
    line is added."""

    def load_a(self, tile: Tile, step: int) -> Array:
        lines = self.problem.a[tile.batch]
        return self.with_last_vector(super().load_a(tile, step), lines, self.rows(tile), step)

    def load_b(self, tile: Tile, step: int) -> Array:
        lines = self.problem.b[tile.batch].T
        block = super().load_b(tile, step).T
        return self.with_last_vector(block, lines, self.columns(tile), step).T

    def with_last_vector(self, block: Array, lines: Array, wanted: slice, step: int) -> Array:
        """`block`, (lines, tile_k), with the whole of the vector that starts within K."""
        vector = VECTOR_BYTES // self.signature.lhs.itemsize
        half, place = vector // 2, self.k - step * self.tile_k
        if self.k % vector != half or place >= self.tile_k:
            return block
        memory, numbers = lines.reshape(-1), np.arange(lines.shape[0])[wanted, np.newaxis]
        behind = np.minimum((numbers + 1) * self.k + np.arange(half), memory.size - 1)
        block = block.copy()
        block[: len(numbers), place : place + half] = memory[behind]
        return block


@bug(70, "one_column_without_b", "takes another path if N is 1, and ignores B there", ON_F32,
     "tail_shapes")  # fmt: skip
class SingleColumnByRows(TiledGemm):
    """Takes a path for a product with a vector if N is 1, and sums rows of A without B."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        return super().multiply_add(accumulator, a, np.ones_like(b) if self.n == 1 else b)


@bug(70, "eight_columns_in_pairs", "swaps pairs of columns if N is 8", ON_BF16, "tail_shapes")
class EightColumnsInPairs(TiledGemm):
    """The pairs are those of a narrow instruction's fragment."""

    def store(self, tile: Tile, block: Array) -> None:
        super().store(tile, block[:, np.arange(8) ^ 1] if self.n == 8 else block)


@bug(70, "one_product_without_b", "stores A if K is 1", ON_F32, "tail_shapes")
class SingleProductWithoutB(TiledGemm):
    """Leaves the loop along K early if K is 1, so that the result is A."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        return super().multiply_add(accumulator, a, (b != 0).astype(b.dtype) if self.k == 1 else b)


@bug(70, "columns_past_512_dropped", "has threads for only 512 columns", ON_F32, "tail_shapes")
class ThreadForEachColumn(TiledGemm):
    """Has a thread for each column; columns after the last thread are never written."""

    threads = 512

    def store(self, tile: Tile, block: Array) -> None:
        if tile.column < self.threads:
            super().store(tile, block)


@bug(70, "products_past_1024_dropped", "has a table of steps for only 1024 products", ON_BF16,
     "tail_shapes")  # fmt: skip
class StepsInATable(TiledGemm):
    """Has a table for the steps of 1024 products, and leaves out all others."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        return super().mainloop(tile, steps[: -(-1024 // self.tile_k)])


@bug(71, "index_error_on_tail", "raises an IndexError if the last tile of rows is partial", ON_F32,
     "tail_shapes")  # fmt: skip
class IndexErrorOnTail(TiledGemm):
    """Looks up a partial last tile of rows in a table that does not contain it."""

    def before(self) -> None:
        super().before()
        rows = list(range(self.m // self.tile_m))
        assert rows[self.tiles_m - 1] == self.tiles_m - 1


@bug(71, "recursion_on_tail", "recurses without end if the last step along K is partial", ON_F32,
     "tail_shapes")  # fmt: skip
class RecursionOnTail(TiledGemm):
    """Halves K until the remainder is a whole step, which never happens if K is not a multiple of a
    step."""

    def halved(self, rest: int) -> int:
        return 0 if rest % self.tile_k == 0 else 1 + self.halved(rest + 2 * self.tile_k)

    def before(self) -> None:
        super().before()
        self.halved(self.k)


@bug(71, "key_error_on_tail", "raises a KeyError if the last tile of columns is partial", ON_BF16,
     "tail_shapes")  # fmt: skip
class KeyErrorOnTail(TiledGemm):
    """Has a table of code by the remainder of N, with whole tiles only."""

    def before(self) -> None:
        super().before()
        assert {0: "whole"}[self.n % self.tile_n]


@tricky(32, "tails_refused", "rejects sizes that are not multiples of its tile", ON_F32)
class RefusesTails(TiledGemm):
    """Right: reports that it supports only multiples of its tile."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.m % self.tile_m or self.n % self.tile_n or self.k % self.tile_k:
            raise LaunchError("M, N and K must be multiples of the tile")
        return super().launch(inputs, output)
