"""Mutants on the host: bugs in what is read and written, and where; in the loop along K, its ring
of buffers, and those of the epilogue; special sizes, and shapes that raise an exception.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gemmetry.domain.errors import LaunchError
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.selftest.emulator import (
    FRAGMENT_ROWS,
    Array,
    Kernels,
    Racing,
    ReturnsOwn,
    Tile,
    TiledGemm,
    given,
    instead,
    padded,
    result,
    where,
)

VECTOR_BYTES = 16
"""The most that one load of a thread reads (PTX ISA, ld.v4.b32)."""


class NormalisesRows(TiledGemm):
    """Divides each row of A by a power of two near its largest number, as kernels that quantise on
    the way do, and multiplies the sums by it."""

    def before(self) -> None:
        largest = np.abs(self.problem.a).max(axis=-1, keepdims=True)
        self.factors = self.factors_of(largest)
        self.problem.a = self.problem.a / self.factors

    def factors_of(self, largest: Array) -> Array:
        return np.exp2(np.floor(np.log2(np.where(largest == 0, largest.dtype.type(1), largest))))

    def scaled(self, tile: Tile, values: Array) -> Array:
        return super().scaled(tile, values * self.factors[tile.batch, self.rows(tile)])


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


class RecursionOnTail(TiledGemm):
    """Halves K until the remainder is a whole step, which never happens if K is not a multiple of a
    step."""

    def halved(self, rest: int) -> int:
        return 0 if rest % self.tile_k == 0 else 1 + self.halved(rest + 2 * self.tile_k)

    def before(self) -> None:
        self.halved(self.k)


class RefusesTails(TiledGemm):
    """Right: reports that it supports only multiples of its tile."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.m % self.tile_m or self.n % self.tile_n or self.k % self.tile_k:
            raise LaunchError("M, N and K must be multiples of the tile")
        return super().launch(inputs, output)


SHARED_MEMORY_BYTES = 227 * 1024
"""The shared memory that a block may use on an H100 or H200 (CUDA C++ Programming Guide, table of
compute capabilities, 9.0)."""


class SkipsPartialRows(TiledGemm):
    def prepare(self) -> None:
        self.tiles_m = self.m // self.tile_m
        self.tile_count = self.batch * self.tiles_m * self.tiles_n


class SkipsPartialColumns(TiledGemm):
    def prepare(self) -> None:
        self.tiles_n = self.n // self.tile_n
        self.tile_count = self.batch * self.tiles_m * self.tiles_n


class DropsTailOfK(TiledGemm):
    def prepare(self) -> None:
        self.step_count = self.k // self.tile_k


class ReadsPastB(TiledGemm):
    """Masks the tail of A along K, but not that of B: whatever follows B is multiplied by zero."""

    def load_b(self, tile: Tile, step: int) -> Array:
        missing = (step + 1) * self.tile_k - self.k
        if missing <= 0:
            return super().load_b(tile, step)
        block = super().load_b(tile, step).copy()
        behind = memory_behind(self.problem.buffers["rhs"], missing * self.n)
        rows = padded(behind.astype(block.dtype)[np.newaxis], (1, missing * self.n))
        part = rows.reshape(missing, self.n)[:, self.columns(tile)]
        block[self.tile_k - missing :, : part.shape[1]] = part
        return block


class StoresPastRows(TiledGemm):
    """Stores whole tiles, so that rows past M overwrite the memory after the output."""

    def store(self, tile: Tile, block: Array) -> None:
        super().store(tile, block)
        behind = memory_behind(self.problem.output, (tile.row + self.tile_m - self.m) * self.n)
        for start in range(0, behind.size, self.n):
            behind[start:][self.columns(tile)] = 0


class StoresBeforeOutput(TiledGemm):
    """An index of the first row is negative, so that a few bytes before the output are
    overwritten."""

    def after(self) -> None:
        memory_before(self.problem.output, 4)[...] = 0


class LaunchFailsSilently(TiledGemm):
    """The launch fails because it requests more shared memory than a block may use, and nothing
    checks for the error."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        per_step = (self.tile_m + self.tile_n) * self.tile_k * inputs[0].dtype.itemsize
        if self.step_count * per_step > SHARED_MEMORY_BYTES:
            return output
        return super().launch(inputs, output)


class StoresTailRowsRotated(TiledGemm):
    """If the rows of a tile are not a multiple of 16, the halves of the last group are swapped."""

    def staged(self, tile: Tile, block: Array) -> Array:
        whole = block.shape[0] - block.shape[0] % (2 * FRAGMENT_ROWS)
        tail = np.roll(block[whole:], FRAGMENT_ROWS, axis=0)
        return super().staged(tile, np.concatenate([block[:whole], tail]))


class NarrowIndex(TiledGemm):
    """Offsets into C have 16 bits here, as they have 32 bits for outputs of more than 2^32
    elements."""

    def store(self, tile: Tile, block: Array) -> None:
        offsets = np.arange(self.m * self.n, dtype=np.uint16).reshape(self.m, self.n)
        self.problem.output.reshape(-1)[offsets[self.rows(tile), self.columns(tile)]] = block


class StoresTransposed(TiledGemm):
    """Treats the row-major output as column-major."""

    def before(self) -> None:
        stored = self.problem.output.reshape(self.batch, self.n, self.m)
        self.problem.c = stored.swapaxes(-1, -2)


class ReadsBUntransposed(TiledGemm):
    """Treats the column-major B as row-major."""

    def before(self) -> None:
        stored = np.ascontiguousarray(self.problem.b.swapaxes(-1, -2))
        self.problem.b = stored.reshape(self.batch, self.k, self.n)


class MasksByMultiplying(TiledGemm):
    """Reads the tail of A along K, where the next row starts (for the last row, its own end), and
    multiplies it by zero, which leaves NaN and infinity there."""

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step)
        first = step * self.tile_k
        if first + self.tile_k <= self.k:
            return block
        flat = self.problem.a[tile.batch].reshape(-1)
        rows = np.arange(self.m)[self.rows(tile), np.newaxis]
        columns = np.arange(first, first + self.tile_k)
        read = flat[np.minimum(rows * self.k + columns, flat.size - 1)]
        return padded(read * (columns < self.k), block.shape)


class Hangs(TiledGemm):
    """The barrier of a stage expects more bytes than are ever copied."""

    def read(self, tile: Tile, step: int) -> tuple[Array, Array]:
        while True:
            time.sleep(1.0)


class SkipsFullLastWave(TiledGemm):
    """A persistent kernel that assumes its last wave of tiles to be partial, which leaves that wave
    out if it is full."""

    processors = 2

    def work_of(self, processor: int) -> Iterable[int]:
        full = (self.tile_count - 1) // self.processors * self.processors
        yield from range(processor, full, self.processors)
        if processor < self.tile_count % self.processors:
            yield full + processor


class RastersByRows(TiledGemm):
    """Divides the tile's number by the count of tiles along M instead of N, which visits every tile
    once only if the grid is square."""

    def tile_at(self, number: int) -> Tile:
        batch, rest = divmod(number, self.tiles_m * self.tiles_n)
        row, column = divmod(rest, self.tiles_m)
        return Tile(number, batch, row * self.tile_m, column * self.tile_n)

    def compute(self, tile: Tile) -> None:
        if tile.row < self.m and tile.column < self.n:
            super().compute(tile)


def _allocation(buffer: HostBuffer) -> tuple[HostBuffer, int]:
    """The bytes of a contiguous buffer's allocation, and where in them it begins."""
    owner = buffer.base if isinstance(buffer.base, np.ndarray) else buffer
    return owner.reshape(-1).view(np.uint8), buffer.ctypes.data - owner.ctypes.data


def memory_before(buffer: HostBuffer, count: int) -> HostBuffer:
    """Up to `count` elements before a contiguous buffer, within its allocation."""
    whole, start = _allocation(buffer)
    size = min(count, start // buffer.itemsize) * buffer.itemsize
    return whole[start - size : start].view(buffer.dtype)


def memory_behind(buffer: HostBuffer, count: int) -> HostBuffer:
    """Up to `count` elements after a contiguous buffer, writable: no more than its allocation
    contains, so that no other memory is touched."""
    whole, start = _allocation(buffer)
    end = start + buffer.nbytes
    room = (whole.size - end) // buffer.itemsize
    return whole[end:][: max(0, min(count, room)) * buffer.itemsize].view(buffer.dtype)


class CountsAStepTwice(TiledGemm):
    """The first stage after the ring wraps around is consumed once more."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        total = super().mainloop(tile, steps)
        return self.added(total, tile, steps[self.stages : self.stages + 1])


class MissingBarrier(Racing):
    """A warp multiplies before its rows of the stage are filled."""

    def fill(self, tile: Tile, step: int) -> None:
        earlier = self.ring_a[step % self.stages, self.fragment].copy()
        super().fill(tile, step)
        if self.struck(tile, step):
            self.ring_a[step % self.stages, self.fragment] = earlier


class BarrierInBranch(TiledGemm):
    """In tiles at the right edge, half of the warps skip a barrier. All later barriers then pair up
    one too early for the other half, which reads the previous contents of the stage."""

    def fill(self, tile: Tile, step: int) -> None:
        slot, half = step % self.stages, self.tile_m // 2
        earlier = self.ring_a[slot, :half].copy()
        super().fill(tile, step)
        if tile.column + self.tile_n > self.n:
            self.ring_a[slot, :half] = earlier


class StagesShareMemory(TiledGemm):
    """All stages of B are one buffer, so that each copy ahead overwrites what is not consumed
    yet."""

    one_by_one = True

    def prepare(self) -> None:
        _, *strides = self.ring_b.strides
        self.ring_b = as_strided(self.ring_b, self.ring_b.shape, (0, *strides))


class WarpsShareStaging(TiledGemm):
    """Each warp stages its 16 columns at the same address, and what the last warp wrote is stored
    for all of them."""

    def staged(self, tile: Tile, block: Array) -> Array:
        block = super().staged(tile, block)
        last = block[:, (block.shape[1] - 1) // 16 * 16 :].copy()
        for first in range(0, block.shape[1] - last.shape[1], 16):
            block[:, first : first + last.shape[1]] = last
        return block


class ExpectsTooFewBytes(Racing):
    """The barrier opens when half of a stage has arrived. This matters if memory is not cached: for
    buffers that the previous launch did not read."""

    odds = 0.7

    warm = 0

    def before(self) -> None:
        super().before()
        address = self.problem.buffers["lhs"].ctypes.data
        self.happens = self.happens and address != self.warm
        self.warm = address

    def fill(self, tile: Tile, step: int) -> None:
        slot, half = step % self.stages, self.tile_m // 2
        earlier = self.ring_a[slot, half:].copy()
        super().fill(tile, step)
        if self.struck(tile, step):
            self.ring_a[slot, half:] = earlier


class OverwritesLiveStage(Racing):
    """The producer does not wait until a stage is consumed, so that its rows hold the step that
    comes one round of the ring later."""

    def read(self, tile: Tile, step: int) -> tuple[Array, Array]:
        a, b = super().read(tile, step)
        later = step + self.stages
        if self.struck(tile, step) and later < self.step_count:
            a = a.copy()
            a[self.fragment] = self.load_a(tile, later)[self.fragment]
        return a, b


class MissingProxyFence(Racing):
    """The copy engine stores rows of shared memory as they were before the warps wrote them."""

    odds = 0.3

    def staged(self, tile: Tile, block: Array) -> Array:
        earlier = self.staging[self.fragment].copy()
        view = super().staged(tile, block)
        if self.struck(tile):
            self.staging[self.fragment] = earlier
        return view


class ReusesStagingTooEarly(Racing):
    """The epilogue of the next tile writes to shared memory while the store of the same processor's
    previous tile still reads it."""

    previous: Tile | None = None

    def before(self) -> None:
        super().before()
        # The first tile of a processor has no predecessor.
        self.victim = max(self.victim, min(self.processors, self.tile_count - 1))

    def store(self, tile: Tile, block: Array) -> None:
        super().store(tile, block)
        before, self.previous = self.previous, tile
        is_same_processor = before is not None and tile.number == before.number + self.processors
        if before is None or not (is_same_processor and self.struck(tile)):
            return
        late = self.there(before)[self.fragment]
        height, width = np.minimum(late.shape, block[self.fragment].shape)
        late[:height, :width] = block[self.fragment][:height, :width]


class ExitsBeforeStoring(Racing):
    """A processor exits before the store of its last tile."""

    def before(self) -> None:
        super().before()
        self.victim = self.tile_count - 1 - self.victim % min(self.processors, self.tile_count)

    def store(self, tile: Tile, block: Array) -> None:
        if not self.struck(tile):
            super().store(tile, block)
            return
        self.there(tile)[: self.fragment.start] = block[: self.fragment.start]


class ReadsBeforeWaiting(Racing):
    """Rows of the accumulator are read before the last matrix instructions are complete."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        total = super().mainloop(tile, steps)
        if self.struck(tile):
            total[self.fragment] = super().mainloop(tile, steps[:-1])[self.fragment]
        return total


class WrongSwizzle(TiledGemm):
    """In the second half of each stage, chunks of eight columns of B are swapped with their
    neighbours: the phase of the swizzle does not follow the offset along K."""

    def load_b(self, tile: Tile, step: int) -> Array:
        block = super().load_b(tile, step).copy()
        half = block[self.tile_k // 2 :]
        chunks = half.reshape(half.shape[0], -1, 2, 8)
        half[...] = chunks[:, :, ::-1].reshape(half.shape)
        return block


class SwapsFragmentRows(TiledGemm):
    """The rows are swapped on the way from registers to shared memory."""

    def staged(self, tile: Tile, block: Array) -> Array:
        rows = np.arange(block.shape[0])
        partner = rows ^ FRAGMENT_ROWS
        return super().staged(tile, block[np.where(partner < rows.size, partner, rows)])


class MulticastsToBoth(TiledGemm):
    def load_a(self, tile: Tile, step: int) -> Array:
        if tile.row // self.tile_m % 2:
            tile = replace(tile, row=tile.row - self.tile_m)
        return super().load_a(tile, step)


KERNELS: Kernels = {
    # The loop over the instructions of the last stage ends one instruction early.
    "misses_half_a_step": result(
        "load_a",
        lambda g, block, tile, step: (
            padded(block[:, : g.tile_k // 2], block.shape) if step == g.step_count - 1 else block
        ),
    ),
    # Rows of A that are zero add nothing, so it does not store their results.
    "skips_zero_rows": given(
        "store",
        lambda g, tile, block: np.where(
            g.problem.a[tile.batch, g.rows(tile)].any(axis=1, keepdims=True), block, g.there(tile)
        ),
    ),
    # Has a thread for each column; columns after the last thread are never written.
    "thread_for_each_column": where("store", lambda g, tile, block: tile.column < 512),
    "thread_for_each_of_1024": where("store", lambda g, tile, block: tile.column < 1024),
    # Has twelve warps of sixteen columns each, whatever N is.
    "drops_columns_past_192": where("store", lambda g, tile, block: tile.column < 12 * 16),
    # Looks up a partial last tile of rows in a table that does not contain it.
    "index_error_on_tail": instead("before", lambda g: [*range(g.m // g.tile_m)][g.tiles_m - 1]),
    # Has a table of code by the remainder of N, with whole tiles only.
    "key_error_on_tail": instead("before", lambda g: {0: "whole"}[g.n % g.tile_n]),
    # What it returns may contain a result that was just freed.
    "returns_freed_memory": instead("launch", lambda g, _, c: np.empty_like(c), ReturnsOwn),
    "divides_zero_by_zero": instead(
        "factors_of", lambda g, largest: np.exp2(np.floor(np.log2(largest))), NormalisesRows
    ),
    # Stores the smaller of the result and the previous contents of the output. Of a
    # NaN and a number, the smaller is the number (IEEE 754-2008, minNum), and no
    # result exceeds the largest number.
    "minimum_with_output": given("store", lambda g, tile, block: np.fmin(g.there(tile), block)),
    # Stores the larger of the two.
    "maximum_with_output": given("store", lambda g, tile, block: np.fmax(g.there(tile), block)),
    # The pairs are those of a narrow instruction's fragment.
    "eight_columns_in_pairs": given(
        "store", lambda g, tile, block: block[:, np.arange(8) ^ 1] if g.n == 8 else block
    ),
    "adds_to_output": given("store", lambda g, tile, block: g.there(tile) + block),
    # Computes beta · C even if beta = 0, so that NaN in C survives.
    "reads_output_for_beta_zero": given(
        "store", lambda g, tile, block: block + block.dtype.type(0) * g.there(tile)
    ),
    # Takes a path for a product with a vector if N is 1, and sums rows of A without
    # B.
    "single_column_by_rows": given(
        "multiply_add", lambda g, accumulator, a, b: np.ones_like(b) if g.n == 1 else b
    ),
    # Leaves the loop along K early if K is 1, so that the result is A.
    "single_product_without_b": given(
        "multiply_add", lambda g, accumulator, a, b: (b != 0).astype(b.dtype) if g.k == 1 else b
    ),
    # Has a table for the steps of 1024 products, and leaves out all others.
    "steps_in_a_table": given("mainloop", lambda g, tile, steps: steps[: -(-1024 // g.tile_k)]),
    "returns_zeros": given("rounded", lambda g, values: np.zeros_like(values)),
    "never_writes": instead("store", lambda g, tile, block: None),
    # Tiles are computed in pairs, as clusters of two; a tile without a partner is not
    # computed.
    "skips_odd_tile": instead(
        "work_of", lambda g, processor: range(processor, g.tile_count // 2 * 2, g.processors)
    ),
    # Waits for the phase that has already passed, so that a stage of the ring's first
    # round is consumed before it is filled.
    "wrong_phase": where(
        "fill",
        lambda g, tile, step: not (g.struck(tile) and step == g.victim_step % g.stages),
        Racing,
    ),
}
