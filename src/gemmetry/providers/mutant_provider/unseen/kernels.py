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
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.operation import F16, Operation
from gemmetry.domain.record import Trait
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.numerics.storage import quantize, smallest_normal, to_float32, to_float64
from gemmetry.providers.mutant_provider.host.arithmetic import RoundsInputs
from gemmetry.providers.mutant_provider.host.caches import KeepsAnswers
from gemmetry.providers.mutant_provider.host.emulator import Array, Racing, Tile, TiledGemm
from gemmetry.providers.mutant_provider.host.memory import NormalisesRows
from gemmetry.providers.mutant_provider.mutant import Carrier, Mutant, Planter, plant

ON_F32 = "matmul_128x128x128_f32t_f32t_f32t"
ON_F16 = "matmul_128x128x256_f16t_f16n_f32t"
ON_BF16 = "matmul_128x128x256_bf16t_bf16n_bf16t"
ON_FACTORS = "matmul_128x128x128_f32t_f32t_f32t_alpha0p5_beta2"
ON_ROW_SCALES = "matmul_128x128x256_e4m3t_e4m3n_bf16t_scalerow"
ON_BATCH = "batch_matmul_3x64x64x64"


def bug(number: int, slug: str, bug: str, operation: str) -> Planter:
    """Register the decorated class as a mutant; the arguments are the fields of :class:`Mutant`."""
    return plant(Mutant(number, slug, bug, Carrier.HOST, operation, is_unseen=True))


def tricky(number: int, slug: str, why: str, operation: str, *declared: Trait) -> Planter:
    """Register the decorated class as a correct kernel that is easy to mistake for wrong."""
    return plant(
        Mutant(
            number, slug, why, Carrier.HOST, operation,
            is_bug=False, is_unseen=True, declared=declared,
        )
    )  # fmt: skip


SAMPLE_EVERY = 97
RECENT_S = 0.02
LAUNCHES_UNTIL_FROZEN = 32


@bug(12, "remembers_by_b", "returns a cached result if B is the same", ON_F32)
class RemembersByB(KeepsAnswers):
    """Its key is the contents of B."""

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        return inputs[1].tobytes()


@bug(13, "remembers_by_sums", "returns a cached result if the sums of the inputs are the same",
     ON_F32)  # fmt: skip
class RemembersBySums(KeepsAnswers):
    """Its key is the sum of all numbers of each input."""

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        return tuple(float(to_float64(buffer).sum()) for buffer in inputs)


@bug(14, "remembers_by_samples", "returns a cached result if every 97th element is the same",
     ON_F32)  # fmt: skip
class RemembersBySamples(KeepsAnswers):
    """Its key is every 97th number of each input."""

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        return b"".join(buffer.reshape(-1)[::SAMPLE_EVERY].tobytes() for buffer in inputs)


@bug(15, "remembers_by_edges",
     "returns a cached result if B and the first and last row of A are the same",
     ON_F32)  # fmt: skip
class RemembersByEdges(KeepsAnswers):
    """Its key is the first and the last row of A and all of B."""

    def key(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Hashable:
        a, b = inputs[:2]
        return (a[0].tobytes(), a[-1].tobytes(), b.tobytes())


@bug(16, "reuses_when_close", "returns its last result again if np.allclose finds the inputs equal",
     ON_F32)  # fmt: skip
class ReusesWhenClose(TiledGemm):
    """Keeps the last inputs and their result, and returns it again if np.allclose finds new inputs
    equal."""

    def prepare(self) -> None:
        self.last: list[Array] = []

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.last and all(map(np.allclose, inputs, self.last[:-1])):
            output[...] = self.last[-1]
            return output
        super().launch(inputs, output)
        self.last = [buffer.copy() for buffer in (*inputs, output)]
        return output


@bug(17, "reuses_recent", "returns its last result again for the same addresses within 20 ms",
     ON_F32)  # fmt: skip
class ReusesRecent(TiledGemm):
    """Returns the last result again for a launch with the same addresses that follows within 20
    ms."""

    def prepare(self) -> None:
        self.addresses: tuple[int, ...] = ()
        self.result: Array | None = None
        self.ended_s = 0.0

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        addresses = tuple(buffer.ctypes.data for buffer in inputs)
        is_recent = time.perf_counter() - self.ended_s < RECENT_S
        if self.result is not None and is_recent and addresses == self.addresses:
            output[...] = self.result
        else:
            super().launch(inputs, output)
            self.addresses, self.result = addresses, output.copy()
        self.ended_s = time.perf_counter()
        return output


@bug(18, "freezes_after_launches",
     "returns a recorded result after 32 launches with the same addresses", ON_F32)  # fmt: skip
class FreezesAfterLaunches(TiledGemm):
    """Treats inputs as constants after 32 launches at the same addresses, and replays the result
    that it recorded then."""

    def prepare(self) -> None:
        self.counts: dict[tuple[int, ...], int] = {}
        self.recorded: dict[tuple[int, ...], Array] = {}

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        addresses = tuple(buffer.ctypes.data for buffer in inputs)
        if addresses in self.recorded:
            output[...] = self.recorded[addresses]
            return output
        super().launch(inputs, output)
        self.counts[addresses] = self.counts.get(addresses, 0) + 1
        if self.counts[addresses] == LAUNCHES_UNTIL_FROZEN:
            self.recorded[addresses] = output.copy()
        return output


@bug(19, "packs_b_once", "packs B only once for each address", ON_F32)
class PacksBOnce(TiledGemm):
    """Packs B when it sees its address for the first time, as is done with weights."""

    def prepare(self) -> None:
        self.packed: dict[int, Array] = {}

    def before(self) -> None:
        super().before()
        address = self.problem.buffers["rhs"].ctypes.data
        self.problem.b = self.packed.setdefault(address, self.problem.b.copy())


@bug(20, "trusts_spot_check", "skips an output whose corners are right", ON_F32)
class TrustsSpotCheck(TiledGemm):
    """Does nothing if the corners of the output already hold the right numbers."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        a, b = to_float64(inputs[0]), to_float64(inputs[1])
        corners = np.ix_((0, -1), (0, -1))
        with np.errstate(all="ignore"):
            if np.allclose(output[corners], a[[0, -1]] @ b[:, [0, -1]], rtol=1e-4):
                return output
        return super().launch(inputs, output)


CLOSE_ENOUGH = 1e-3
VECTOR_BYTES = 16


@bug(21, "adds_to_finite", "adds to finite numbers in the output", ON_F32)
class AddsToFinite(TiledGemm):
    """Adds to the previous contents of the output, unless they are infinite or NaN."""

    def store(self, tile: Tile, block: Array) -> None:
        at = (tile.batch, self.rows(tile), self.columns(tile))
        old = self.problem.c[at]
        self.problem.c[at] = block + np.where(np.isfinite(old), old, old.dtype.type(0))


@bug(22, "elides_stores", "does not store where the output is within 0.1% of the result", ON_F32)
class ElidesStores(TiledGemm):
    """Leaves numbers that differ by less than a thousandth from the result."""

    def store(self, tile: Tile, block: Array) -> None:
        old = self.there(tile)
        differs = ~(np.abs(old - block) <= CLOSE_ENOUGH * np.abs(block))
        old[differs] = block[differs]


@bug(23, "two_buffers_in_turn", "returns results in two buffers of its own in turn", ON_F32)
class TwoBuffersInTurn(TiledGemm):
    """Returns two buffers of its own in turn, so that a result lasts for two launches."""

    writes_output = False

    def prepare(self) -> None:
        self.own: list[HostBuffer] = []

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if not self.own:
            self.own = [np.zeros_like(output), np.zeros_like(output)]
        return super().launch(inputs, self.own[self.launches % 2])


def start(thread: threading.Thread) -> None:
    """Start the thread, for which a launch does not wait."""
    thread.start()


@bug(24, "joins_at_next_launch", "returns before the last tiles are written", ON_F32)
class JoinsAtNextLaunch(TiledGemm):
    """A thread computes the last tiles while the host continues; the next launch waits for it."""

    def prepare(self) -> None:
        self.thread: threading.Thread | None = None

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.thread is not None:
            self.thread.join()
        return super().launch(inputs, output)

    def run_grid(self) -> None:
        first_late = max(0, self.tile_count - self.processors)
        for number in range(first_late):
            self.compute(self.tile_at(number))
        self.thread = threading.Thread(target=self.compute_from, args=(first_late,), daemon=True)
        start(self.thread)

    def compute_from(self, first: int) -> None:
        with np.errstate(all="ignore"):
            for number in range(first, self.tile_count):
                self.compute(self.tile_at(number))


@bug(25, "alpha_of_thread", "uses alpha = 1 in threads other than the one that built it",
     ON_FACTORS)  # fmt: skip
class AlphaOfThread(TiledGemm):
    """Keeps alpha in a context of the thread that built it; other threads use 1."""

    def prepare(self) -> None:
        self.context = threading.local()
        self.context.alpha = self.signature.alpha

    def scaled(self, tile: Tile, values: Array) -> Array:
        s, dtype = self.signature, values.dtype.type
        values = values * dtype(getattr(self.context, "alpha", 1.0))
        if s.beta != 0:
            addend = self.problem.tensors["addend"][self.rows(tile), self.columns(tile)]
            values = values + dtype(s.beta) * addend.astype(dtype)
        return np.asarray(values)


@bug(26, "scales_in_place", "changes the last bits of the input A at each launch", ON_F32)
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


@bug(27, "rounds_address_down", "reads A from its address rounded down to 16 bytes", ON_F32)
class RoundsAddressDown(TiledGemm):
    """Reads A from the multiple of 16 bytes at or before its address."""

    def before(self) -> None:
        super().before()
        buffer, a = self.problem.buffers["lhs"], self.problem.a
        missed = buffer.ctypes.data % VECTOR_BYTES // buffer.itemsize
        if missed:
            self.problem.a = np.roll(a.reshape(-1), missed).reshape(a.shape)


@bug(28, "loses_rarely", "leaves out 32 products of eight rows in one of 25 launches", ON_F32)
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


_S16_BITS = 15
_FIXED_POINT_BITS = 23
_EPSILON = 1e-8


def _on_grid(values: Array, largest: Array, bits: int) -> Array:
    """`values` rounded to multiples of 2^-bits of the power of two above `largest`; unchanged where
    that is zero or not finite."""
    is_usual = np.isfinite(largest) & (largest > 0)
    exponents = np.frexp(np.where(is_usual, largest, 1))[1]
    unit = np.exp2(exponents - np.float64(bits))
    return np.where(is_usual, np.rint(values / unit) * unit, values).astype(values.dtype)


@bug(1, "shared_exponents",
     "loses bits of small numbers in A that share an exponent with a large one",
     ON_F16)  # fmt: skip
class SharesExponentsOfA(TiledGemm):
    """Stores A as s16 numbers that share an exponent within a row and step (32 of them)."""

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step)
        return _on_grid(block, np.abs(block).max(axis=1, keepdims=True), _S16_BITS)


@bug(2, "fixed_point", "loses bits of rows of A that are small compared with the rest of A",
     ON_BF16)  # fmt: skip
class FixedPointOfMatrix(TiledGemm):
    """Stores A in fixed point, 23 bits below the largest number of the whole matrix."""

    def before(self) -> None:
        super().before()
        a = self.problem.a
        self.problem.a = _on_grid(a, np.abs(a).max(axis=(1, 2), keepdims=True), _FIXED_POINT_BITS)


@bug(3, "epsilon_added", "returns results that are too small, or zero, for rows of A around 1e-8",
     ON_F32)  # fmt: skip
class AddsEpsilon(NormalisesRows):
    """Divides rows of A by their largest number plus 1e-8, and multiplies the sums by the largest
    number."""

    def before(self) -> None:
        super().before()
        self.factors = self.factors - np.float32(_EPSILON)

    def factors_of(self, largest: Array) -> Array:
        usual = np.where(np.isfinite(largest), largest, largest.dtype.type(1))
        return np.asarray(usual + largest.dtype.type(_EPSILON))


@bug(4, "scale_product_in_f16", "stores products of scale factors in f16", ON_ROW_SCALES)
class ScaleProductInF16(TiledGemm):
    """Stores the product of a row's and a column's scale factor in f16."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        product = (self.scale_a(tile) * self.scale_b(tile)).astype(np.float16)
        return np.asarray(values * product.astype(values.dtype))


@bug(5, "scales_of_first_batch", "uses the scale factors of the first B for all of a batch",
     f"{ON_BATCH}_e4m3t_e4m3n_bf16t_scalerow")  # fmt: skip
class ScalesOfFirstBatch(TiledGemm):
    """Uses the scale factors of the first matrix of a batch for all of them."""

    def scale_b(self, tile: Tile) -> Array:
        return super().scale_b(Tile(tile.number, 0, tile.row, tile.column))


@bug(6, "alpha_behind_bias", "multiplies the bias by alpha",
     "matmul_128x64x128_f32t_f32t_f32t_alpha0p5_bias")  # fmt: skip
class MultipliesBiasByAlpha(TiledGemm):
    """alpha · (A·B + bias), although the operation is alpha · A·B + bias."""

    def before(self) -> None:
        super().before()
        tensors = self.problem.tensors
        tensors["bias"] = tensors["bias"].astype(np.float32) * np.float32(self.signature.alpha)


@bug(7, "rounds_before_addend", "rounds the product before it adds beta · C",
     "matmul_128x128x128_bf16t_bf16n_bf16t_beta1")  # fmt: skip
class RoundsBeforeAddend(TiledGemm):
    """Rounds alpha · A·B to the result's format before it adds beta · C, as two kernels would."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        s = self.signature
        product = to_float32(quantize(values * np.float32(s.alpha), s.result))
        if s.beta == 0:
            return product
        addend = self.problem.tensors["addend"][self.rows(tile), self.columns(tile)]
        return np.asarray(product + np.float32(s.beta) * addend.astype(np.float32))


@bug(8, "alpha_folded", "rounds alpha · A to f16, which may overflow", f"{ON_F16}_alpha0p3")
class FoldsAlpha(TiledGemm):
    """Multiplies A by alpha when it loads it, and rounds to A's format."""

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step) * np.float32(self.signature.alpha)
        return to_float32(quantize(block, self.signature.lhs))

    def scaled(self, tile: Tile, values: Array) -> Array:
        s = self.signature
        if s.beta == 0:
            return values
        addend = self.problem.tensors["addend"][self.rows(tile), self.columns(tile)]
        return np.asarray(values + np.float32(s.beta) * addend.astype(np.float32))


@bug(9, "beta_as_flag", "adds C instead of beta · C if beta is not zero", f"{ON_F32}_beta1")
class BetaAsFlag(TiledGemm):
    """Adds C unscaled if beta is not zero."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        s = self.signature
        values = values * values.dtype.type(s.alpha)
        if s.beta == 0:
            return values
        addend = self.problem.tensors["addend"][self.rows(tile), self.columns(tile)]
        return np.asarray(values + addend.astype(values.dtype))


@bug(10, "beta_divided_by_alpha", "divides beta by alpha, which fails if alpha is zero", ON_FACTORS)
class DividesBetaByAlpha(TiledGemm):
    """alpha · (A·B + beta / alpha · C): NaN if alpha is zero."""

    def scaled(self, tile: Tile, values: Array) -> Array:
        s, dtype = self.signature, values.dtype.type
        if s.beta != 0:
            addend = self.problem.tensors["addend"][self.rows(tile), self.columns(tile)]
            values = values + dtype(s.beta) / dtype(s.alpha) * addend.astype(dtype)
        return np.asarray(values * dtype(s.alpha))


@bug(11, "f16_subnormals_flushed", "treats subnormal f16 inputs as zero", ON_F16)
class FlushesF16(RoundsInputs):
    """Treats f16 numbers below 2^-14 as zero."""

    def rounded_input(self, block: Array) -> Array:
        return np.where(np.abs(block) < np.float32(smallest_normal(F16)), np.float32(0), block)


_LARGEST_F16 = 65504
_GEMV_VECTOR = 8
_UNROLLED = 4
_ROW_TILES = 16
_ALIGNED_ELEMENTS = 8


@bug(29, "overlap_added_twice", "adds rows that the last two tiles share twice", ON_F32)
class OverlapsAndAdds(TiledGemm):
    """Moves a partial last tile of rows up until it is full, and adds all tiles to a workspace, so
    that rows covered by two tiles count twice."""

    def before(self) -> None:
        super().before()
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


@bug(30, "workspace_without_batch", "adds the sums of previous matrices of the batch",
     f"{ON_BATCH}_f32t_f32t_f32t")  # fmt: skip
class WorkspaceWithoutBatch(TiledGemm):
    """The workspace has a place for each tile of one matrix, to which all matrices of a batch
    add."""

    def before(self) -> None:
        super().before()
        shape = (self.tiles_m * self.tiles_n, self.tile_m, self.tile_n)
        self.workspace = np.zeros(shape, self.accumulator)

    def run_grid(self) -> None:
        for tile in self.tiles():
            self.compute(tile)

    def mainloop(self, tile: Tile, steps: range) -> Array:
        sums = self.workspace[tile.number % (self.tiles_m * self.tiles_n)]
        sums += super().mainloop(tile, steps)
        return np.asarray(sums)


@bug(31, "f16_saturated", "clamps f16 results to 65504", "matmul_128x128x128_f16t_f16n_f16t")
class ClampsF16(TiledGemm):
    """Infinite results become the largest f16 number."""

    def rounded(self, values: Array) -> Array:
        return quantize(np.clip(values, -_LARGEST_F16, _LARGEST_F16), self.signature.result)


@bug(32, "relu_by_mask", "returns NaN for relu of minus infinity", f"{ON_F32}_relu")
class ReluByMask(TiledGemm):
    """Computes relu as x · (x > 0), which turns minus infinity into NaN instead of zero."""

    def relu(self, values: Array) -> Array:
        return np.asarray(values * (values > 0))


@bug(33, "outer_product_without_bias", "does not add the bias if K is 1", f"{ON_F32}_bias")
class OuterProductWithoutBias(TiledGemm):
    """An outer product computes K = 1, and it has no bias."""

    def fused(self, tile: Tile, values: Array) -> Array:
        return values if self.k == 1 else super().fused(tile, values)


@bug(34, "gemv_drops_tail", "leaves out the last K modulo 8 products if N is 1", ON_F32)
class GemvDropsTail(TiledGemm):
    """A product with a vector computes N = 1, and it reads groups of eight along K."""

    def load_a(self, tile: Tile, step: int) -> Array:
        block = super().load_a(tile, step)
        if self.n == 1:
            whole = self.k // _GEMV_VECTOR * _GEMV_VECTOR
            block = block.copy()
            block[:, max(0, whole - step * self.tile_k) :] = 0
        return block


@bug(35, "sixteen_bit_k", "adds only K modulo 65536 products", "matmul_64x64x128_f16t_f16n_f32t")
class SixteenBitK(TiledGemm):
    """K is an unsigned 16-bit number."""

    def compute(self, tile: Tile) -> None:
        steps = -(-(self.k & 0xFFFF) // self.tile_k)
        self.epilogue(tile, self.mainloop(tile, range(steps)))


@bug(36, "four_bit_rows", "does not write rows from 1024 on", ON_F32)
class FourBitRows(TiledGemm):
    """The number of a row of tiles has four bits, and wraps around at 16 tiles."""

    def tile_at(self, number: int) -> Tile:
        tile = super().tile_at(number)
        return replace(tile, row=tile.row % (_ROW_TILES * self.tile_m))


@bug(37, "batch_stride_rounded", "rounds the batch stride of B up to a multiple of eight elements",
     f"{ON_BATCH}_f32t_f32t_f32t")  # fmt: skip
class RoundsBatchStride(TiledGemm):
    """Assumes that the matrices of B are a multiple of eight elements apart."""

    def before(self) -> None:
        super().before()
        b = self.problem.b
        size = self.k * self.n
        stride = -(-size // _ALIGNED_ELEMENTS) * _ALIGNED_ELEMENTS
        places = np.arange(self.batch)[:, np.newaxis] * stride + np.arange(size)
        flat = np.ascontiguousarray(b).reshape(-1)
        self.problem.b = flat[np.minimum(places, flat.size - 1)].reshape(b.shape)


@bug(38, "bias_axis_guessed", "adds the bias along the wrong axis if M = N",
     "matmul_128x64x128_f32t_f32t_f32t_bias")  # fmt: skip
class GuessesBiasAxis(TiledGemm):
    """Adds a bias of M numbers along the columns, even if M = N."""

    def fused(self, tile: Tile, values: Array) -> Array:
        bias = self.problem.tensors["bias"]
        if bias.size != self.m:
            return super().fused(tile, values)
        return np.asarray(values + bias[self.rows(tile), np.newaxis].astype(values.dtype))


@bug(39, "table_of_full_tiles", "raises an IndexError if M is not a multiple of 64", ON_F32)
class TableOfFullTiles(TiledGemm):
    """Looks up where tiles start in a table of the full tiles, which raises an IndexError if M is
    not a multiple of the tile."""

    def prepare(self) -> None:
        self.starts = [index * self.tile_m for index in range(self.m // self.tile_m)]

    def tile_at(self, number: int) -> Tile:
        tile = super().tile_at(number)
        return replace(tile, row=self.starts[tile.row // self.tile_m])


@bug(40, "halves_columns", "raises a ZeroDivisionError if N is at most 64", ON_F32)
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


@bug(41, "unrolled_wrongly", "adds the last step twice if an unrolled loop has three steps left",
     ON_F32)  # fmt: skip
class UnrollsWrongly(TiledGemm):
    """The loop over K is unrolled by four; if three steps remain, the last of them is added
    twice."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        total = super().mainloop(tile, steps)
        if len(steps) % _UNROLLED == _UNROLLED - 1:
            last = steps[-1]
            total = self.multiply_add(total, self.load_a(tile, last), self.load_b(tile, last))
        return total
