"""Unseen mutants: shapes, indices and special values that a path does not handle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gemmetry.numerics.storage import quantize
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm
from gemmetry.providers.mutant_provider.unseen.kernels import ON_BATCH, ON_F32, bug

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
