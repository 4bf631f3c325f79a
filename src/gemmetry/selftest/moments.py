"""Mutants on the host: kernels that fail only in some threads, on some processors, at some moments,
after a slow start, or for inputs that nobody planned for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmetry.hardware.host import usable_cpus
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.storage import to_float64
from gemmetry.selftest.caches import KeepsAnswers
from gemmetry.selftest.emulator import Array, Kernels, Tile, TiledGemm, instead
from gemmetry.selftest.rare import SkipsEveryTenth, StepsInElevenBits

SLOW_START_S = 0.2
"""Duration of the first launches of kernels that start slowly, as those that compile do."""

SLOW_LAUNCHES = 2

TIMED_FROM = 72
"""Launches of the operation's own shape, of two tiles, after which it is being timed: verification
makes fewer."""

_OWN_TILES = 2

LATE_S = 0.2
"""Delay of a write, longer than checks wait for one."""

_MOST_ALIKE = 0.5


def _processors() -> int:
    return len(usable_cpus())


# Threads and processors --------------------------------------------------------------------------


class TwoThreadsKnown(TiledGemm):
    """Threads after the second share the workspace of the second, which only its owner clears."""

    def prepare(self) -> None:
        self.owners: list[int] = []
        self.left = np.zeros((self.tile_m, self.tile_n), self.accumulator)

    def mainloop(self, tile: Tile, steps: range) -> Array:
        me = threading.get_ident()
        if me not in self.owners and len(self.owners) < 2:
            self.owners.append(me)
        sums = super().mainloop(tile, steps)
        if me not in self.owners:
            sums = sums + self.left
        self.left = np.array(sums)
        return sums


class OfThreads(TiledGemm):
    """A kernel that behaves in another way in threads that did not build it."""

    def prepare(self) -> None:
        self.builder = threading.get_ident()
        self.own = threading.local()

    @property
    def is_elsewhere(self) -> bool:
        return threading.get_ident() != self.builder


class AnswerOfThread(OfThreads):
    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if not self.is_elsewhere:
            return super().launch(inputs, output)
        if not hasattr(self.own, "answer"):
            super().launch(inputs, output)
            self.own.answer = output.copy()
        output[...] = self.own.answer
        return output


class OperandOfThread(OfThreads):
    def before(self) -> None:
        super().before()
        if self.is_elsewhere:
            if not hasattr(self.own, "packed"):
                self.own.packed = self.problem.b.copy()
            self.problem.b = self.own.packed


class LaterLaunchesOfThread(OfThreads):
    """Only in threads that did not build it."""

    def before(self) -> None:
        super().before()
        if self.is_elsewhere:
            self.own.launches = getattr(self.own, "launches", 0) + 1

    def compute(self, tile: Tile) -> None:
        lost = self.is_elsewhere and self.own.launches > 1
        self.epilogue(tile, self.mainloop(tile, range(self.step_count - lost)))


class OneProcessorLosesTail(TiledGemm):
    """With one processor allowed nobody computes it."""

    def run_grid(self) -> None:
        lost = _processors() == 1 and self.tile_count > 1
        for number in range(self.tile_count - lost):
            self.compute(self.tile_at(number))


# Written later -----------------------------------------------------------------------------------


class FirstOutputAgain(TiledGemm):
    """Keeps the first output, and writes its last row once more."""

    first: HostBuffer | None = None

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.first is None:
            self.first = output
        if self.launches == 29:
            self.first[-1] = 0
        return super().launch(inputs, output)


class ThreadWritesMuchLater(TiledGemm):
    """Later than any check waits for a thread, which nothing shows at first."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        super().launch(inputs, output)
        if self.launches == 2:
            timer = threading.Timer(LATE_S, lambda: output[..., :1, :].fill(0))
            timer.daemon = True
            timer.start()
        elif self.launches == 40:
            time.sleep(2 * LATE_S)  # in case verification is faster
        return output


# Seeds -------------------------------------------------------------------------------------------


class MadeForFirstNumbers(TiledGemm):
    """Takes the first small whole numbers for those of a benchmark, and leaves out the last row for
    others that are no larger."""

    known: Array | None = None

    def after(self) -> None:
        super().after()
        a = to_float64(self.problem.buffers["lhs"])
        if not (a == np.rint(a)).all():
            return
        if self.known is None:
            self.known = a
        is_small = np.abs(a).max() <= np.abs(self.known).max()
        if is_small and (a == self.known).mean() < _MOST_ALIKE:
            self.problem.c[..., -1, :] = 0


# A slow start ------------------------------------------------------------------------------------


def _start_slowly(launches: int) -> None:
    if launches < SLOW_LAUNCHES:
        time.sleep(SLOW_START_S)


class EveryEleventhAfterSlowStart(SkipsEveryTenth):
    every = 11

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        _start_slowly(self.launches)
        return super().launch(inputs, output)


class LongKAfterSlowStart(StepsInElevenBits):
    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        _start_slowly(self.launches)
        return super().launch(inputs, output)


# While it is timed -------------------------------------------------------------------------------


class WhileTimed(TiledGemm):
    """Right until its shape has been launched more often than verification does."""

    @property
    def is_timed(self) -> bool:
        return self.launches > TIMED_FROM and self.tile_count == _OWN_TILES


class OneInThreeWhileTimed(WhileTimed):
    def run_grid(self) -> None:
        lost = self.is_timed and self.chance.random() < 1 / 3
        for number in range(self.tile_count - lost):
            self.compute(self.tile_at(number))


class EdgesWhileTimed(KeepsAnswers):
    """Returns a stored result if the first and last rows and columns are the same."""

    calls = 0

    def trusts_memory(self) -> bool:
        return self.calls > TIMED_FROM and self.tile_count == _OWN_TILES

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        self.calls += 1
        ends = (0, -1)
        return tuple(
            part.tobytes() for one in inputs for end in ends for part in (one[end], one[:, end])
        )


class StorePastEndWhileTimed(WhileTimed):
    def after(self) -> None:
        super().after()
        if self.is_timed and self.problem.output.base is not None:
            memory = self.problem.output.base
            end = self.problem.output.ctypes.data - memory.ctypes.data + self.problem.output.nbytes
            memory[end : end + self.problem.output.itemsize] = 0


class WrongForMoments(WhileTimed):
    """Adds one to every sum in every second interval of 4 ms."""

    def epilogue(self, tile: Tile, accumulator: Array) -> None:
        if self.is_timed and int(time.monotonic() / 0.004) % 2:
            accumulator = accumulator + accumulator.dtype.type(1)
        super().epilogue(tile, accumulator)


KERNELS: Kernels = {
    # With one processor allowed the second half of K is nobody's.
    "half_of_k_for_one_processor": instead(
        "compute",
        lambda g, tile: g.epilogue(
            tile,
            g.mainloop(
                tile, range(g.step_count if _processors() > 1 else max(1, g.step_count // 2))
            ),
        ),
    ),
}
