"""Mutants on the host: kernels that cheat or disturb their caller from launch to launch, that rely
on fresh memory and an idle machine, or that fail only for rare values, calls, threads, processors,
moments, addresses and sizes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmetry.domain.operation import BF16, F16
from gemmetry.hardware.host import running_times, usable_cpus
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.storage import as_bits, quantize, to_float64
from gemmetry.selftest.caches import KeepsAnswers
from gemmetry.selftest.emulator import (
    Array,
    Kernels,
    Tile,
    TiledGemm,
    given,
    instead,
    result,
    through,
    where,
)
from gemmetry.selftest.memory import VECTOR_BYTES, memory_behind

THREAD_DELAY_S = 0.005
"""The delay after which a thread writes; a launch of the shapes here takes about as long."""

TABLE_SIZE = 20
"""The outputs that fit into a table: more than verification uses, and fewer than verification and
timing use together, because timing rotates through outputs to keep caches cold."""

BACK_TO_BACK_S = 20e-6
"""The longest pause in a timed loop, whose overhead is about a microsecond per launch."""

WORKSPACE_BYTES = 40 * 2**20
"""Above 32 MiB the GNU C library requests fresh pages from the system each time (mallopt(3),
M_MMAP_THRESHOLD), so that this workspace is zero unless something fills it."""

WAIT_S = 0.005
LATE_NS = 500_000
"""A partner is late if other threads have run for this long during the wait."""


class KeepsFirstPointers(TiledGemm):
    """Creates descriptors of A and B at the first launch of a shape and keeps them, so that later
    launches read the first buffers."""

    def prepare(self) -> None:
        self.described: list[HostBuffer] = []

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        self.described = self.described or list(inputs[:2])
        return super().launch([*self.described, *inputs[2:]], output)


class FullTable(TiledGemm):
    """Keeps a descriptor for each output in a table, and skips outputs that no longer fit."""

    def prepare(self) -> None:
        self.described: set[int] = set()

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        address = output.ctypes.data
        if address not in self.described and len(self.described) == TABLE_SIZE:
            return output
        self.described.add(address)
        return super().launch(inputs, output)


class UsesAddendAsScratch(TiledGemm):
    """Computes the result in the buffer of C, which is an input, and copies it from there."""

    def store(self, tile: Tile, block: Array) -> None:
        super().store(tile, block)
        if "addend" in self.problem.tensors:
            self.problem.tensors["addend"][self.rows(tile), self.columns(tile)] = block


class LeavesWorkToThread(TiledGemm):
    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        _later(lambda: super(LeavesWorkToThread, self).launch(inputs, output))
        return output


class ThreadWritesLater(TiledGemm):
    """Right on return; then a thread writes to the first row once more."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        super().launch(inputs, output)
        _later(lambda: output[..., :1, :].fill(0))
        return output


class Lazy:
    """Looks like an array, and computes when it is read."""

    def __init__(self, compute: Callable[[], HostBuffer], like: HostBuffer) -> None:
        self._compute = compute
        self.shape, self.dtype, self.nbytes = like.shape, like.dtype, like.nbytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostBuffer:
        return np.array(self._compute(), dtype=dtype, copy=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compute(), name)


class ReturnsLazyResult(TiledGemm):
    """Does not compute while it is timed, because nothing reads the result."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        return Lazy(lambda: super(ReturnsLazyResult, self).launch(inputs, output), output)


class SkipsEveryTenth(TiledGemm):
    every = 10

    def run_grid(self) -> None:
        if self.launches % self.every:
            super().run_grid()


class SkipsKnownOutputs(TiledGemm):
    """Assumes that an output it has filled before belongs to a benchmark's next round."""

    def prepare(self) -> None:
        self.filled: dict[int, HostBuffer] = {}

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        address = output.ctypes.data
        if address in self.filled:
            return output
        self.filled[address] = output  # Kept, so that no other buffer gets the address.
        return super().launch(inputs, output)


class SkipsBackToBack(TiledGemm):
    """Does nothing if a launch follows the previous one at once, as in a timed loop; a caller that
    examines each result leaves a pause."""

    ended_s = 0.0

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if time.perf_counter() - self.ended_s > BACK_TO_BACK_S:
            super().launch(inputs, output)
        self.ended_s = time.perf_counter()
        return output


class SumsInsteadOfProducts(TiledGemm):
    """Multiplies the row sums of A by the column sums of B: right for constant inputs, and within a
    few per cent for positive inputs and large K."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        a = np.concatenate([self.load_a(tile, step) for step in steps], axis=1)
        b = np.concatenate([self.load_b(tile, step) for step in steps], axis=0)
        product = a.sum(axis=1, keepdims=True) * b.sum(axis=0)
        return np.asarray(product / self.k, self.accumulator)


def _later(work: Callable[[], object]) -> None:
    def run() -> None:
        time.sleep(THREAD_DELAY_S)
        work()

    threading.Thread(target=run, daemon=True).start()


class TakesWorkspaceForZero(TiledGemm):
    """Adds to a workspace that it allocates at each launch and never clears."""

    def before(self) -> None:
        sums = self.tile_count * self.tile_m * self.tile_n
        least = WORKSPACE_BYTES // np.dtype(self.accumulator).itemsize
        self.workspace: Array = np.empty(max(sums, least), self.accumulator)

    def mainloop(self, tile: Tile, steps: range) -> Array:
        size = self.tile_m * self.tile_n
        sums = self.workspace[tile.number * size :][:size].reshape(self.tile_m, self.tile_n)
        sums += super().mainloop(tile, steps)
        return sums

    def after(self) -> None:
        del self.workspace


class WaitsFixedTime(TiledGemm):
    """Waits for another block's half of K for a time that is sufficient while nothing else runs,
    and then stores the last tile without it. Other Python threads may also run."""

    def after(self) -> None:
        ran_before_ns = _others_ran_ns()
        time.sleep(WAIT_S)
        if _others_ran_ns() - ran_before_ns > LATE_NS:
            tile = self.tile_at(self.tile_count - 1)
            self.epilogue(tile, self.mainloop(tile, range(self.step_count // 2)))


def _others_ran_ns() -> int:
    ran = running_times()
    others = (thread.native_id or 0 for thread in threading.enumerate())
    return sum(ran.get(task, 0) for task in others if task != threading.get_native_id())


_SMALLEST_FACTOR = 2.0**-12
_RING = 80


# What is added ----------------------------------------------------------------------------------


class StoresBeforeAdding(TiledGemm):
    """Stores alpha·A·B in the result's format, reads it again and adds beta·C."""

    def stores(self, tile: Tile) -> bool:
        """Whether another kernel finishes the tile."""
        return True

    def scaled(self, tile: Tile, values: Array) -> Array:
        if not self.stores(tile):
            return super().scaled(tile, values)
        dtype = values.dtype.type
        stored = quantize(values * dtype(self.alpha()), self.signature.result).astype(dtype)
        return np.asarray(stored + dtype(self.beta()) * self.tensor("addend", tile, values.dtype))


# Inputs that are close ---------------------------------------------------------------------------


class KeepsLast(TiledGemm):
    """Keeps the last inputs and their result, which it returns again if `is_close` is true."""

    def prepare(self) -> None:
        self.last: list[Array] = []

    is_close: Callable[[Sequence[HostBuffer]], bool]
    """Whether the inputs are taken for the last ones."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.last and self.is_close(inputs):
            output[...] = self.last[-1]
            return output
        super().launch(inputs, output)
        self.last = [buffer.copy() for buffer in (*inputs, output)]
        return output


class CloseByNorm(KeepsLast):
    """Compares the norm of the difference with that of the inputs."""

    def is_close(self, inputs: Sequence[HostBuffer]) -> bool:
        def is_small(now: HostBuffer, before: Array) -> bool:
            wide = to_float64(before)
            change = np.linalg.norm(to_float64(now) - wide)
            # NaN if either contains NaN or infinity.
            return bool(change / np.linalg.norm(wide) <= 1e-5)

        with np.errstate(all="ignore"):
            return all(map(is_small, inputs, self.last[:-1]))


def _alike(short: Callable[[Array], Array]) -> type[TiledGemm]:
    """A class that compares the inputs with the last ones by what remains of each."""
    return instead(
        "is_close",
        lambda g, inputs: all(map(np.array_equal, map(short, inputs), map(short, g.last[:-1]))),
        KeepsLast,
    )


# Many calls --------------------------------------------------------------------------------------


class WeightsAfterSomeCalls(TiledGemm):
    """Treats B as weights from the 49th launch on, and packs it permanently."""

    packed: Array | None = None

    def before(self) -> None:
        if self.packed is not None:
            self.problem.b = self.packed
        elif self.launches > 48:
            self.packed = self.problem.b.copy()


class RingOfOperands(TiledGemm):
    """Copies A to a ring of 80 places, each of which is filled once."""

    def prepare(self) -> None:
        self.ring: list[Array] = []

    def before(self) -> None:
        if len(self.ring) < _RING:
            self.ring.append(self.problem.a.copy())
        self.problem.a = self.ring[(self.launches - 1) % _RING]


# Threads -----------------------------------------------------------------------------------------


class WorkspaceOfThread(TiledGemm):
    """Other threads have no workspace, which raises an AttributeError."""

    def prepare(self) -> None:
        self.own = threading.local()
        self.own.workspace = self.zeros()

    def mainloop(self, tile: Tile, steps: range) -> Array:
        self.own.workspace[...] = super().mainloop(tile, steps)
        return np.array(self.own.workspace)


class OfThreads(TiledGemm):
    """A kernel that behaves in another way in threads that did not build it."""

    def prepare(self) -> None:
        self.builder = threading.get_ident()
        self.own = threading.local()

    @property
    def is_elsewhere(self) -> bool:
        return threading.get_ident() != self.builder


# Addresses ---------------------------------------------------------------------------------------


class StoresAligned(TiledGemm):
    """Stores vectors to the multiple of 16 bytes at or after the output's address."""

    def after(self) -> None:
        output = self.problem.output
        late = output.ctypes.data % VECTOR_BYTES // output.itemsize
        if late:
            flat = output.reshape(-1)
            flat[...] = np.roll(flat, late)


# Sizes -------------------------------------------------------------------------------------------


class StepsInElevenBits(TiledGemm):
    def mainloop(self, tile: Tile, steps: range) -> Array:
        return super().mainloop(tile, steps[: len(steps) % 2**11 or len(steps)])


def _unaligned_head(g: TiledGemm) -> int:
    lhs = g.problem.buffers["lhs"]
    return int(-lhs.ctypes.data % VECTOR_BYTES // lhs.itemsize)


SLOW_START_S = 0.2
"""Duration of the first launches of kernels that start slowly, as those that compile do."""

TIMED_FROM = 72
"""Launches of the operation's own shape, of two tiles, after which it is being timed: verification
makes fewer."""

_OWN_TILES = 2

LATE_S = 0.2
"""Delay of a write, longer than checks wait for one."""


# Threads and processors --------------------------------------------------------------------------


class TwoThreadsKnown(TiledGemm):
    """Threads after the second share the workspace of the second, which only its owner clears."""

    def prepare(self) -> None:
        self.owners: list[int] = []
        self.left = self.zeros()

    def mainloop(self, tile: Tile, steps: range) -> Array:
        me = threading.get_ident()
        if me not in self.owners and len(self.owners) < 2:
            self.owners.append(me)
        sums = super().mainloop(tile, steps)
        if me not in self.owners:
            sums = sums + self.left
        self.left = np.array(sums)
        return sums


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
    def seen_b(self, b: Array) -> Array:
        if self.is_elsewhere and not hasattr(self.own, "packed"):
            self.own.packed = b.copy()
        return self.own.packed if self.is_elsewhere else b


class LaterLaunchesOfThread(OfThreads):
    """Wrong only in threads that did not build the kernel."""

    def before(self) -> None:
        if self.is_elsewhere:
            self.own.launches = getattr(self.own, "launches", 0) + 1

    def mainloop(self, tile: Tile, steps: range) -> Array:
        lost = self.is_elsewhere and self.own.launches > 1
        return super().mainloop(tile, steps[: len(steps) - lost])


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
        a = to_float64(self.problem.buffers["lhs"])
        if not (a == np.rint(a)).all():
            return
        if self.known is None:
            self.known = a
        is_small = np.abs(a).max() <= np.abs(self.known).max()
        if is_small and (a == self.known).mean() < 0.5:
            self.problem.c[..., -1, :] = 0


# A slow start ------------------------------------------------------------------------------------


def _slow(base: type[TiledGemm], **attributes: Any) -> type[TiledGemm]:
    """A class whose first two launches take long."""

    def launch(g: TiledGemm, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if g.launches < 2:
            time.sleep(SLOW_START_S)
        return base.launch(g, inputs, output)

    return type("StartsSlowly", (base,), {"launch": launch, **attributes})


# While it is timed -------------------------------------------------------------------------------


class WhileTimed(TiledGemm):
    """Right until its shape has been launched more often than verification does."""

    @property
    def is_timed(self) -> bool:
        return self.launches > TIMED_FROM and self.tile_count == _OWN_TILES


class EdgesWhileTimed(KeepsAnswers):
    """Returns a stored result if the first and last rows and columns are the same."""

    calls = 0

    def reuses_answer(self) -> bool:
        return self.calls > TIMED_FROM and self.tile_count == _OWN_TILES

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        self.calls += 1
        ends = (0, -1)
        return tuple(
            part.tobytes() for one in inputs for end in ends for part in (one[end], one[:, end])
        )


class StorePastEndWhileTimed(WhileTimed):
    def after(self) -> None:
        if self.is_timed:
            memory_behind(self.problem.output, 1)[...] = 0


class WrongForMoments(WhileTimed):
    """Adds one to every sum in every second interval of 4 ms."""

    def epilogue(self, tile: Tile, accumulator: Array) -> None:
        if self.is_timed and int(time.monotonic() / 0.004) % 2:
            accumulator = accumulator + accumulator.dtype.type(1)
        super().epilogue(tile, accumulator)


KERNELS: Kernels = {
    # Compares all but the last two bits of each number.
    "close_but_for_last_bits": _alike(lambda values: np.right_shift(as_bits(values), 2)),
    # Compares the inputs after rounding to bf16.
    "close_by_half": _alike(lambda values: as_bits(quantize(values, BF16))),
    # Stores scale factors in bf16, whether they are powers of two or not.
    "factors_in_bf16": result("scales", lambda g, scales, *_: through(scales, BF16)),
    # Raises scale factors of B below 2^-12 to that value, to avoid a division by zero elsewhere.
    "factors_clamped": result(
        "scale_b",
        lambda g, factors, tile: np.where(
            np.abs(factors) < _SMALLEST_FACTOR, np.copysign(_SMALLEST_FACTOR, factors), factors
        ),
    ),
    # Stores the sum times the row's scale factor in f16, before the column's scale factor.
    "rows_scaled_in_f16": instead(
        "scaled",
        lambda g, tile, values: through(values * g.scale_a(tile), F16) * g.scale_b(tile),
    ),
    # In the first row of tiles, which another kernel finishes.
    "stores_first_tiles_before_adding": instead(
        "stores", lambda g, tile: tile.row == 0, StoresBeforeAdding
    ),
    # In the last column of tiles, which another kernel finishes.
    "stores_last_tiles_before_adding": instead(
        "stores", lambda g, tile: tile.column + g.tile_n >= g.n, StoresBeforeAdding
    ),
    # Sets the arithmetic mode of the thread that built it; other threads round inputs to bf16.
    "mode_of_thread": result(
        "load_a",
        lambda g, block, *_: through(block, BF16) if g.is_elsewhere else block,
        OfThreads,
    ),
    "epilogue_of_thread": result(
        "fused", lambda g, fused, tile, values: values if g.is_elsewhere else fused, OfThreads
    ),
    # Keeps alpha in a context of the thread that built it; other threads use 1.
    "alpha_of_thread": result("alpha", lambda g, alpha: 1 if g.is_elsewhere else alpha, OfThreads),
    "relu_by_magnitude": instead("relu", lambda g, values: 0.5 * values + 0.5 * np.abs(values)),
    "relu_by_difference": instead("relu", lambda g, values: values - np.minimum(values, 0)),
    # K is a signed 16-bit number, and there is nothing to do if it is negative.
    "products_in_signed_16": given(
        "mainloop", lambda g, tile, steps: steps[: max(1, (2**15 - 1) // g.tile_k)]
    ),
    # Counts rows of B in 16 bits, and so reads the first rows again after 65536 of
    # them.
    "rows_of_b_in_16_bits": given("load_b", lambda g, tile, step: step % ((1 << 16) // g.tile_k)),
    # Counts columns of tiles in four bits, so that those after sixteen overwrite the
    # first ones.
    "column_tiles_in_four_bits": result(
        "tile_at", lambda g, tile, number: replace(tile, column=tile.column % (16 * g.tile_n))
    ),
    # Counts rows in 16 bits, so that those after 65536 overwrite the first ones.
    "rows_in_16_bits": result("tile_at", lambda g, tile, _: replace(tile, row=tile.row % 2**16)),
    # Reads B from the multiple of 32 bytes at or before its address.
    "reads_aligned_b": instead(
        "seen_b",
        lambda g, b: np.roll(b.reshape(-1), g.past("rhs", 32)).reshape(b.shape),
    ),
    # Starts at the first multiple of 16 bytes in A, and treats what is before it as zero.
    "skips_unaligned_head": instead(
        "seen_a",
        lambda g, a: np.where(np.arange(a.size).reshape(a.shape) < _unaligned_head(g), 0, a),
    ),
    # With one processor allowed the second half of K is nobody's.
    "half_of_k_for_one_processor": given(
        "mainloop",
        lambda g, tile, steps: (
            steps if len(usable_cpus()) > 1 else steps[: max(1, len(steps) // 2)]
        ),
    ),
    # With one processor allowed nobody computes the last tile.
    "tail_for_one_processor": where(
        "compute", lambda g, tile: len(usable_cpus()) > 1 or not 0 < tile.number == g.tile_count - 1
    ),
    "every_eleventh_after_slow_start": _slow(SkipsEveryTenth, every=11),
    "long_k_after_slow_start": _slow(StepsInElevenBits),
    # Leaves the last tile out in one of three launches.
    "one_in_three_while_timed": where(
        "compute",
        lambda g, tile: (
            tile.number < g.tile_count - 1 or not g.is_timed or g.chance.random() > 1 / 3
        ),
        WhileTimed,
    ),
}
