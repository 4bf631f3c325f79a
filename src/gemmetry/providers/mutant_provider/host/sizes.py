"""Planted on the host: sizes that are an exception, and shapes that end in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmetry.devices.host import HostBuffer
from gemmetry.domain.errors import LaunchError
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm


class SingleColumnByRows(TiledGemm):
    """Takes the path of a product with a vector where N is 1, and sums rows of A without B."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        return super().multiply_add(accumulator, a, np.ones_like(b) if self.n == 1 else b)


class EightColumnsInPairs(TiledGemm):
    """Exchanges pairs of columns where N is 8, as a narrow instruction's fragment has them."""

    def store(self, tile: Tile, block: Array) -> None:
        super().store(tile, block[:, np.arange(8) ^ 1] if self.n == 8 else block)


class SingleProductWithoutB(TiledGemm):
    """Leaves the loop along K early where K is 1: the result is A."""

    def multiply_add(self, accumulator: Array, a: Array, b: Array) -> Array:
        return super().multiply_add(accumulator, a, (b != 0).astype(b.dtype) if self.k == 1 else b)


class ThreadForEachColumn(TiledGemm):
    """Has 512 threads, one for each column: what lies behind them is never written."""

    def store(self, tile: Tile, block: Array) -> None:
        if tile.column < 512:
            super().store(tile, block)


class StepsInATable(TiledGemm):
    """Has room for the steps of 1024 products, and leaves out all others."""

    def mainloop(self, tile: Tile, steps: range) -> Array:
        return super().mainloop(tile, steps[: -(-1024 // self.tile_k)])


class IndexErrorOnTail(TiledGemm):
    """Looks a tile up that is not in its table, where the last tile of rows is partial."""

    def before(self) -> None:
        super().before()
        rows = list(range(self.m // self.tile_m))
        assert rows[self.tiles_m - 1] == self.tiles_m - 1


class RecursionOnTail(TiledGemm):
    """Halves K until the rest is a whole step, which an uneven one never is."""

    def halved(self, rest: int) -> int:
        return 0 if rest % self.tile_k == 0 else 1 + self.halved(rest + 2 * self.tile_k)

    def before(self) -> None:
        super().before()
        self.halved(self.k)


class KeyErrorOnTail(TiledGemm):
    """Has a table of code for whole tiles only, by the rest of N."""

    def before(self) -> None:
        super().before()
        assert {0: "whole"}[self.n % self.tile_n]


class RefusesTails(TiledGemm):
    """Right: says that it takes multiples of its tile only."""

    def launch(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        if self.m % self.tile_m or self.n % self.tile_n or self.k % self.tile_k:
            raise LaunchError("M, N and K must be multiples of the tile")
        return super().launch(inputs, output)
