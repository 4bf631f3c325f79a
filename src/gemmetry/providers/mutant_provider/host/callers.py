"""Mutants on the host: kernels that cheat or disturb their caller from launch to launch, or rely on
fresh memory and an idle machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from gemmetry.devices.host import HostBuffer
from gemmetry.hardware.pinning import running_times
from gemmetry.providers.mutant_provider.host.caches import KeepsAnswers
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm
from gemmetry.providers.mutant_provider.host.kernels import ON_F32, bug

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


@bug(26, "first_pointers_kept", "keeps the pointers to A and B of the first launch", ON_F32,
     "integers")  # fmt: skip
class KeepsFirstPointers(TiledGemm):
    """Creates descriptors of A and B at the first launch of a shape and keeps them, so that later
    launches read the first buffers."""

    def prepare(self) -> None:
        self.described: list[HostBuffer] = []

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        self.described = self.described or list(inputs[:2])
        return super().launch([*self.described, *inputs[2:]], output)


@bug(26, "output_table_full", "has descriptors for 20 outputs and writes no others", ON_F32,
     "after_timing", "rare_launches")  # fmt: skip
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


@bug(48, "addend_as_scratch", "overwrites the input C with the result", f"{ON_F32}_beta1",
     "inputs_unchanged")  # fmt: skip
class UsesAddendAsScratch(TiledGemm):
    """Computes the result in the buffer of C, which is an input, and copies it from there."""

    def store(self, tile: Tile, block: Array) -> None:
        super().store(tile, block)
        if "addend" in self.problem.tensors:
            self.problem.tensors["addend"][self.rows(tile), self.columns(tile)] = block


@bug(49, "cache_by_pointer", "returns a cached result if the addresses of the inputs are the same",
     ON_F32, "in_place_change")  # fmt: skip
class CachesByPointer(KeepsAnswers):
    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        return tuple(buffer.ctypes.data for buffer in inputs)


@bug(50, "work_left_to_thread", "returns at once and computes in a thread", ON_F32, "written")
class LeavesWorkToThread(TiledGemm):
    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        _later(lambda: super(LeavesWorkToThread, self).launch(inputs, output))
        return output


@bug(50, "thread_writes_later", "writes to the output again from a thread after the launch", ON_F32,
     "unordered_work")  # fmt: skip
class ThreadWritesLater(TiledGemm):
    """It is right when it returns; then a thread writes to the first row once more."""

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


@bug(50, "lazy_result", "returns an object that computes only when it is read", ON_F32, "form")
class ReturnsLazyResult(TiledGemm):
    """Does not compute while it is timed, because nothing reads the result."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        return Lazy(lambda: super(ReturnsLazyResult, self).launch(inputs, output), output)


@bug(51, "every_tenth_skipped", "does nothing at every tenth launch", ON_F32, "every_call")
class SkipsEveryTenth(TiledGemm):
    every = 10

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if (self.launches + 1) % self.every == 0:
            self.launches += 1
            return output
        return super().launch(inputs, output)


@bug(51, "known_outputs_skipped", "skips an output that it has filled before", ON_F32,
     "in_place_change")  # fmt: skip
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


@bug(51, "back_to_back_skipped", "skips a launch that follows at once, as in a timed loop", ON_F32,
     "every_call")  # fmt: skip
class SkipsBackToBack(TiledGemm):
    """Does nothing if a launch follows the previous one at once, as in a timed loop; a caller that
    examines each result leaves a pause."""

    def prepare(self) -> None:
        self.ended_s = 0.0

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if time.perf_counter() - self.ended_s > BACK_TO_BACK_S:
            super().launch(inputs, output)
        self.ended_s = time.perf_counter()
        return output


@bug(52, "sums_not_products", "multiplies sums, which is right only for constant inputs", ON_F32,
     "values")  # fmt: skip
class SumsInsteadOfProducts(TiledGemm):
    """Multiplies the row sums of A by the column sums of B: right for constant inputs, and within a
    few per cent for positive inputs and large K."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        a = np.concatenate([self.load_a(tile, step) for step in steps], axis=1)
        b = np.concatenate([self.load_b(tile, step) for step in steps], axis=0)
        product = a.sum(axis=1, keepdims=True) * b.sum(axis=0)
        return np.asarray(product / self.k, self.accumulator)


@bug(52, "fixed_seed_remembered",
     "returns a cached result if the first elements of the inputs are the same", ON_F32,
     "nan_spreads")  # fmt: skip
class RemembersFixedSeed(KeepsAnswers):
    """Caches the result for one set of inputs, which it recognises by their first elements."""

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        return b"".join(buffer.reshape(-1)[:16].tobytes() for buffer in inputs)


def _later(work: Callable[[], object]) -> None:
    def run() -> None:
        time.sleep(THREAD_DELAY_S)
        work()

    threading.Thread(target=run, daemon=True).start()


@bug(55, "workspace_taken_for_zero", "adds to a workspace that it never clears", ON_F32,
     "spoiled_scratch")  # fmt: skip
class TakesWorkspaceForZero(TiledGemm):
    """Adds to a workspace that it allocates at each launch and never clears."""

    def before(self) -> None:
        super().before()
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


@bug(56, "fixed_wait_for_partner", "waits a fixed time for the part of K of another block", ON_F32,
     "under_load", level="paranoid")  # fmt: skip
class WaitsFixedTime(TiledGemm):
    """Waits for another block's half of K for a time that is sufficient while nothing else runs,
    and then stores the last tile without it. Other Python threads are what else may run."""

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
