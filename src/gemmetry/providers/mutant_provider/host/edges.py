"""Planted on the host: rows of zeros, what the output held before, and vectors that end past K."""

from __future__ import annotations

import numpy as np

from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm

VECTOR_BYTES = 16
"""What one load of a thread takes at most (PTX ISA, ld.v4.b32)."""


class SkipsZeroRows(TiledGemm):
    """Rows of A that are zero give nothing to add, so that their results are left as they were."""

    def store(self, tile: Tile, block: Array) -> None:
        rows = self.rows(tile)
        counts = self.problem.a[tile.batch, rows].any(axis=1)
        self.problem.c[tile.batch, rows, self.columns(tile)][counts] = block[counts]


class NormalisesRows(TiledGemm):
    """Divides each row of A by a power of two near its largest number, as kernels that quantise on
    the way do, and multiplies the sums with it."""

    def before(self) -> None:
        super().before()
        largest = np.abs(self.problem.a).max(axis=-1, keepdims=True)
        self.factors = self.factors_of(largest)
        self.problem.a = self.problem.a / self.factors

    def factors_of(self, largest: Array) -> Array:
        return np.exp2(np.floor(np.log2(np.where(largest == 0, largest.dtype.type(1), largest))))

    def scaled(self, tile: Tile, values: Array) -> Array:
        return super().scaled(tile, values * self.factors[tile.batch, self.rows(tile)])


class DividesZeroByZero(NormalisesRows):
    """Does not ask whether a row's largest number is zero."""

    def factors_of(self, largest: Array) -> Array:
        return np.exp2(np.floor(np.log2(largest)))


class MinimumWithOutput(TiledGemm):
    """Stores the smaller of the result and what the output held. Of a NaN and a number, the
    smaller is the number (IEEE 754-2008, minNum), and no result is beyond the largest numbers."""

    def store(self, tile: Tile, block: Array) -> None:
        at = (tile.batch, self.rows(tile), self.columns(tile))
        self.problem.c[at] = np.fmin(self.problem.c[at], block)


class MaximumWithOutput(TiledGemm):
    """Stores the larger one."""

    def store(self, tile: Tile, block: Array) -> None:
        at = (tile.batch, self.rows(tile), self.columns(tile))
        self.problem.c[at] = np.fmax(self.problem.c[at], block)


class ReadsVectorsPastK(TiledGemm):
    """Loads rows of A and columns of B in whole vectors where K divides by half of one, else number
    by number: half a vector of what lies behind a line counts where K leaves the other half."""

    def load_a(self, tile: Tile, step: int) -> Array:
        lines = self.problem.a[tile.batch]
        return self.with_last_vector(super().load_a(tile, step), lines, self.rows(tile), step)

    def load_b(self, tile: Tile, step: int) -> Array:
        lines = self.problem.b[tile.batch].T
        block = super().load_b(tile, step).T
        return self.with_last_vector(block, lines, self.columns(tile), step).T

    def with_last_vector(self, block: Array, lines: Array, wanted: slice, step: int) -> Array:
        """`block`, (lines, tile_k), with the whole vector that begins within K."""
        vector = VECTOR_BYTES // self.signature.lhs.itemsize
        half, place = vector // 2, self.k - step * self.tile_k
        if self.k % vector != half or place >= self.tile_k:
            return block
        memory, numbers = lines.reshape(-1), np.arange(lines.shape[0])[wanted, np.newaxis]
        behind = np.minimum((numbers + 1) * self.k + np.arange(half), memory.size - 1)
        block = block.copy()
        block[: len(numbers), place : place + half] = memory[behind]
        return block
