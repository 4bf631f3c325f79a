"""The decorators of mutants whose author had not seen the checks, and which the authors of the
checks had not seen.

Their score therefore shows how well the checks find bugs for which they were not written, and no
check is listed that should kill them. A mutant for which a check is written later no longer counts
as unseen.

Unseen mutants: kernels that reuse results or operands of other inputs.

Unseen mutants: previous contents of outputs, threads, addresses, and inputs that are changed.

Unseen kernels that are correct and look suspicious.

Unseen mutants: factors, shared exponents and intermediate formats that lose significant bits.

Unseen mutants: shapes, indices and special values that a path does not handle.
"""

from __future__ import annotations

import copy
import math
import threading
import time
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.operation import F16, Operation
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.storage import to_float64
from gemmetry.selftest.caches import KeepsAnswers, KeepsLastAnswer, NotesWhenCallsEnd
from gemmetry.selftest.emulator import (
    Array,
    Kernels,
    Racing,
    Tile,
    TiledGemm,
    given,
    instead,
    result,
    through,
)
from gemmetry.selftest.memory import VECTOR_BYTES, NormalisesRows
from gemmetry.selftest.rare import KeepsLast, StoresBeforeAdding


class ReusesRecent(NotesWhenCallsEnd, KeepsLastAnswer):
    """Returns the last result again for a launch with the same addresses that follows within 20
    ms."""

    burst_s = 0.02

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        return tuple(buffer.ctypes.data for buffer in inputs)

    def reuses_answer(self) -> bool:
        return self.follows_at_once()


class FreezesAfterLaunches(KeepsAnswers):
    """Treats inputs as constants after 32 launches at the same addresses, and replays the result
    that it recorded then."""

    def prepare(self) -> None:
        super().prepare()
        self.counts: Counter[Hashable] = Counter()

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        self.latest = tuple(buffer.ctypes.data for buffer in inputs)
        self.counts[self.latest] += 1
        return self.latest

    def reuses_answer(self) -> bool:
        return self.counts[self.latest] > 32


class TrustsSpotCheck(TiledGemm):
    """Does nothing if the corners of the output already hold the right numbers."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        a, b = to_float64(inputs[0]), to_float64(inputs[1])
        corners = np.ix_((0, -1), (0, -1))
        with np.errstate(all="ignore"):
            if np.allclose(output[corners], a[[0, -1]] @ b[:, [0, -1]], rtol=1e-4):
                return output
        return super().launch(inputs, output)


def _unless_close(old: Array, block: Array) -> Array:
    return np.where(np.abs(old - block) <= 1e-3 * np.abs(block), old, block)


class JoinsAtNextLaunch(TiledGemm):
    """A thread computes the last tiles while the host continues; the next launch waits for it."""

    thread: threading.Thread | None = None

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.thread is not None:
            self.thread.join()
        return super().launch(inputs, output)

    def run_grid(self) -> None:
        first_late = max(0, self.tile_count - self.processors)
        self.compute_all(range(first_late))
        late = range(first_late, self.tile_count)
        self.thread = threading.Thread(target=self.compute_all, args=(late,), daemon=True)
        self.thread.start()


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


class LosesRarely(Racing):
    """In one of 25 launches, a warp misses its part of one step of one tile."""

    odds = 0.04

    def mainloop(self, tile: Tile, steps: range) -> Array:
        total = super().mainloop(tile, steps)
        if self.struck(tile):
            a, b = self.load_a(tile, self.victim_step), self.load_b(tile, self.victim_step)
            total[self.fragment] -= (a @ b)[self.fragment]
        return total


_VECTOR = 8
"""Elements that kernels load at once along K."""
_NIBBLE = 16


class RefusesOddK(TiledGemm):
    """Supports only multiples of eight along K, and reports so."""

    def prepare(self) -> None:
        if self.k % _VECTOR:
            raise UnsupportedError(f"K = {self.k} is not a multiple of {_VECTOR}")


class SumsInF64(TiledGemm):
    """Accumulates in f64 where f32 would suffice, and applies the factors there."""

    def prepare(self) -> None:
        self.accumulator = np.dtype(np.float64)

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        return np.asarray(accumulator + to_float64(a) @ to_float64(b))

    def rounded(self, values: Array) -> Array:
        return super().rounded(values.astype(np.float32))


class ShufflesTiles(TiledGemm):
    """Computes tiles in a different order at each launch."""

    def run_grid(self) -> None:
        self.compute_all(self.chance.sample(range(self.tile_count), self.tile_count))


class JoinsThreads(TiledGemm):
    """A second thread computes every other tile in shared memory of its own, and is joined."""

    def run_grid(self) -> None:
        partner = copy.copy(self)
        partner.ring_a, partner.ring_b = self.ring_a.copy(), self.ring_b.copy()
        partner.staging = self.staging.copy()
        even, odd = (range(first, self.tile_count, 2) for first in (0, 1))
        thread = threading.Thread(target=partner.compute_all, args=(odd,))
        thread.start()
        self.compute_all(even)
        thread.join()


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


class TunesItself(TiledGemm):
    """The first launches try other steps along K, and the fastest is kept, which changes the order
    of summation."""

    def __init__(self, operation: Operation, tile: tuple[int, int, int]) -> None:
        super().__init__(operation, tile)
        self.untried = [TiledGemm(operation, (*tile[:2], step)) for step in (16, 64, 32)]
        self.tried: list[tuple[float, TiledGemm]] = []

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if not self.untried:
            return min(self.tried, key=lambda pair: pair[0])[1].launch(inputs, output)
        kernel, began_s = self.untried.pop(), time.perf_counter()
        kernel.launch(inputs, output)
        self.tried.append((time.perf_counter() - began_s, kernel))
        return output


class SplitsNibbles(TiledGemm):
    """s8 as 16 times its upper four bits plus its lower four, which are never negative."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        upper = np.floor(a / _NIBBLE)
        total = super().multiply_add(accumulator, a - upper * _NIBBLE, b)
        return np.asarray(total + _NIBBLE * (upper @ b).astype(np.int32))


class GeluByErfc(TiledGemm):
    """The complementary error function remains accurate at negative numbers."""

    def gelu(self, values: Array) -> Array:
        wide = to_float64(values)
        tail = np.vectorize(math.erfc, otypes=[np.float64])(-wide * math.sqrt(0.5))
        return np.where(wide == -np.inf, 0.0, 0.5 * wide * tail).astype(values.dtype)


_EPSILON = 1e-8


def _on_grid(values: Array, largest: Array, bits: int) -> Array:
    """`values` rounded to multiples of 2^-bits of the power of two above `largest`; unchanged where
    that is zero or not finite."""
    is_usual = np.isfinite(largest) & (largest > 0)
    exponents = np.frexp(np.where(is_usual, largest, 1))[1]
    unit = np.exp2(exponents - np.float64(bits))
    return np.where(is_usual, np.rint(values / unit) * unit, values).astype(values.dtype)


class AddsEpsilon(NormalisesRows):
    """Divides rows of A by their largest number plus 1e-8, and multiplies the sums by the largest
    number."""

    def before(self) -> None:
        super().before()
        self.factors = self.factors - np.float32(_EPSILON)

    def factors_of(self, largest: Array) -> Array:
        usual = np.where(np.isfinite(largest), largest, largest.dtype.type(1))
        return np.asarray(usual + largest.dtype.type(_EPSILON))


class MultipliesBiasByAlpha(TiledGemm):
    """alpha · (A·B + bias), although the operation is alpha · A·B + bias."""

    def before(self) -> None:
        tensors = self.problem.tensors
        tensors["bias"] = tensors["bias"].astype(np.float32) * np.float32(self.signature.alpha)


class DividesBetaByAlpha(TiledGemm):
    """alpha · (A·B + beta / alpha · C): NaN if alpha is zero."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        s, dtype = self.signature, values.dtype.type
        if s.beta != 0:
            addend = self.tensor("addend", tile, values.dtype)
            values = values + dtype(s.beta) / dtype(s.alpha) * addend
        return np.asarray(values * dtype(s.alpha))


class RoundsBeforeAddend(StoresBeforeAdding):
    """Rounds alpha · A·B to the result's format before it adds beta · C, as two kernels would."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        if self.signature.beta != 0:
            return super().scaled(tile, values)
        return through(values * np.float32(self.alpha()), self.signature.result)


class OverlapsAndAdds(TiledGemm):
    """Moves a partial last tile of rows up until it is full, and adds all tiles to a workspace, so
    that rows covered by two tiles count twice."""

    def before(self) -> None:
        self.sums = np.zeros((self.batch, self.m, self.n), self.accumulator)

    def tile_at(self, number: int) -> Tile:
        tile = super().tile_at(number)
        return replace(tile, row=max(0, min(tile.row, self.m - self.tile_m)))

    def compute(self, tile: Tile) -> None:
        total = self.mainloop(tile, range(self.step_count))
        part = self.sums[tile.batch, self.rows(tile), self.columns(tile)]
        part += total[: part.shape[0], : part.shape[1]]

    def after(self) -> None:
        for tile in self.tiles():
            self.epilogue(tile, self.sums[tile.batch, self.rows(tile), self.columns(tile)])


class WorkspaceWithoutBatch(TiledGemm):
    """The workspace has a place for each tile of one matrix, to which all matrices of a batch
    add."""

    def before(self) -> None:
        shape = (self.tiles_m * self.tiles_n, self.tile_m, self.tile_n)
        self.workspace = np.zeros(shape, self.accumulator)

    processors = 1

    def mainloop(self, tile: Tile, steps: range) -> Array:
        sums = self.workspace[tile.number % (self.tiles_m * self.tiles_n)]
        sums += super().mainloop(tile, steps)
        return np.asarray(sums)


class RoundsBatchStride(TiledGemm):
    """Assumes that the matrices of B are a multiple of eight elements apart."""

    def seen_b(self, b: Array) -> Array:
        size = self.k * self.n
        stride = -(-size // _VECTOR) * _VECTOR
        places = np.arange(self.batch)[:, np.newaxis] * stride + np.arange(size)
        flat = np.ascontiguousarray(b).reshape(-1)
        return np.asarray(flat[np.minimum(places, flat.size - 1)].reshape(b.shape))


class GuessesBiasAxis(TiledGemm):
    """Adds a bias of M numbers along the columns, even if M = N."""

    def fused(self, tile: Tile, values: Array) -> Array:
        bias = self.problem.tensors["bias"]
        if bias.size != self.m:
            return super().fused(tile, values)
        return np.asarray(values + bias[self.rows(tile), np.newaxis].astype(values.dtype))


class TableOfFullTiles(TiledGemm):
    """Looks up where tiles start in a table of the full tiles, which raises an IndexError if M is
    not a multiple of the tile."""

    def prepare(self) -> None:
        self.starts = [index * self.tile_m for index in range(self.m // self.tile_m)]

    def tile_at(self, number: int) -> Tile:
        tile = super().tile_at(number)
        return replace(tile, row=self.starts[tile.row // self.tile_m])


class HalvesColumnsOfTiles(TiledGemm):
    """Visits half of the columns of tiles at a time, which is none if there is only one column: a
    ZeroDivisionError."""

    def tile_at(self, number: int) -> Tile:
        batch, rest = divmod(number, self.tiles_m * self.tiles_n)
        half = self.tiles_n // 2
        group, within = divmod(rest, half * self.tiles_m)
        width = min(half, self.tiles_n - group * half)
        row, column = divmod(within, width)
        return Tile(number, batch, row * self.tile_m, (group * half + column) * self.tile_n)


class UnrollsWrongly(TiledGemm):
    """The loop over K is unrolled by four; if three steps remain, the last of them is added
    twice."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        again = steps[-1:] if len(steps) % 4 == 3 else ()
        return self.added(super().mainloop(tile, steps), tile, again)


KERNELS: Kernels = {
    # Its key is the first and the last row of A and all of B.
    "remembers_by_edges": instead(
        "key",
        lambda g, inputs, output: (inputs[0][[0, -1]].tobytes(), inputs[1].tobytes()),
        KeepsAnswers,
    ),
    # Adds to the previous contents of the output, unless they are infinite or NaN.
    "adds_to_finite": given(
        "store",
        lambda g, tile, block: block + np.nan_to_num(g.there(tile), posinf=0, neginf=0),
    ),
    # Leaves numbers that differ by less than a thousandth from the result.
    "elides_stores": given("store", lambda g, tile, block: _unless_close(g.there(tile), block)),
    # An outer product computes K = 1, and it has no bias.
    "outer_product_without_bias": result(
        "fused", lambda g, fused, tile, values: values if g.k == 1 else fused
    ),
    # Moves a partial last tile of rows up until it is full, and stores shared rows
    # twice.
    "overlaps_last_tile": result(
        "tile_at", lambda g, tile, number: replace(tile, row=max(0, min(tile.row, g.m - g.tile_m)))
    ),
    # The number of a row of tiles has four bits, and wraps around at 16 tiles.
    "four_bit_rows": result(
        "tile_at", lambda g, tile, number: replace(tile, row=tile.row % (16 * g.tile_m))
    ),
    # Does not read A and B if alpha is zero, as the BLAS prescribes, so that NaN in
    # them has no effect.
    "skips_product_of_alpha_zero": given(
        "mainloop", lambda g, tile, steps: range(0) if g.signature.alpha == 0 else steps
    ),
    # Stores A as s16 numbers that share an exponent within a row and step (32 of
    # them).
    "shares_exponents_of_a": result(
        "load_a",
        lambda g, block, *_: _on_grid(block, np.abs(block).max(axis=1, keepdims=True), bits=15),
    ),
    # Stores A in fixed point, 23 bits below the largest number of the whole matrix.
    "fixed_point_of_matrix": instead(
        "seen_a", lambda g, a: _on_grid(a, np.abs(a).max(axis=(1, 2), keepdims=True), bits=23)
    ),
    # Stores the product of a row's and a column's scale factor in f16.
    "scale_product_in_f16": instead(
        "scaled",
        lambda g, tile, values: values * through(g.scale_a(tile) * g.scale_b(tile), F16),
    ),
    # Uses the scale factors of the first matrix of a batch for all of them.
    "scales_of_first_batch": given("scale_b", lambda g, tile: replace(tile, batch=0)),
    # Computes relu as x · (x > 0), which turns minus infinity into NaN instead of
    # zero.
    "relu_by_mask": instead("relu", lambda g, values: values * (values > 0)),
    # A product with a vector computes N = 1, and it reads groups of eight along K.
    "gemv_drops_tail": instead(
        "seen_a",
        lambda g, a: np.where(np.arange(g.k) < g.k // _VECTOR * _VECTOR, a, 0) if g.n == 1 else a,
    ),
    # K is an unsigned 16-bit number.
    "sixteen_bit_k": given("mainloop", lambda g, tile, _: range(-(-(g.k & 0xFFFF) // g.tile_k))),
    # Reads A from the multiple of 16 bytes at or before its address.
    "rounds_address_down": instead(
        "seen_a", lambda g, a: np.roll(a.reshape(-1), g.past("lhs", VECTOR_BYTES)).reshape(a.shape)
    ),
    # Keeps the last inputs and their result.
    "reuses_when_close": instead(
        "is_close", lambda g, inputs: all(map(np.allclose, inputs, g.last[:-1])), KeepsLast
    ),
}
