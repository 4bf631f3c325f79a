"""Mutants on the host: kernels that cheat or disturb their caller from launch to launch, or rely on
fresh memory and an idle machine.

Mutants on the host: kernels that fail only for rare values, calls, threads, addresses and
sizes.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmetry.domain.operation import BF16, F16, Scaling
from gemmetry.hardware.host import running_times
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.storage import as_bits, quantize, to_float32, to_float64
from gemmetry.providers.mutant_provider.host.caches import KeepsAnswers
from gemmetry.providers.mutant_provider.host.emulator import ON_F32, Array, Tile, TiledGemm, bug
from gemmetry.providers.mutant_provider.host.memory import ThreadForEachColumn
from gemmetry.providers.mutant_provider.host.scale import OrdersFactors

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


_F32 = "matmul_128x64x64_f32t_f32t_f32t"
_BF16 = "matmul_64x128x64_bf16t_bf16n_bf16t"
_ROW_SCALES = "matmul_64x64x128_e4m3t_e4m3n_bf16t_scalerow"
_TENSOR_SCALES = "matmul_64x64x128_e4m3t_e4m3n_f32t_scaletensor"

_SMALLEST_FACTOR = 2.0**-12
_LAUNCHES_OF_WEIGHTS = 48
_RING = 80
_CLOSE_NORM = 1e-5
_CACHE_LINE_BYTES = 32
_VECTOR_BYTES = 16
_STEP_BITS = 11
_LARGEST_S16 = 2**15 - 1


# Scale factors ----------------------------------------------------------------------------------


@bug(72, "factors_in_bf16", "rounds scale factors to bf16", _TENSOR_SCALES, "scale_factors")
class FactorsInBf16(TiledGemm):
    """Stores scale factors in bf16, whether they are powers of two or not."""

    def scale_a(self, tile: Tile) -> Array:
        return to_float32(quantize(super().scale_a(tile), BF16))

    def scale_b(self, tile: Tile) -> Array:
        return to_float32(quantize(super().scale_b(tile), BF16))


@bug(72, "small_factors_clamped", "raises scale factors of B below 2^-12 to 2^-12", _TENSOR_SCALES,
     "scale_factors")  # fmt: skip
class FactorsClamped(TiledGemm):
    """Raises scale factors of B below 2^-12 to that value, to avoid a division by zero
    elsewhere."""

    def scale_b(self, tile: Tile) -> Array:
        factors = super().scale_b(tile)
        smallest = factors.dtype.type(_SMALLEST_FACTOR)
        return np.where(np.abs(factors) < smallest, np.copysign(smallest, factors), factors)


@bug(72, "rows_scaled_in_f16", "stores the sum times the scale factor of the row in f16",
     _ROW_SCALES, "scale_factors")  # fmt: skip
class RowsScaledInF16(TiledGemm):
    """Stores the sum times the row's scale factor in f16, before the column's scale factor."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        assert self.signature.scaling is not Scaling.NONE
        rows = to_float32(quantize(values * self.scale_a(tile), F16))
        return np.asarray(rows * self.scale_b(tile))


# What is added ----------------------------------------------------------------------------------


class StoresBeforeAdding(OrdersFactors):
    """Stores alpha·A·B in the result's format, reads it again and adds beta·C."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        product = values * values.dtype.type(self.alpha())
        stored = quantize(product, self.signature.result).astype(values.dtype)
        addend = self.tensor("addend", tile, values.dtype)
        return np.asarray(stored + values.dtype.type(self.beta()) * addend)


@bug(73, "first_tiles_stored_before", "stores the first row of tiles in f16 before it adds C",
     "matmul_128x64x64_f16t_f16n_f16t_alpham2_beta0p3333", "addend_cancels")  # fmt: skip
class StoresFirstTilesBeforeAdding(StoresBeforeAdding):
    """Does so in the first row of tiles, which another kernel finishes."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        if tile.row == 0:
            return super().scaled(tile, values)
        return OrdersFactors.scaled(self, tile, values)


@bug(73, "last_tiles_stored_before", "stores the last column of tiles in bf16 before it adds C",
     f"{_BF16}_beta1_relu", "addend_cancels")  # fmt: skip
class StoresLastTilesBeforeAdding(StoresBeforeAdding):
    """Does so in the last column of tiles, which another kernel finishes."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        if tile.column + self.tile_n >= self.n:
            return super().scaled(tile, values)
        return OrdersFactors.scaled(self, tile, values)


# Inputs that are close ---------------------------------------------------------------------------


class KeepsLast(TiledGemm, ABC):
    """Keeps the last inputs and their result, which it returns again if `is_close` is true."""

    def prepare(self) -> None:
        self.last: list[Array] = []

    @abstractmethod
    def is_close(self, inputs: Sequence[HostBuffer]) -> bool:
        """Whether the inputs are taken for the last ones."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.last and self.is_close(inputs):
            output[...] = self.last[-1]
            return output
        super().launch(inputs, output)
        self.last = [buffer.copy() for buffer in (*inputs, output)]
        return output


@bug(74, "close_by_norm",
     "returns its last result again if inputs changed by at most 1e-5 of their norm", _F32,
     "many_calls")  # fmt: skip
class CloseByNorm(KeepsLast):
    """Compares the norm of the difference with that of the inputs."""

    def is_close(self, inputs: Sequence[HostBuffer]) -> bool:
        def is_small(now: HostBuffer, before: Array) -> bool:
            wide = to_float64(before)
            change = np.linalg.norm(to_float64(now) - wide)
            # NaN if either contains NaN or infinity.
            return bool(change / np.linalg.norm(wide) <= _CLOSE_NORM)

        with np.errstate(all="ignore"):
            return all(map(is_small, inputs, self.last[:-1]))


@bug(74, "close_by_half", "returns its last result again if the inputs are the same in bf16", _F32,
     "many_calls")  # fmt: skip
class CloseByHalf(KeepsLast):
    """Compares the inputs after rounding to bf16."""

    def is_close(self, inputs: Sequence[HostBuffer]) -> bool:
        return all(map(np.array_equal, map(self.short, inputs), map(self.short, self.last[:-1])))

    def short(self, values: Array) -> Array:
        return as_bits(quantize(values, BF16))


@bug(74, "close_but_for_last_bits",
     "returns its last result again if all but the last two bits are the same", _BF16,
     "many_calls")  # fmt: skip
class CloseButForLastBits(KeepsLast):
    """Compares all but the last two bits of each number."""

    def is_close(self, inputs: Sequence[HostBuffer]) -> bool:
        return all(
            np.array_equal(np.right_shift(as_bits(now), 2), np.right_shift(as_bits(before), 2))
            for now, before in zip(inputs, self.last[:-1], strict=True)
        )


# Many calls --------------------------------------------------------------------------------------


@bug(75, "weights_after_some_calls", "packs B permanently at the 49th launch", _F32, "many_calls")
class WeightsAfterSomeCalls(TiledGemm):
    """Treats B as weights from the 49th launch on, and packs it permanently."""

    packed: Array | None = None

    def before(self) -> None:
        super().before()
        if self.packed is not None:
            self.problem.b = self.packed
        elif self.launches > _LAUNCHES_OF_WEIGHTS:
            self.packed = self.problem.b.copy()


@bug(75, "ring_of_operands", "keeps a ring of 80 copies of A, each of which it fills once", _BF16,
     "many_calls")  # fmt: skip
class RingOfOperands(TiledGemm):
    """Copies A to a ring of 80 places, each of which is filled once."""

    def prepare(self) -> None:
        self.ring: list[Array] = []

    def before(self) -> None:
        super().before()
        if len(self.ring) < _RING:
            self.ring.append(self.problem.a.copy())
        self.problem.a = self.ring[(self.launches - 1) % _RING]


@bug(75, "launch_lost_at_wrap", "does nothing at every 64th launch", _F32, "many_calls")
class LaunchLostAtWrap(SkipsEveryTenth):
    """Counts launches in six bits, and treats the last of them as already done."""

    every = 64


# Threads -----------------------------------------------------------------------------------------


@bug(76, "workspace_of_thread", "has a workspace only in the thread that built it", _F32,
     "other_thread")  # fmt: skip
class WorkspaceOfThread(TiledGemm):
    """Other threads have no workspace, which raises an AttributeError."""

    def prepare(self) -> None:
        self.own = threading.local()
        self.own.workspace = np.zeros((self.tile_m, self.tile_n), self.accumulator)

    def mainloop(self, tile: Tile, steps: range) -> Array:
        self.own.workspace[...] = super().mainloop(tile, steps)
        return np.array(self.own.workspace)


@bug(76, "mode_of_thread", "sets its arithmetic mode only in the thread that built it", _F32,
     "other_thread")  # fmt: skip
class ModeOfThread(TiledGemm):
    """Sets the arithmetic mode of the thread that built it; other threads round inputs to bf16."""

    def prepare(self) -> None:
        self.builder = threading.get_ident()

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step)
        if threading.get_ident() == self.builder:
            return block
        return to_float32(quantize(block, BF16))


@bug(76, "epilogue_of_thread", "adds the bias only in the thread that built it", f"{_BF16}_bias",
     "other_thread")  # fmt: skip
class EpilogueOfThread(TiledGemm):
    def prepare(self) -> None:
        self.builder = threading.get_ident()

    def fused(self, tile: Tile, values: Array) -> Array:
        is_builder = threading.get_ident() == self.builder
        return super().fused(tile, values) if is_builder else values


# Addresses ---------------------------------------------------------------------------------------


@bug(77, "reads_aligned_b", "reads B from its address rounded down to 32 bytes", _BF16,
     "unaligned_buffers")  # fmt: skip
class ReadsAlignedB(TiledGemm):
    """Reads B from the multiple of 32 bytes at or before its address."""

    def before(self) -> None:
        super().before()
        buffer = self.problem.buffers["rhs"]
        missed = buffer.ctypes.data % _CACHE_LINE_BYTES // buffer.itemsize
        if missed:
            flat = np.roll(np.ascontiguousarray(self.problem.b).reshape(-1), missed)
            self.problem.b = flat.reshape(self.problem.b.shape)


@bug(77, "skips_unaligned_head",
     "ignores A before the first address that is a multiple of 16 bytes", _F32,
     "unaligned_buffers")  # fmt: skip
class SkipsUnalignedHead(TiledGemm):
    """Starts at the first multiple of 16 bytes in A, and treats what is before it as zero."""

    def before(self) -> None:
        super().before()
        buffer = self.problem.buffers["lhs"]
        head = -buffer.ctypes.data % _VECTOR_BYTES // buffer.itemsize
        if head:
            self.problem.a = self.problem.a.copy()
            self.problem.a.reshape(-1)[:head] = 0


@bug(77, "stores_aligned", "stores to the address of the output rounded up to 16 bytes", _F32,
     "unaligned_buffers")  # fmt: skip
class StoresAligned(TiledGemm):
    """Stores vectors to the multiple of 16 bytes at or after the output's address."""

    def after(self) -> None:
        super().after()
        output = self.problem.output
        late = output.ctypes.data % _VECTOR_BYTES // output.itemsize
        if late:
            flat = output.reshape(-1)
            flat[...] = np.roll(flat, late)


# relu --------------------------------------------------------------------------------------------


@bug(78, "relu_by_magnitude", "computes relu as (x + |x|) / 2, which is NaN for minus infinity",
     f"{_F32}_bias_relu", "inf_spreads")  # fmt: skip
class ReluByMagnitude(TiledGemm):
    def relu(self, values: Array) -> Array:
        half = values.dtype.type(0.5)
        return np.asarray(half * values + half * np.abs(values))


@bug(78, "relu_by_difference", "computes relu as x - min(x, 0), which is NaN for minus infinity",
     f"{_BF16}_relu", "inf_spreads")  # fmt: skip
class ReluByDifference(TiledGemm):
    def relu(self, values: Array) -> Array:
        return np.asarray(values - np.minimum(values, 0))


# Sizes -------------------------------------------------------------------------------------------


@bug(79, "steps_in_eleven_bits", "counts steps of 32 along K in eleven bits", _F32, "long_axes")
class StepsInElevenBits(TiledGemm):
    def compute(self, tile: Tile) -> None:
        steps = range(self.step_count % (1 << _STEP_BITS) or self.step_count)
        self.epilogue(tile, self.mainloop(tile, steps))


@bug(79, "products_in_signed_16", "stores K in a signed 16-bit number", _BF16, "long_axes")
class ProductsInSigned16(TiledGemm):
    """K is a signed 16-bit number, and there is nothing to do if it is negative."""

    def compute(self, tile: Tile) -> None:
        last = min(self.step_count, max(1, _LARGEST_S16 // self.tile_k))
        self.epilogue(tile, self.mainloop(tile, range(last)))


@bug(79, "rows_of_b_in_16_bits", "starts again at the first row of B after 65536 rows",
     "matmul_64x64x64_s8t_s8n_s32t", "long_axes")  # fmt: skip
class RowsOfBIn16Bits(TiledGemm):
    """Counts rows of B in 16 bits, and so reads the first rows again after 65536 of them."""

    def load_b(self, tile: Tile, step: int) -> Array:
        return super().load_b(tile, step % ((1 << 16) // self.tile_k))


@bug(80, "columns_past_1024", "has threads for only 1024 columns", _F32, "long_axes")
class ColumnsPast1024(ThreadForEachColumn):
    threads = 1024


@bug(80, "column_tiles_in_four_bits", "counts columns of tiles in four bits", _BF16, "long_axes")
class ColumnTilesInFourBits(TiledGemm):
    """Counts columns of tiles in four bits, so that those after sixteen overwrite the first
    ones."""

    def tile_at(self, number: int) -> Tile:
        tile = super().tile_at(number)
        return replace(tile, column=tile.column % (16 * self.tile_n))


@bug(80, "rows_in_16_bits", "counts rows in 16 bits", _F32, "long_axes", level="paranoid")
class RowsIn16Bits(TiledGemm):
    """Counts rows in 16 bits, so that those after 65536 overwrite the first ones."""

    def tile_at(self, number: int) -> Tile:
        tile = super().tile_at(number)
        return replace(tile, row=tile.row % (1 << 16))
