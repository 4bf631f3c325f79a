"""Planted on the host: kernels that are right but for values, calls, threads, addresses and sizes
that are rare. What is special about each stands in its first line."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gemmetry.devices.host import HostBuffer
from gemmetry.domain.dtypes import BF16, F16
from gemmetry.domain.operation import Operation, Scaling
from gemmetry.numerics.storage import as_bits, quantize, to_float32, to_float64
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm
from gemmetry.providers.mutant_provider.host.factors import OrdersFactors

_SMALLEST_FACTOR = 2.0**-12
_LAUNCHES_OF_WEIGHTS = 48
_RING = 80
_LAST_LAUNCH = 63
_CLOSE_NORM = 1e-5
_CACHE_LINE_BYTES = 32
_VECTOR_BYTES = 16
_STEP_BITS = 11
_LARGEST_S16 = 2**15 - 1
_THREADS = 1024


# Scale factors ----------------------------------------------------------------------------------


class FactorsInBf16(TiledGemm):
    """Keeps scale factors in bf16, where they are powers of two as well as not."""

    def scale_a(self, tile: Tile) -> Array:
        return to_float32(quantize(super().scale_a(tile), BF16))

    def scale_b(self, tile: Tile) -> Array:
        return to_float32(quantize(super().scale_b(tile), BF16))


class FactorsClamped(TiledGemm):
    """Takes factors of B below 2^-12 for that, so that nothing is divided by zero elsewhere."""

    def scale_b(self, tile: Tile) -> Array:
        factors = super().scale_b(tile)
        smallest = factors.dtype.type(_SMALLEST_FACTOR)
        return np.where(np.abs(factors) < smallest, np.copysign(smallest, factors), factors)


class RowsScaledInF16(TiledGemm):
    """Keeps a row's sum times the row's factor in f16, before the column's factor."""

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
        return np.asarray(stored + values.dtype.type(self.beta()) * self.addend(tile, values.dtype))


class StoresFirstTilesBeforeAdding(StoresBeforeAdding):
    """Does so in the first row of tiles, which another kernel finishes."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        if tile.row == 0:
            return super().scaled(tile, values)
        return OrdersFactors.scaled(self, tile, values)


class StoresLastTilesBeforeAdding(StoresBeforeAdding):
    """Does so in the last column of tiles, which another kernel finishes."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        if tile.column + self.tile_n >= self.n:
            return super().scaled(tile, values)
        return OrdersFactors.scaled(self, tile, values)


# Inputs that are close ---------------------------------------------------------------------------


class KeepsLast(TiledGemm):
    """Keeps the last inputs and result, and gives that again where `is_close` says so."""

    def __init__(self, operation: Operation, tile: tuple[int, int, int]) -> None:
        super().__init__(operation, tile)
        self.last: list[Array] = []

    def is_close(self, inputs: Sequence[HostBuffer]) -> bool:
        raise NotImplementedError

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.last and self.is_close(inputs):
            output[...] = self.last[-1]
            return output
        super().launch(inputs, output)
        self.last = [buffer.copy() for buffer in (*inputs, output)]
        return output


class CloseByNorm(KeepsLast):
    """Close is where the norm of the difference is small against that of the inputs."""

    def is_close(self, inputs: Sequence[HostBuffer]) -> bool:
        def is_small(now: HostBuffer, before: Array) -> bool:
            wide = to_float64(before)
            change = np.linalg.norm(to_float64(now) - wide)
            # NaN where either holds one, or infinity.
            return bool(change / np.linalg.norm(wide) <= _CLOSE_NORM)

        with np.errstate(all="ignore"):
            return all(map(is_small, inputs, self.last[:-1]))


class CloseByHalf(KeepsLast):
    """Close is what is the same bytes in bf16."""

    def is_close(self, inputs: Sequence[HostBuffer]) -> bool:
        return all(map(np.array_equal, map(self.short, inputs), map(self.short, self.last[:-1])))

    def short(self, values: Array) -> Array:
        return as_bits(quantize(values, BF16))


class CloseButForLastBits(KeepsLast):
    """Close is what is the same but for the last two bits of each number."""

    def is_close(self, inputs: Sequence[HostBuffer]) -> bool:
        return all(
            np.array_equal(np.right_shift(as_bits(now), 2), np.right_shift(as_bits(before), 2))
            for now, before in zip(inputs, self.last[:-1], strict=True)
        )


# Many calls --------------------------------------------------------------------------------------


class WeightsAfterSomeCalls(TiledGemm):
    """Takes B for weights from the 49th launch on, and packs it for good."""

    packed: Array | None = None

    def before(self) -> None:
        super().before()
        if self.packed is not None:
            self.problem.b = self.packed
        elif self.launches > _LAUNCHES_OF_WEIGHTS:
            self.packed = self.problem.b.copy()


class RingOfOperands(TiledGemm):
    """Copies A to a ring of 80 places, each of which is filled once."""

    def __init__(self, operation: Operation, tile: tuple[int, int, int]) -> None:
        super().__init__(operation, tile)
        self.ring: list[Array] = []

    def before(self) -> None:
        super().before()
        if len(self.ring) < _RING:
            self.ring.append(self.problem.a.copy())
        self.problem.a = self.ring[(self.launches - 1) % _RING]


class LaunchLostAtWrap(TiledGemm):
    """Counts launches in six bits, and takes the last of them for one that is done."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.launches % (_LAST_LAUNCH + 1) == _LAST_LAUNCH:
            self.launches += 1
            return output
        return super().launch(inputs, output)


# Threads -----------------------------------------------------------------------------------------


class WorkspaceOfThread(TiledGemm):
    """Has its workspace in the thread that built it; others have none: an AttributeError."""

    def __init__(self, operation: Operation, tile: tuple[int, int, int]) -> None:
        super().__init__(operation, tile)
        self.own = threading.local()
        self.own.workspace = np.zeros((self.tile_m, self.tile_n), self.accumulator)

    def mainloop(self, tile: Tile, steps: range) -> Array:
        self.own.workspace[...] = super().mainloop(tile, steps)
        return np.array(self.own.workspace)


class ModeOfThread(TiledGemm):
    """Sets the arithmetic of the thread that built it; others round inputs to bf16."""

    def __init__(self, operation: Operation, tile: tuple[int, int, int]) -> None:
        super().__init__(operation, tile)
        self.builder = threading.get_ident()

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step)
        if threading.get_ident() == self.builder:
            return block
        return to_float32(quantize(block, BF16))


class EpilogueOfThread(TiledGemm):
    """Adds the bias in the thread that built it only."""

    def __init__(self, operation: Operation, tile: tuple[int, int, int]) -> None:
        super().__init__(operation, tile)
        self.builder = threading.get_ident()

    def fused(self, tile: Tile, values: Array) -> Array:
        is_builder = threading.get_ident() == self.builder
        return super().fused(tile, values) if is_builder else values


# Addresses ---------------------------------------------------------------------------------------


class ReadsAlignedB(TiledGemm):
    """Reads B from the multiple of 32 bytes at or before its address."""

    def before(self) -> None:
        super().before()
        buffer = self.problem.buffers["rhs"]
        missed = buffer.ctypes.data % _CACHE_LINE_BYTES // buffer.itemsize
        if missed:
            flat = np.roll(np.ascontiguousarray(self.problem.b).reshape(-1), missed)
            self.problem.b = flat.reshape(self.problem.b.shape)


class SkipsUnalignedHead(TiledGemm):
    """Begins at the first multiple of 16 bytes of A, and takes what is before it for zero."""

    def before(self) -> None:
        super().before()
        buffer = self.problem.buffers["lhs"]
        head = -buffer.ctypes.data % _VECTOR_BYTES // buffer.itemsize
        if head:
            self.problem.a = self.problem.a.copy()
            self.problem.a.reshape(-1)[:head] = 0


class StoresAligned(TiledGemm):
    """Stores vectors to the multiple of 16 bytes behind the output's address."""

    def after(self) -> None:
        super().after()
        output = self.problem.output
        late = output.ctypes.data % _VECTOR_BYTES // output.itemsize
        if late:
            flat = output.reshape(-1)
            flat[...] = np.roll(flat, late)


# relu --------------------------------------------------------------------------------------------


class ReluByMagnitude(TiledGemm):
    """relu as (x + |x|) / 2: minus infinity becomes NaN."""

    def relu(self, values: Array) -> Array:
        half = values.dtype.type(0.5)
        return np.asarray(half * values + half * np.abs(values))


class ReluByDifference(TiledGemm):
    """relu as x - min(x, 0): minus infinity becomes NaN."""

    def relu(self, values: Array) -> Array:
        return np.asarray(values - np.minimum(values, 0))


# Sizes -------------------------------------------------------------------------------------------


class StepsInElevenBits(TiledGemm):
    """Counts steps along K in eleven bits."""

    def compute(self, tile: Tile) -> None:
        steps = range(self.step_count % (1 << _STEP_BITS) or self.step_count)
        self.epilogue(tile, self.mainloop(tile, steps))


class ProductsInSigned16(TiledGemm):
    """K is a signed number of 16 bits, and there is nothing to do where it is negative."""

    def compute(self, tile: Tile) -> None:
        last = min(self.step_count, max(1, _LARGEST_S16 // self.tile_k))
        self.epilogue(tile, self.mainloop(tile, range(last)))


class RowsOfBIn16Bits(TiledGemm):
    """Counts rows of B in 16 bits: reads the first ones again behind 65536 of them."""

    def load_b(self, tile: Tile, step: int) -> Array:
        return super().load_b(tile, step % ((1 << 16) // self.tile_k))


class ColumnsPast1024(TiledGemm):
    """Has 1024 threads, one for each column: what lies behind them is never written."""

    def store(self, tile: Tile, block: Array) -> None:
        if tile.column < _THREADS:
            super().store(tile, block)


class ColumnTilesInFourBits(TiledGemm):
    """Counts columns of tiles in four bits: those behind sixteen go over the first ones."""

    def tile_at(self, number: int) -> Tile:
        tile = super().tile_at(number)
        return Tile(tile.number, tile.batch, tile.row, tile.column % (16 * self.tile_n))


class RowsIn16Bits(TiledGemm):
    """Counts rows in 16 bits: stores those behind 65536 over the first ones."""

    def tile_at(self, number: int) -> Tile:
        tile = super().tile_at(number)
        return Tile(tile.number, tile.batch, tile.row % (1 << 16), tile.column)


KERNELS: Mapping[str, type[TiledGemm]] = {
    "factors_in_bf16": FactorsInBf16,
    "small_factors_clamped": FactorsClamped,
    "rows_scaled_in_f16": RowsScaledInF16,
    "first_tiles_stored_before": StoresFirstTilesBeforeAdding,
    "last_tiles_stored_before": StoresLastTilesBeforeAdding,
    "close_by_norm": CloseByNorm,
    "close_by_half": CloseByHalf,
    "close_but_for_last_bits": CloseButForLastBits,
    "weights_after_some_calls": WeightsAfterSomeCalls,
    "ring_of_operands": RingOfOperands,
    "launch_lost_at_wrap": LaunchLostAtWrap,
    "workspace_of_thread": WorkspaceOfThread,
    "mode_of_thread": ModeOfThread,
    "epilogue_of_thread": EpilogueOfThread,
    "reads_aligned_b": ReadsAlignedB,
    "skips_unaligned_head": SkipsUnalignedHead,
    "stores_aligned": StoresAligned,
    "relu_by_magnitude": ReluByMagnitude,
    "relu_by_difference": ReluByDifference,
    "steps_in_eleven_bits": StepsInElevenBits,
    "products_in_signed_16": ProductsInSigned16,
    "rows_of_b_in_16_bits": RowsOfBIn16Bits,
    "columns_past_1024": ColumnsPast1024,
    "column_tiles_in_four_bits": ColumnTilesInFourBits,
    "rows_in_16_bits": RowsIn16Bits,
}
"""Slug of a planted kernel -> its class."""
