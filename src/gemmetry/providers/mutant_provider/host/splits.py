"""Mutants on the host, correct and wrong: blocks that share the sum of one tile, as in split-k."""

from __future__ import annotations

import numpy as np

from gemmetry.domain.dtypes import BF16
from gemmetry.domain.record import Trait
from gemmetry.numerics.storage import quantize, to_float32
from gemmetry.providers.mutant_provider.host.emulator import Array, Racing, Tile, TiledGemm
from gemmetry.providers.mutant_provider.host.kernels import ON_DEEP, bug, tricky


@tricky(1, "split_k", "splits K into slices that are added in order", ON_DEEP)
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


@tricky(2, "split_k_atomics", "splits K into slices that are added in an order that varies",
        ON_DEEP, Trait.NONDETERMINISTIC)  # fmt: skip
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


@tricky(3, "stream_k", "divides tiles unevenly among processors", ON_DEEP)
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


@bug(32, "split_k_not_cleared", "clears the sums of the slices only at the first launch", ON_DEEP,
     "second_launch", declared=(Trait.NONDETERMINISTIC,))  # fmt: skip
class SumsNotCleared(SplitKAtomics):
    """The workspace of the atomics is zero when it is allocated, and never cleared again."""

    def clear_sums(self) -> None:
        pass


@bug(33, "semaphore_not_reset", "does not reset the semaphore of the slices", ON_DEEP,
     "second_launch")  # fmt: skip
class SemaphoreNotReset(SplitK):
    """From the second launch on, no block recognises itself as the last."""

    def reset_semaphore(self) -> None:
        pass


@bug(34, "uneven_slice_dropped", "drops the steps that are left over when slices get equal shares",
     ON_DEEP, "tail_shapes")  # fmt: skip
class DropsUnevenSlice(SplitK):
    """Steps that remain after an even division belong to no slice."""

    def slice_steps(self, index: int) -> range:
        each = self.step_count // self.slices
        return range(self.step_count)[index * each : (index + 1) * each]


@bug(35, "peer_read_early", "sometimes adds the sum that a peer left in the previous launch",
     ON_DEEP, "tail_shapes")  # fmt: skip
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


@bug(36, "bf16_partials", "keeps the sums of the slices in bf16", ON_DEEP, "integers")
class RoundsPartials(SplitK):
    """The workspace of the slices holds bf16 numbers, although f32 sums are promised."""

    def contribute(self, tile: Tile, index: int, partial: Array) -> None:
        super().contribute(tile, index, to_float32(quantize(partial, BF16)))
