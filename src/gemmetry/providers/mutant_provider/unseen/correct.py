"""Unseen kernels that are correct and look suspicious."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmetry.devices.host import HostBuffer
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Trait
from gemmetry.numerics.storage import to_float64
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm
from gemmetry.providers.mutant_provider.unseen.kernels import (
    ON_BF16,
    ON_F32,
    ON_FACTORS,
    ON_ROW_SCALES,
    tricky,
)

_VECTOR = 8
_NIBBLE = 16
_TUNED_STEPS = (16, 64, 32)


@tricky(1, "overlap_stored_twice", "stores rows that two tiles share twice, with the same values",
        "matmul_100x96x64_f32t_f32t_f32t")  # fmt: skip
class OverlapsLastTile(TiledGemm):
    """Moves a partial last tile of rows up until it is full, and stores shared rows twice."""

    def tile_at(self, number: int) -> Tile:
        tile = super().tile_at(number)
        return replace(tile, row=max(0, min(tile.row, self.m - self.tile_m)))


@tricky(2, "refuses_odd_k", "rejects K that is not a multiple of 8 before any launch", ON_BF16)
class RefusesOddK(TiledGemm):
    """Supports only multiples of eight along K, and reports so."""

    def prepare(self) -> None:
        if self.k % _VECTOR:
            raise UnsupportedError(
                f"K = {self.k} is not a multiple of {_VECTOR}, which the kernel needs"
            )


@tricky(3, "alpha_zero_not_read", "does not read A and B if alpha is zero, as the BLAS prescribes",
        f"{ON_F32}_alpha0_beta2")  # fmt: skip
class SkipsProductOfAlphaZero(TiledGemm):
    """Does not read A and B if alpha is zero, as the BLAS prescribes, so that NaN in them has no
    effect."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        return super().mainloop(tile, range(0) if self.signature.alpha == 0 else steps)


@tricky(4, "packed_b_compared", "reuses the packed B only after comparing every byte", ON_F32)
class ComparesPackedB(TiledGemm):
    """Keeps B packed for as long as all of its bytes are the same, which it checks each time."""

    def prepare(self) -> None:
        self.content = b""
        self.packed: Array | None = None

    def before(self) -> None:
        super().before()
        content = self.problem.buffers["rhs"].tobytes()
        if self.packed is None or content != self.content:
            self.content, self.packed = content, self.problem.b.copy()
        self.problem.b = self.packed


@tricky(5, "f64_sums", "accumulates and scales in f64, which is more than promised", ON_ROW_SCALES)
@tricky(12, "f64_factors", "multiplies by alpha and beta in f64 as well", ON_FACTORS)
class SumsInF64(TiledGemm):
    """Accumulates in f64 where f32 would suffice, and applies the factors there."""

    def prepare(self) -> None:
        self.accumulator = np.dtype(np.float64)

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        return np.asarray(accumulator + to_float64(a) @ to_float64(b))

    def rounded(self, values: Array) -> Array:
        return super().rounded(values.astype(np.float32))


@tricky(6, "tiles_shuffled", "computes independent tiles in a different order at each launch",
        ON_BF16)  # fmt: skip
class ShufflesTiles(TiledGemm):
    """Computes tiles in a different order at each launch."""

    def run_grid(self) -> None:
        for number in self.chance.sample(range(self.tile_count), self.tile_count):
            self.compute(self.tile_at(number))


@tricky(7, "threads_joined", "computes in two threads and joins both before it returns", ON_F32)
class JoinsThreads(TiledGemm):
    """A second thread computes every other tile in shared memory of its own, and is joined."""

    def run_grid(self) -> None:
        partner = copy.copy(self)
        partner.ring_a, partner.ring_b = self.ring_a.copy(), self.ring_b.copy()
        partner.staging = self.staging.copy()
        thread = threading.Thread(target=partner.compute_every_other, args=(1,))
        thread.start()
        self.compute_every_other(0)
        thread.join()

    def compute_every_other(self, first: int) -> None:
        with np.errstate(all="ignore"):
            for number in range(first, self.tile_count, 2):
                self.compute(self.tile_at(number))


@tricky(8, "sums_kept_in_output", "keeps partial sums in the output, and reads only those back",
        ON_F32)  # fmt: skip
class KeepsSumsInOutput(TiledGemm):
    """Stores the sums over half of K in the output, and reads them back to continue."""

    def run_grid(self) -> None:
        half = self.step_count // 2
        for tile in self.tiles():
            sums = self.mainloop(tile, range(half))
            self.store(tile, sums[: self.m - tile.row, : self.n - tile.column])
        for tile in self.tiles():
            kept = self.there(tile)
            sums = self.mainloop(tile, range(half, self.step_count))
            self.epilogue(tile, kept + sums[: kept.shape[0], : kept.shape[1]])


@tricky(9, "tunes_itself", "changes the order of summation during the first launches, as declared",
        ON_F32, Trait.NONDETERMINISTIC)  # fmt: skip
class TunesItself(TiledGemm):
    """The first launches try other steps along K, and the fastest is kept, which changes the order
    of summation."""

    def __init__(self, operation: Operation, tile: tuple[int, int, int]) -> None:
        super().__init__(operation, tile)
        self.untried = [TiledGemm(operation, (*tile[:2], step)) for step in _TUNED_STEPS]
        self.tried: list[tuple[float, TiledGemm]] = []

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if not self.untried:
            return min(self.tried, key=lambda pair: pair[0])[1].launch(inputs, output)
        kernel, began_s = self.untried.pop(), time.perf_counter()
        kernel.launch(inputs, output)
        self.tried.append((time.perf_counter() - began_s, kernel))
        return output


@tricky(10, "s8_nibbles", "splits s8 numbers into two parts, whose products are exact",
        "matmul_128x128x128_s8t_s8t_s32t")  # fmt: skip
class SplitsNibbles(TiledGemm):
    """s8 as 16 times its upper four bits plus its lower four, which are never negative."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        upper = np.floor(a / np.float32(_NIBBLE))
        total = super().multiply_add(accumulator, a - upper * np.float32(_NIBBLE), b)
        return np.asarray(total + _NIBBLE * (upper @ b).astype(np.int32))


@tricky(11, "gelu_by_erfc", "computes gelu with the complementary error function", f"{ON_F32}_gelu")
class GeluByErfc(TiledGemm):
    """The complementary error function remains accurate at negative numbers."""

    def gelu(self, values: Array) -> Array:
        wide = to_float64(values)
        tail = np.vectorize(math.erfc, otypes=[np.float64])(-wide * math.sqrt(0.5))
        return np.where(wide == -np.inf, 0.0, 0.5 * wide * tail).astype(values.dtype)
