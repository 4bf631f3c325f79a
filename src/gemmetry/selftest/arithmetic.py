"""Mutants on the host: arithmetic that is not what the operation promises, and kernels that are
correct but easy to mistake for wrong: other orders of summation, blocks that share the sum of one
tile, other ways to compute s8, fp8 and gelu.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gemmetry.domain.operation import BF16, E4M3, E5M2, F16, F32, DType, TensorSpec
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.references import to_logical
from gemmetry.numerics.storage import numpy_dtype, quantize, round_to_tf32, to_float64
from gemmetry.selftest.emulator import (
    Array,
    Change,
    Kernels,
    Racing,
    ReturnsOwn,
    Tile,
    TiledGemm,
    given,
    instead,
    padded,
    result,
    through,
)

FP8_SUM_BITS = 14
"""The significand bits that Hopper's fp8 instructions keep of a sum (DeepSeek-V3 report, section
3.5.2)."""

SCALE_BLOCK = 128
"""The rows whose scale factors are stored together as 32 × 4 (cuBLAS documentation, block scaling
layout)."""


def truncated(values: Array, bits: int) -> Array:
    """float64 `values`, rounded towards zero to `bits` significand bits."""
    mask = np.int64(-1) << np.int64(53 - bits)
    return (np.ascontiguousarray(values).view(np.int64) & mask).view(np.float64)


def clamped(values: Array, dtype: DType) -> Array:
    """`values`, and the largest number of a format in place of those beyond it."""
    return np.clip(values, -dtype.maximum, dtype.maximum)


class TruncatesSums(TiledGemm):
    """Adds a block of products exactly and truncates the sum, as tensor cores do."""

    block = 8
    bits: int

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        total, wide_a, wide_b = to_float64(accumulator), to_float64(a), to_float64(b)
        for first in range(0, a.shape[1], self.block):
            part = slice(first, first + self.block)
            total = truncated(total + wide_a[:, part] @ wide_b[part], self.bits)
        return total.astype(self.accumulator)


class FastFp8Sums(TruncatesSums):
    """Accumulates all of K in 14 bits, eight products at a time, as Hopper's fp8 instructions do,
    and never moves the sum to float32."""

    bits = FP8_SUM_BITS


def loading(change: Change, base: type[TiledGemm] = TiledGemm) -> type[TiledGemm]:
    """A class that changes what it loads."""
    for stage in ("load_a", "load_b"):
        base = result(stage, lambda g, block, tile, step: change(block), base)
    return base


def _without_lower_half(values: Array, added: npt.ArrayLike = 0) -> Array:
    """Finite float32 `values` with `added` to their bits, cut off to 16 bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32) + np.asarray(added, np.uint32)
    return np.where(np.isfinite(values), (bits & np.uint32(0xFFFF0000)).view(np.float32), values)


class SwapsAlphaBeta(TiledGemm):
    alpha, beta = TiledGemm.beta, TiledGemm.alpha


class RepeatsRowScale(TiledGemm):
    """The last row of each tile gets the scale factor of the row that follows."""

    def scale_a(self, tile: Tile) -> Array:
        scales = super().scale_a(tile).copy()
        following = min(tile.row + self.tile_m, self.m - 1)
        scales[-1] = self.problem.tensors["scale_a"][following]
        return scales


class ScaleLayout(TiledGemm):
    """Stores row scales in blocks of 128 that are laid out as 32 × 4, row r at (r % 32, r // 32). A
    whole block is read back correctly."""

    def scale_a(self, tile: Tile) -> Array:
        packed = self.packed(self.problem.tensors["scale_a"][:, 0])
        rows = np.arange(self.m)[self.rows(tile)]
        return packed[self.position(rows)][:, np.newaxis]

    def packed(self, scales: Array) -> Array:
        """The scales as they are stored, with blocks padded by zeros."""
        memory = np.zeros(-(-self.m // SCALE_BLOCK) * SCALE_BLOCK, np.float32)
        memory[self.position(np.arange(self.m))] = scales
        return memory

    def position(self, rows: Array) -> Array:
        block, row = np.divmod(rows, SCALE_BLOCK)
        return np.asarray(block * SCALE_BLOCK + row % 32 * 4 + row // 32)


class ScaleLayoutUnpadded(ScaleLayout):
    """Packs a partial last block of scales without padding: scales past its end are lost, and read
    as the last one that is there."""

    def packed(self, scales: Array) -> Array:
        memory = super().packed(scales)
        memory[self.m :] = memory[self.m - 1]
        return memory


class ScalesAsExponents(TiledGemm):
    """Stores scales as e8m0: their sign is lost, and they are rounded to powers of two."""

    def scales(self, role: str, place: tuple[int | slice, ...]) -> Array:
        scales = super().scales(role, place)
        exponent = np.rint(np.log2(np.abs(scales)))
        return np.asarray(np.exp2(np.clip(exponent, -127, 127)), scales.dtype)


_S8_OFFSET = 128
"""Offset from s8 to u8."""

_FP8_EXPONENT = {E4M3: (4, 7), E5M2: (5, 15)}
"""Format -> bits and bias of its exponent ("FP8 Formats for Deep Learning", arXiv 2209.05433, table
1)."""


class PairedS8(TiledGemm):
    """Adds s8 products in pairs, as x86 and 16-bit dot products do, and keeps all bits of them."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        pairs = (-1, 2)
        products = a.reshape(a.shape[0], *pairs).swapaxes(0, 1) @ b.reshape(*pairs, b.shape[1])
        return np.asarray(accumulator + self.kept(products).sum(axis=0).astype(np.int32))

    def kept(self, sums: Array) -> Array:
        """Accumulator after the sums of two products (pairs, rows, columns)."""
        return sums


class OffsetS8(PairedS8):
    """A + 128 is u8, as x86's dot products require (vpdpbusd); 128 times the column sums of B is
    subtracted again."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        total = super().multiply_add(accumulator, a + np.float32(_S8_OFFSET), b)
        too_much = (_S8_OFFSET * b.sum(axis=0)).astype(np.int32)
        return np.asarray(total - too_much)


class NegatesInS8(TiledGemm):
    """|a| · (sign of a · b), as psignb and pmaddubsw compute it: -(-128) is not an s8 number, and
    remains -128."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        negated = np.where(b == -_S8_OFFSET, b, -b)
        positive, negative = np.maximum(a, 0), np.maximum(-a, 0)
        product = positive @ b + negative @ negated
        return np.asarray(accumulator + product.astype(np.int32))


class DecodesFp8(TiledGemm):
    """Widens fp8 with a table of its own, built from sign, exponent and significand."""

    reserves_top_exponent: ClassVar[dict[DType, bool]] = {E4M3: False, E5M2: True}
    """Whether the largest exponent is reserved for infinity and NaN, as in IEEE 754. If not, NaN
    has all bits set."""

    def before(self) -> None:
        lhs, rhs = self.operation.inputs[:2]
        self.problem.a = self.decoded(lhs).reshape(self.problem.a.shape)
        self.problem.b = self.decoded(rhs).reshape(self.problem.b.shape)

    def decoded(self, spec: TensorSpec) -> Array:
        """The operand in float32, in its logical shape."""
        codes = to_logical(self.problem.buffers[spec.role], spec).view(np.uint8)
        return self.table(spec.dtype)[codes]

    def table(self, dtype: DType) -> Array:
        """The number that each of the 256 codes represents."""
        exponent_bits, bias = _FP8_EXPONENT[dtype]
        fraction_bits = 7 - exponent_bits
        codes = np.arange(256)
        field = codes >> fraction_bits & (1 << exponent_bits) - 1
        fraction = codes & (1 << fraction_bits) - 1
        significand = np.where(field > 0, fraction + (1 << fraction_bits), fraction)
        values = np.ldexp(significand, np.maximum(field, 1) - bias - fraction_bits)
        if self.reserves_top_exponent[dtype]:
            special = np.where(fraction == 0, np.inf, np.nan)
            values = np.where(field == (1 << exponent_bits) - 1, special, values)
        else:
            values = np.where(codes & 127 == 127, np.nan, values)
        return np.where(codes < 128, values, -values).astype(np.float32)


class ReservesTopOfE4m3(DecodesFp8):
    """Treats e4m3's largest exponent, that of 256 to 448, as infinity and NaN."""

    reserves_top_exponent: ClassVar[dict[DType, bool]] = {E4M3: True, E5M2: True}


class CountsTopOfE5m2(DecodesFp8):
    """Reads e5m2's infinity and NaN as numbers, as they would be in e4m3."""

    reserves_top_exponent: ClassVar[dict[DType, bool]] = {E4M3: False, E5M2: False}


class TanhGelu(TiledGemm):
    """The approximation of gelu with tanh is off by up to 5e-4 (Hendrycks and Gimpel 2016, section
    2)."""

    def gelu(self, values: Array) -> Array:
        inner = math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)
        return np.asarray(0.5 * values * (1 + np.tanh(inner)), values.dtype)


class RationalGelu(TiledGemm):
    """Computes gelu in f32 with a short formula for the error function that is within 1.5e-7 of it
    (Abramowitz and Stegun 1964, 7.1.26)."""

    coefficients = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)

    def gelu(self, values: Array) -> Array:
        dtype = values.dtype.type
        size = np.abs(values) * dtype(math.sqrt(0.5))
        t = dtype(1) / (dtype(1) + dtype(0.3275911) * size)
        series = np.zeros_like(t)
        for coefficient in reversed(self.coefficients):
            series = (series + dtype(coefficient)) * t
        erf = np.copysign(dtype(1) - series * np.exp(-size * size), values)
        return np.asarray(dtype(0.5) * values * (dtype(1) + erf))


PROMOTION_INTERVAL = 128
"""The products after which an fp8 sum moves to float32 (DeepSeek-V3 report, section 3.5.2)."""


class KahanSum(TiledGemm):
    """Compensated summation over the steps (Kahan 1965)."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        total, lost = self.zeros(), self.zeros()
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
    """Truncates the sum to 24 bits, as tensor cores do."""

    bits = F32.significand_bits


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
            part = _without_lower_half(rest)
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
        added = self.dice.integers(0, 2**16, values.shape, dtype=np.uint32)
        return quantize(_without_lower_half(values, added), BF16)


class NegativeZeros(TiledGemm):
    """Zeros have a minus sign, and NaN has a payload of its own."""

    def relu(self, values: Array) -> Array:
        return np.where(values < 0, values.dtype.type(-0.0), values)

    def rounded(self, values: Array) -> Array:
        block = super().rounded(np.where(values == 0, values.dtype.type(-0.0), values)).copy()
        bits = block.view(np.uint32)
        bits[np.isnan(block)] = np.uint32(0xFFC0BEEF)
        return block


class SwapsOperands(TiledGemm):
    """Computes tiles of the transposed product, Bᵀ·Aᵀ, as kernels for few rows do."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        return np.asarray(super().multiply_add(accumulator.T, b.T, a.T).T)


class ReturnsView(ReturnsOwn):
    """Computes into memory of its own whose rows are longer than N, and returns a view of it."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        shape = (*output.shape[:-1], output.shape[-1] + 24)
        return super().launch(inputs, np.empty(shape, output.dtype)[..., : output.shape[-1]])


class StoresWholeTiles(TiledGemm):
    """Stores whole tiles to a padded buffer of its own, and copies the result from there."""

    def before(self) -> None:
        shape = (self.batch, self.tiles_m * self.tile_m, self.tiles_n * self.tile_n)
        self.own = np.empty(shape, numpy_dtype(self.signature.result))

    def store(self, tile: Tile, block: Array) -> None:
        whole = self.own[tile.batch, tile.row :, tile.column :][: self.tile_m, : self.tile_n]
        whole[...] = padded(block, whole.shape)

    def after(self) -> None:
        self.problem.c[...] = self.own[:, : self.m, : self.n]


class Strassen(TiledGemm):
    """One level of Strassen's algorithm on the whole of A and B (Strassen 1969): seven products of
    half the size, whose factors are sums of blocks, so that only norms bound the errors."""

    def run_grid(self) -> None:
        for batch in range(self.batch):
            a, b = _quarters(self.problem.a[batch]), _quarters(self.problem.b[batch])
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
        return np.block([[p1 + p4 - p5 + p7, p3 + p5], [p2 + p4, p1 - p2 + p3 + p6]])


def _quarters(matrix: Array) -> list[Array]:
    """The quarters of a matrix, which is padded to even sizes."""
    rows, columns = matrix.shape
    even = padded(matrix, (rows + rows % 2, columns + columns % 2))
    return [part for half in np.vsplit(even, 2) for part in np.hsplit(half, 2)]


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
        self.workspace[:, 0] = 0

    def compute(self, tile: Tile) -> None:
        for index in self.chance.sample(range(self.slices), self.slices):
            self.workspace[tile.number, 0] += self.mainloop(tile, self.slice_steps(index))
        self.epilogue(tile, self.workspace[tile.number, 0])


class StreamK(TiledGemm):
    """All steps of all tiles form one sequence that is divided evenly among the processors. The
    processor that has a tile's first step owns it, and adds what others computed of it once their
    flags are set."""

    processors = 3

    def prepare(self) -> None:
        self.partials = np.zeros((self.processors, self.tile_m, self.tile_n), self.accumulator)
        """Partial sums of each processor for the tile that it did not start."""

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
    "f16_sums": result("multiply_add", lambda g, total, *_: through(total, F16)),
    "bf16_sums": result("multiply_add", lambda g, total, *_: through(total, BF16)),
    "tf32_inputs": loading(round_to_tf32),
    # Rounds f32 inputs to tf32, as it declares.
    "tf32_by_policy": loading(round_to_tf32, TruncatingSums),
    "reversed_k": instead("mainloop", lambda g, tile, steps: g.added(g.zeros(), tile, steps[::-1])),
    "swallows_nan": loading(lambda block: np.where(np.isnan(block), np.float32(0), block)),
    # Every bf16 number of ordinary magnitude is also an f16 number; large ones overflow.
    "f16_inputs": loading(lambda block: through(block, F16)),
    "fp8_inputs": loading(lambda block: through(block, E4M3)),
    "ignores_scale_of_b": instead("scale_b", TiledGemm.scale_a),
    # Casts saturate at the format's largest number, as CUDA's conversions to e4m3 do by default.
    "saturating": given("rounded", lambda g, values: clamped(values, g.signature.result)),
    # Adds half a bf16 ulp and truncates, so halfway cases are rounded away from zero, not to even.
    "rounds_ties_away": given("rounded", lambda g, values: _without_lower_half(values, 0x8000)),
    # Converts float32 to bf16 by cutting off the lower half instead of rounding.
    "truncates_result": given("rounded", lambda g, values: _without_lower_half(values)),
    # The error is too small for tolerances of one per cent.
    "scales_result": result("scaled", lambda g, result, tile, values: result * np.float32(1.001)),
    "scale_layout_transposed": instead(
        "scale_a",
        lambda g, tile: g.packed(g.problem.tensors["scale_a"][:, 0])[g.rows(tile), np.newaxis],
        ScaleLayout,
    ),
    # Unpacks B's rows in pairs, as two 4-bit numbers of a byte, in the wrong order.
    "swaps_pairs": result("load_b", lambda g, block, tile, step: block[np.arange(g.tile_k) ^ 1]),
    # f32 counts exactly only to 2^24, and s32 is promised.
    "f32_sums": instead(
        "multiply_add",
        lambda g, accumulator, a, b: (accumulator.astype(np.float32) + a @ b).astype(np.int32),
    ),
    # Sums of pairs saturate at the largest s16. Of s8 products, only two of -128 ·
    # -128 exceed it.
    "saturates_pairs": instead("kept", lambda g, sums: sums.clip(-32768, 32767), PairedS8),
    # pmaddubsw: sums of pairs of u8 · s8 saturate at the largest s16, which many of
    # them exceed.
    "saturates_offset_pairs": instead("kept", lambda g, sums: sums.clip(-32768, 32767), OffsetS8),
    # Replaces -128 by -127, as quantisers that are symmetric around zero do.
    "clamps_to_127": result(
        "load_a", lambda g, result, tile, step: np.maximum(result, np.float32(1 - _S8_OFFSET))
    ),
    # Computes relu with the maximum that prefers numbers to NaN: fmax of C, fmaxf of
    # CUDA, maxNum of IEEE 754-2008.
    "relu_by_max_num": instead("relu", lambda g, values: np.fmax(values, 0)),
    # The workspace of the atomics is zero when it is allocated, and never cleared
    # again.
    "sums_not_cleared": instead("before", lambda g: None, SplitKAtomics),
    # From the second launch on, no block recognises itself as the last.
    "semaphore_not_reset": instead("before", lambda g: None, SplitK),
    # The workspace of the slices holds bf16 numbers, although f32 sums are promised.
    "rounds_partials": given(
        "contribute", lambda g, tile, index, partial: through(partial, BF16), SplitK
    ),
}
