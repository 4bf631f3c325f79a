"""Kernels on the host that are correct but easy to mistake for wrong. Split-k and stream-k are in
``splits``.

Mutants on the host, correct and wrong: blocks that share the sum of one tile, as in split-k.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from gemmetry.domain.operation import BF16, F32
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.storage import numpy_dtype, quantize, to_float32, to_float64
from gemmetry.selftest.arithmetic import FP8_SUM_BITS, Tf32Inputs, TruncatesSums
from gemmetry.selftest.emulator import (
    Array,
    Kernels,
    Racing,
    Tile,
    TiledGemm,
    given,
    instead,
    padded,
)
from gemmetry.selftest.scale import FlushesInputs, FlushesResults

PROMOTION_INTERVAL = 128
"""The products after which an fp8 sum moves to float32 (DeepSeek-V3 report, section 3.5.2)."""


class ReversedK(TiledGemm):
    def mainloop(self, tile: Tile, steps: range) -> Array:
        total = np.zeros((self.tile_m, self.tile_n), self.accumulator)
        for step in reversed(steps):
            total = self.multiply_add(total, self.load_a(tile, step), self.load_b(tile, step))
        return total


class KahanSum(TiledGemm):
    """Compensated summation over the steps (Kahan 1965)."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        total = np.zeros((self.tile_m, self.tile_n), self.accumulator)
        lost = np.zeros_like(total)
        for step in steps:
            term = self.load_a(tile, step) @ self.load_b(tile, step) - lost
            following = total + term
            # A sum that overflowed or is NaN has nothing to compensate.
            lost = np.where(np.isfinite(following), (following - total) - term, 0)
            total = following
        return total


class PairwiseSum(TiledGemm):
    def mainloop(self, tile: Tile, steps: range) -> Array:
        if len(steps) < 2:
            return super().mainloop(tile, steps)
        middle = len(steps) // 2
        return self.mainloop(tile, steps[:middle]) + self.mainloop(tile, steps[middle:])


class TruncatingSums(TruncatesSums):
    """Adds a block of products exactly and truncates the sum to 24 bits, as tensor cores do."""

    block = 16
    bits = F32.significand_bits


class Tf32TensorCore(TruncatingSums):
    """Uses tf32 inputs, eight products at a time."""

    block = 8


class Tf32ByPolicy(Tf32Inputs, Tf32TensorCore):
    """Rounds f32 inputs to tf32, as it declares."""


class ThreeBf16(TiledGemm):
    """Splits each f32 number into the sum of three bf16 numbers, which have nine products (cuBLAS'
    bf16x9).

    Splitting truncates, so that no part overflows. Infinity and NaN cannot be split: a step that
    contains one is multiplied in f32.
    """

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return super().multiply_add(accumulator, a, b)
        parts_a, parts_b = self.split(a), self.split(b)
        pairs = sorted(product(range(3), repeat=2), key=sum, reverse=True)  # smallest first
        for i, j in pairs:
            accumulator = super().multiply_add(accumulator, parts_a[i], parts_b[j])
        return accumulator

    def split(self, block: Array) -> list[Array]:
        parts = []
        rest = np.ascontiguousarray(block, np.float32)
        for _ in range(3):
            part = (rest.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
            rest = rest - part
            parts.append(part)
        return parts


class PromotedFp8(TruncatesSums):
    """Accumulates in 14 bits and moves the sum to float32 every 128 products."""

    block = 32
    """The k of Hopper's fp8 instructions."""
    bits = FP8_SUM_BITS

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        zeros = np.zeros(accumulator.shape)
        for start in range(0, a.shape[1], PROMOTION_INTERVAL):
            part = slice(start, start + PROMOTION_INTERVAL)
            accumulator = accumulator + super().multiply_add(zeros, a[:, part], b[part])
        return accumulator


class StochasticRounding(TiledGemm):
    """Rounds to bf16 up or down, with probabilities given by the distances."""

    def prepare(self) -> None:
        self.dice = np.random.default_rng()

    def rounded(self, values: Array) -> Array:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        added = self.dice.integers(0, 2**16, bits.shape, dtype=np.uint32)
        chosen = ((bits + added) & np.uint32(0xFFFF0000)).view(np.float32)
        return quantize(np.where(np.isfinite(values), chosen, values), BF16)


class NegativeZeros(TiledGemm):
    """Zeros have a minus sign, and NaN has a payload of its own."""

    def relu(self, values: Array) -> Array:
        return np.where(values < 0, values.dtype.type(-0.0), values)

    def rounded(self, values: Array) -> Array:
        block = super().rounded(np.where(values == 0, values.dtype.type(-0.0), values)).copy()
        bits = block.view(np.uint32)
        bits[np.isnan(block)] = np.uint32(0xFFC0BEEF)
        return block


class Saturating(TiledGemm):
    """Casts to e4m3 saturate at its largest number, as CUDA's conversions do by default."""

    def rounded(self, values: Array) -> Array:
        largest = self.signature.result.maximum
        return super().rounded(np.clip(values, -largest, largest))


class SwapsOperands(TiledGemm):
    """Computes tiles of the transposed product, Bᵀ·Aᵀ, as kernels for few rows do."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        swapped = super().multiply_add(accumulator.T, b.T, a.T)
        return np.asarray(swapped.T)


class ReturnsView(TiledGemm):
    """Computes into memory of its own whose rows are longer than N, and returns a view of it."""

    writes_output = False

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        shape = (*output.shape[:-1], output.shape[-1] + 24)
        view = np.empty(shape, output.dtype)[..., : output.shape[-1]]
        return super().launch(inputs, view)


class StoresWholeTiles(TiledGemm):
    """Stores whole tiles to a padded buffer of its own, and copies the result from there."""

    def before(self) -> None:
        super().before()
        shape = (self.batch, self.tiles_m * self.tile_m, self.tiles_n * self.tile_n)
        self.own = np.empty(shape, numpy_dtype(self.signature.result))

    def store(self, tile: Tile, block: Array) -> None:
        rows = slice(tile.row, tile.row + self.tile_m)
        columns = slice(tile.column, tile.column + self.tile_n)
        self.own[tile.batch, rows, columns] = padded(block, (self.tile_m, self.tile_n))

    def after(self) -> None:
        self.problem.c[...] = self.own[:, : self.m, : self.n]


class Strassen(TiledGemm):
    """One level of Strassen's algorithm on the whole of A and B (Strassen 1969): seven products of
    half the size, whose factors are sums of blocks, so that only norms bound the errors."""

    def run_grid(self) -> None:
        for batch in range(self.batch):
            even_a = (self.m + self.m % 2, self.k + self.k % 2)
            even_b = (even_a[1], self.n + self.n % 2)
            a = _quarters(padded(self.problem.a[batch], even_a))
            b = _quarters(padded(self.problem.b[batch], even_b))
            c = self.recombined(*a, *b)[: self.m, : self.n]
            for tile in self.tiles():
                if tile.batch == batch:
                    part = padded(c[self.rows(tile), self.columns(tile)], self.staging.shape)
                    self.epilogue(tile, part)

    def recombined(
        self, a11: Array, a12: Array, a21: Array, a22: Array,
        b11: Array, b12: Array, b21: Array, b22: Array,
    ) -> Array:  # fmt: skip
        p1 = (a11 + a22) @ (b11 + b22)
        p2, p3 = (a21 + a22) @ b11, a11 @ (b12 - b22)
        p4, p5 = a22 @ (b21 - b11), (a11 + a12) @ b22
        p6, p7 = (a21 - a11) @ (b11 + b12), (a12 - a22) @ (b21 + b22)
        upper = np.concatenate([p1 + p4 - p5 + p7, p3 + p5], axis=1)
        lower = np.concatenate([p2 + p4, p1 - p2 + p3 + p6], axis=1)
        return np.concatenate([upper, lower])


def _quarters(matrix: Array) -> tuple[Array, Array, Array, Array]:
    rows, columns = matrix.shape[0] // 2, matrix.shape[1] // 2
    upper, lower = matrix[:rows], matrix[rows:]
    return upper[:, :columns], upper[:, columns:], lower[:, :columns], lower[:, columns:]


class FlushesSubnormals(FlushesInputs, FlushesResults):
    """Subnormal inputs and results become zero, as with CUDA's ``-ftz=true``."""


class FusedMultiplyAdd(TiledGemm):
    """Rounds alpha · sum + beta · C once, as a fused multiply-add does."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        return super().scaled(tile, to_float64(values)).astype(self.accumulator)


class OneByOne(TiledGemm):
    """This order of summation has the largest errors, and is correct."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        for index in range(a.shape[1]):
            accumulator = accumulator + a[:, index : index + 1] * b[index]
        return accumulator


class SplitK(TiledGemm):
    """Different blocks sum slices of K into a workspace. A semaphore counts arrivals, and the block
    that arrives last adds the slices in their order and finishes the tile."""

    slices = 4

    def prepare(self) -> None:
        shape = (self.tile_count, self.slices, self.tile_m, self.tile_n)
        self.workspace = np.zeros(shape, self.accumulator)
        self.arrived = np.zeros(self.tile_count, np.int64)

    def before(self) -> None:
        super().before()
        self.reset_semaphore()

    def reset_semaphore(self) -> None:
        self.arrived[:] = 0

    def slice_steps(self, index: int) -> range:
        """Steps of slice `index`; the last slices may be shorter or empty."""
        each = -(-self.step_count // self.slices)
        return range(self.step_count)[index * each : (index + 1) * each]

    def compute(self, tile: Tile) -> None:
        for index in range(self.slices):
            self.contribute(tile, index, self.mainloop(tile, self.slice_steps(index)))
            self.arrived[tile.number] += 1
            if self.arrived[tile.number] == self.slices:
                self.epilogue(tile, self.collected(tile))

    def contribute(self, tile: Tile, index: int, partial: Array) -> None:
        self.workspace[tile.number, index] = partial

    def collected(self, tile: Tile) -> Array:
        total = self.workspace[tile.number, 0]
        for partial in self.workspace[tile.number, 1:]:
            total = total + partial
        return np.asarray(total)


class SplitKAtomics(SplitK):
    """Blocks add to one sum with atomics, in whatever order they arrive, so that the last bits may
    differ from launch to launch."""

    def before(self) -> None:
        super().before()
        self.clear_sums()

    def clear_sums(self) -> None:
        self.workspace[:, 0] = 0

    def compute(self, tile: Tile) -> None:
        order = self.chance.sample(range(self.slices), self.slices)
        for index in order:
            self.workspace[tile.number, 0] += self.mainloop(tile, self.slice_steps(index))
        self.epilogue(tile, self.workspace[tile.number, 0])


class StreamK(TiledGemm):
    """All steps of all tiles form one sequence that is divided evenly among the processors. The
    processor that has a tile's first step owns it, and adds what others computed of it once their
    flags are set."""

    processors = 3

    def prepare(self) -> None:
        self.partials = np.zeros((self.processors, self.tile_m, self.tile_n), self.accumulator)
        """What each processor computed of the tile that it did not start."""

    def run_grid(self) -> None:
        units = self.tile_count * self.step_count
        each = -(-units // self.processors)
        owned: list[tuple[Tile, Array, list[int]]] = []
        for processor in range(self.processors):
            unit, stop = processor * each, min((processor + 1) * each, units)
            while unit < stop:
                number, first = divmod(unit, self.step_count)
                last = min(self.step_count, first + stop - unit)
                tile = self.tile_at(number)
                partial = self.mainloop(tile, range(first, last))
                if first == 0:
                    owned.append((tile, partial, []))
                else:
                    owned[-1][2].append(processor)
                    self.publish(processor, partial)
                unit += last - first
        for tile, partial, peers in owned:
            self.epilogue(tile, self.fixed_up(partial, peers))

    def publish(self, processor: int, partial: Array) -> None:
        self.partials[processor] = partial

    def fixed_up(self, partial: Array, peers: list[int]) -> Array:
        for peer in peers:
            partial = partial + self.partials[peer]
        return partial


class DropsUnevenSlice(SplitK):
    """Steps that remain after an even division belong to no slice."""

    def slice_steps(self, index: int) -> range:
        each = self.step_count // self.slices
        return range(self.step_count)[index * each : (index + 1) * each]


class ReadsPeerTooEarly(Racing, StreamK):
    """The owner adds the peer's place in the workspace before the peer has written it, and so what
    the previous launch left there. This shows only if the previous launch had other inputs."""

    odds = 0.8

    def prepare(self) -> None:
        super().prepare()
        self.left_over = np.zeros_like(self.partials)

    def publish(self, processor: int, partial: Array) -> None:
        self.left_over[processor] = self.partials[processor]
        super().publish(processor, partial)

    def fixed_up(self, partial: Array, peers: list[int]) -> Array:
        if self.happens and peers:
            peer = self.chance.choice(peers)
            partial = partial - self.partials[peer] + self.left_over[peer]
        return super().fixed_up(partial, peers)


KERNELS: Kernels = {
    # Computes relu with the maximum that prefers numbers to NaN: fmax of C, fmaxf of
    # CUDA, maxNum of IEEE 754-2008.
    "relu_by_max_num": instead("relu", lambda g, values: np.fmax(values, 0)),
    # The workspace of the atomics is zero when it is allocated, and never cleared
    # again.
    "sums_not_cleared": instead("clear_sums", lambda g: None, SplitKAtomics),
    # From the second launch on, no block recognises itself as the last.
    "semaphore_not_reset": instead("reset_semaphore", lambda g: None, SplitK),
    # The workspace of the slices holds bf16 numbers, although f32 sums are promised.
    "rounds_partials": given(
        "contribute", lambda g, tile, index, partial: to_float32(quantize(partial, BF16)), SplitK
    ),
}
