"""Mutants on the host: kernels that fail only for rare values, calls, threads, addresses and
sizes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmetry.devices.host import HostBuffer
from gemmetry.domain.dtypes import BF16, F16
from gemmetry.domain.operation import Scaling
from gemmetry.numerics.storage import as_bits, quantize, to_float32, to_float64
from gemmetry.providers.mutant_provider.host.callers import SkipsEveryTenth
from gemmetry.providers.mutant_provider.host.edges import ThreadForEachColumn
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm
from gemmetry.providers.mutant_provider.host.factors import OrdersFactors
from gemmetry.providers.mutant_provider.host.kernels import bug

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
