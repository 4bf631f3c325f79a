"""Planted on the host: bugs where several blocks share one tile's sum."""

from __future__ import annotations

import numpy as np

from gemmetry.domain.dtypes import BF16
from gemmetry.domain.operation import Operation
from gemmetry.numerics.storage import quantize, to_float32
from gemmetry.providers.mutant_provider.host.emulator import Array, Racing, Tile
from gemmetry.providers.mutant_provider.host.splits import SplitK, SplitKAtomics, StreamK


class SumsNotCleared(SplitKAtomics):
    """The workspace of the atomics is zero when it is allocated, and never cleared again."""

    def clear_sums(self) -> None:
        pass


class SemaphoreNotReset(SplitK):
    """From the second launch on, no block takes itself for the last."""

    def reset_semaphore(self) -> None:
        pass


class DropsUnevenSlice(SplitK):
    """Steps that the slices do not divide evenly are nobody's."""

    def slice_steps(self, index: int) -> range:
        each = self.step_count // self.slices
        return range(self.step_count)[index * each : (index + 1) * each]


class ReadsPeerTooEarly(Racing, StreamK):
    """The owner adds what a peer's place in the workspace holds before the peer has written it:
    what the launch before left. That shows only where the launch before had other inputs."""

    odds = 0.8

    def __init__(self, operation: Operation, tile: tuple[int, int, int]) -> None:
        super().__init__(operation, tile)
        self.left_over = np.zeros_like(self.partials)

    def publish(self, processor: int, partial: Array) -> None:
        self.left_over[processor] = self.partials[processor]
        super().publish(processor, partial)

    def fixed_up(self, partial: Array, peers: list[int]) -> Array:
        if self.happens and peers:
            peer = self.chance.choice(peers)
            partial = partial - self.partials[peer] + self.left_over[peer]
        return super().fixed_up(partial, peers)


class RoundsPartials(SplitK):
    """The workspace of the slices holds bf16 numbers, where f32 sums are promised."""

    def contribute(self, tile: Tile, index: int, partial: Array) -> None:
        super().contribute(tile, index, to_float32(quantize(partial, BF16)))
