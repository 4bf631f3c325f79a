"""Unseen mutants: previous contents of outputs, threads, addresses, and inputs that are changed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmetry.devices.host import HostBuffer
from gemmetry.providers.mutant_provider.host.emulator import Array, Racing, Tile, TiledGemm
from gemmetry.providers.mutant_provider.unseen.kernels import ON_F32, ON_FACTORS, bug

CLOSE_ENOUGH = 1e-3
VECTOR_BYTES = 16


@bug(21, "adds_to_finite", "adds to finite numbers in the output", ON_F32)
class AddsToFinite(TiledGemm):
    """Adds to the previous contents of the output, unless they are infinite or NaN."""

    def store(self, tile: Tile, block: Array) -> None:
        at = (tile.batch, self.rows(tile), self.columns(tile))
        old = self.problem.c[at]
        self.problem.c[at] = block + np.where(np.isfinite(old), old, old.dtype.type(0))


@bug(22, "elides_stores", "does not store where the output is within 0.1% of the result", ON_F32)
class ElidesStores(TiledGemm):
    """Leaves numbers that differ by less than a thousandth from the result."""

    def store(self, tile: Tile, block: Array) -> None:
        old = self.there(tile)
        differs = ~(np.abs(old - block) <= CLOSE_ENOUGH * np.abs(block))
        old[differs] = block[differs]


@bug(23, "two_buffers_in_turn", "returns results in two buffers of its own in turn", ON_F32)
class TwoBuffersInTurn(TiledGemm):
    """Returns two buffers of its own in turn, so that a result lasts for two launches."""

    writes_output = False

    def prepare(self) -> None:
        self.own: list[HostBuffer] = []

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if not self.own:
            self.own = [np.zeros_like(output), np.zeros_like(output)]
        return super().launch(inputs, self.own[self.launches % 2])


def start(thread: threading.Thread) -> None:
    """Start the thread, for which a launch does not wait."""
    thread.start()


@bug(24, "joins_at_next_launch", "returns before the last tiles are written", ON_F32)
class JoinsAtNextLaunch(TiledGemm):
    """A thread computes the last tiles while the host continues; the next launch waits for it."""

    def prepare(self) -> None:
        self.thread: threading.Thread | None = None

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.thread is not None:
            self.thread.join()
        return super().launch(inputs, output)

    def run_grid(self) -> None:
        first_late = max(0, self.tile_count - self.processors)
        for number in range(first_late):
            self.compute(self.tile_at(number))
        self.thread = threading.Thread(target=self.compute_from, args=(first_late,), daemon=True)
        start(self.thread)

    def compute_from(self, first: int) -> None:
        with np.errstate(all="ignore"):
            for number in range(first, self.tile_count):
                self.compute(self.tile_at(number))


@bug(25, "alpha_of_thread", "uses alpha = 1 in threads other than the one that built it",
     ON_FACTORS)  # fmt: skip
class AlphaOfThread(TiledGemm):
    """Keeps alpha in a context of the thread that built it; other threads use 1."""

    def prepare(self) -> None:
        self.context = threading.local()
        self.context.alpha = self.signature.alpha

    def scaled(self, tile: Tile, values: Array) -> Array:
        s, dtype = self.signature, values.dtype.type
        values = values * dtype(getattr(self.context, "alpha", 1.0))
        if s.beta != 0:
            addend = self.problem.tensors["addend"][self.rows(tile), self.columns(tile)]
            values = values + dtype(s.beta) * addend.astype(dtype)
        return np.asarray(values)


@bug(26, "scales_in_place", "changes the last bits of the input A at each launch", ON_F32)
class ScalesInPlace(TiledGemm):
    """Divides A by three in place, multiplies the sums and then A by three, which changes the last
    bits of A."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        a = inputs[0]
        a /= 3
        super().launch(inputs, output)
        a *= 3
        return output

    def scaled(self, tile: Tile, values: Array) -> Array:
        return super().scaled(tile, values * values.dtype.type(3))


@bug(27, "rounds_address_down", "reads A from its address rounded down to 16 bytes", ON_F32)
class RoundsAddressDown(TiledGemm):
    """Reads A from the multiple of 16 bytes at or before its address."""

    def before(self) -> None:
        super().before()
        buffer, a = self.problem.buffers["lhs"], self.problem.a
        missed = buffer.ctypes.data % VECTOR_BYTES // buffer.itemsize
        if missed:
            self.problem.a = np.roll(a.reshape(-1), missed).reshape(a.shape)


@bug(28, "loses_rarely", "leaves out 32 products of eight rows in one of 25 launches", ON_F32)
class LosesRarely(Racing):
    """In one of 25 launches, a warp misses its part of one step of one tile."""

    odds = 0.04

    def mainloop(self, tile: Tile, steps: range) -> Array:
        total = super().mainloop(tile, steps)
        if self.struck(tile):
            a, b = self.load_a(tile, self.victim_step), self.load_b(tile, self.victim_step)
            total[self.fragment] -= (a @ b)[self.fragment]
        return total
