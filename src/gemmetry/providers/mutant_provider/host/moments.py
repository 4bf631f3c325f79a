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
from gemmetry.providers.mutant_provider.host.caches import KeepsAnswers
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm, bug
from gemmetry.providers.mutant_provider.host.rare import SkipsEveryTenth, StepsInElevenBits

_F32 = "matmul_128x64x64_f32t_f32t_f32t"
_BF16 = "matmul_64x128x64_bf16t_bf16n_bf16t"

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


@bug(81, "two_threads_known", "has workspaces for two threads, which a third one does not clear",
     _F32, "other_thread")  # fmt: skip
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


@bug(81, "answer_of_thread", "keeps its first result in every thread but the one that built it",
     _F32, "many_calls")  # fmt: skip
class AnswerOfThread(OfThreads):
    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if not self.is_elsewhere:
            return super().launch(inputs, output)
        if not hasattr(self.own, "answer"):
            super().launch(inputs, output)
            self.own.answer = output.copy()
        output[...] = self.own.answer
        return output


@bug(81, "operand_of_thread", "packs B once in every thread but the one that built it", _BF16,
     "many_calls")  # fmt: skip
class OperandOfThread(OfThreads):
    def before(self) -> None:
        super().before()
        if self.is_elsewhere:
            if not hasattr(self.own, "packed"):
                self.own.packed = self.problem.b.copy()
            self.problem.b = self.own.packed


@bug(81, "later_launches_of_thread", "loses the last step of K from a thread's second launch on",
     _F32, "other_thread", "many_calls")  # fmt: skip
class LaterLaunchesOfThread(OfThreads):
    """Only in threads that did not build it."""

    def before(self) -> None:
        super().before()
        if self.is_elsewhere:
            self.own.launches = getattr(self.own, "launches", 0) + 1

    def compute(self, tile: Tile) -> None:
        lost = self.is_elsewhere and self.own.launches > 1
        self.epilogue(tile, self.mainloop(tile, range(self.step_count - lost)))


@bug(82, "one_processor_loses_tail", "gives the last tile to a second processor, if there is one",
     _F32, "other_thread")  # fmt: skip
class OneProcessorLosesTail(TiledGemm):
    """With one processor allowed nobody computes it."""

    def run_grid(self) -> None:
        lost = _processors() == 1 and self.tile_count > 1
        for number in range(self.tile_count - lost):
            self.compute(self.tile_at(number))


@bug(82, "half_of_k_for_one_processor", "gives each processor a part of K, of two at least", _BF16,
     "other_thread")  # fmt: skip
class HalfOfKForOneProcessor(TiledGemm):
    """With one processor allowed the second half of K is nobody's."""

    def compute(self, tile: Tile) -> None:
        end = self.step_count if _processors() > 1 else max(1, self.step_count // 2)
        self.epilogue(tile, self.mainloop(tile, range(end)))


# Written later -----------------------------------------------------------------------------------


@bug(83, "first_output_again", "writes to the first output it was given again at the 30th launch",
     _F32, "results_stay")  # fmt: skip
class FirstOutputAgain(TiledGemm):
    """Keeps the first output, and writes its last row once more."""

    first: HostBuffer | None = None

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.first is None:
            self.first = output
        if self.launches == 29:
            self.first[-1] = 0
        return super().launch(inputs, output)


@bug(83, "thread_writes_much_later", "writes to its second output from a thread after a while",
     _F32, "results_stay")  # fmt: skip
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


@bug(84, "made_for_first_numbers", "knows the first whole numbers and loses a row of others",
     _F32, "unknown_seed")  # fmt: skip
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


@bug(85, "every_eleventh_after_slow_start", "does nothing at every eleventh launch; starts slowly",
     _BF16, "every_call")  # fmt: skip
class EveryEleventhAfterSlowStart(SkipsEveryTenth):
    every = 11

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        _start_slowly(self.launches)
        return super().launch(inputs, output)


@bug(85, "launch_lost_after_slow_start", "does nothing at every 80th launch; starts slowly", _F32,
     "many_calls")  # fmt: skip
class LaunchLostAfterSlowStart(EveryEleventhAfterSlowStart):
    every = 80


@bug(85, "long_k_after_slow_start", "counts steps of 32 in eleven bits; starts slowly", _F32,
     "long_axes")  # fmt: skip
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


@bug(86, "one_in_three_while_timed", "leaves out the last tile of one launch in three when timed",
     _F32, "after_timing")  # fmt: skip
class OneInThreeWhileTimed(WhileTimed):
    def run_grid(self) -> None:
        lost = self.is_timed and self.chance.random() < 1 / 3
        for number in range(self.tile_count - lost):
            self.compute(self.tile_at(number))


@bug(86, "edges_while_timed", "looks at the edges of the inputs only when timed", _F32,
     "after_timing")  # fmt: skip
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


@bug(86, "store_past_end_while_timed", "stores one element past the end of the output when timed",
     _F32, "after_timing")  # fmt: skip
class StorePastEndWhileTimed(WhileTimed):
    def after(self) -> None:
        super().after()
        if self.is_timed and self.problem.output.base is not None:
            memory = self.problem.output.base
            end = self.problem.output.ctypes.data - memory.ctypes.data + self.problem.output.nbytes
            memory[end : end + self.problem.output.itemsize] = 0


@bug(86, "wrong_for_moments_while_timed", "adds one to every sum for a few ms at a time when timed",
     _F32, "after_timing")  # fmt: skip
class WrongForMoments(WhileTimed):
    """Adds one to every sum in every second interval of 4 ms."""

    def epilogue(self, tile: Tile, accumulator: Array) -> None:
        if self.is_timed and int(time.monotonic() / 0.004) % 2:
            accumulator = accumulator + accumulator.dtype.type(1)
        super().epilogue(tile, accumulator)
