"""Mutants on the host: the loop along K, its ring of buffers, and those of the epilogue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gemmetry.selftest.emulator import FRAGMENT_ROWS, Array, Kernels, Racing, Tile, TiledGemm, where


class MissesHalfAStep(TiledGemm):
    """The loop over the instructions of the last stage ends one instruction early."""

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step)
        if step == self.step_count - 1:
            block = block.copy()
            block[:, self.tile_k // 2 :] = 0
        return block


class CountsAStepTwice(TiledGemm):
    """The first stage after the ring wraps around is consumed once more."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        total = super().mainloop(tile, steps)
        if len(steps) <= self.stages:
            return total
        again = steps[self.stages]
        return self.multiply_add(total, self.load_a(tile, again), self.load_b(tile, again))


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

    def prepare(self) -> None:
        self.warm = 0

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

    def prepare(self) -> None:
        self.previous: Tile | None = None

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
    # Waits for the phase that has already passed, so that a stage of the ring's first
    # round is consumed before it is filled.
    "wrong_phase": where(
        "fill",
        lambda g, tile, step: not (g.struck(tile) and step == g.victim_step % g.stages),
        Racing,
    ),
}
