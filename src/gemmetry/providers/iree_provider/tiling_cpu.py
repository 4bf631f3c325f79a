"""Tiles for llvm-cpu: distribution over threads, optional cache blocking, and the vector tile.

They become ``#iree_cpu.lowering_config`` with the pipeline DoubleTilingExpert (convolutions:
ConvTileAndDecomposeExpert). Any size is valid; the compiler rejects tiles that form vectors too
large for the processor (:mod:`gemmetry.providers.iree_provider.tiles`), which is that
configuration's compile error. Such tiles are not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from gemmetry.domain.operation import Operation, OperationKind
from gemmetry.providers.iree_provider.tiles import (
    DATA_TILING,
    IreeTile,
    Lowering,
    attribute_list,
    batch_dims,
    loop_sizes,
)


@dataclass(frozen=True, slots=True)
class CpuTile(IreeTile):
    """A matmul tile: the sizes per thread and in vector registers."""

    form: ClassVar[str] = "tile_config_{m}x{n}_vector{vector_m}x{vector_n}x{vector_k}"
    m: int
    n: int
    vector_m: int
    vector_n: int
    vector_k: int

    @property
    def cache(self) -> tuple[int, int, int] | None:
        """Sizes per cache level; None: there is no such level."""
        return None

    def problem(self, operation: Operation) -> str | None:
        if operation.kind is OperationKind.CONV2D:
            return "a convolution has other loops; its tiles end in _conv"
        return None

    def lowering(self, operation: Operation) -> Lowering:
        lead = batch_dims(operation)
        zeros, ones = [0] * lead, [1] * lead
        levels = [("distribution", [*ones, self.m, self.n, 0])]
        if self.cache is not None:
            cache_m, cache_n, cache_k = self.cache
            levels.append(("cache_parallel", [*ones, cache_m, cache_n, 0]))
            levels.append(("cache_reduction", [*zeros, 0, 0, cache_k]))
        levels.append(("vector_common_parallel", [*ones, self.vector_m, self.vector_n, 0]))
        levels.append(("vector_reduction", [*zeros, 0, 0, self.vector_k]))
        return Lowering(
            _compilation_info(levels, "DoubleTilingExpert"),
            vector_bytes=self._largest_vector(operation) * operation.signature.accumulator.itemsize,
        )

    def _largest_vector(self, operation: Operation) -> int:
        """Elements of the largest vector that IREE 3.13 forms: the products of the vector tile, or
        the zeros that C's part of a cache tile starts from. Those are filled in as one vector,
        before the loop over K, unless every loop around them has constant sizes and K needs none
        (found by compiling; `tests/providers/iree_provider/test_vectors.py` compiles again)."""
        m, n, k = loop_sizes(operation)
        products = min(self.vector_m, m) * min(self.vector_n, n) * min(self.vector_k, k)
        if self.cache is None:
            return products
        cache_m, cache_n, cache_k = self.cache
        rows, is_constant_m = _cached_extent(m, self.m, cache_m)
        columns, is_constant_n = _cached_extent(n, self.n, cache_n)
        if k <= cache_k and is_constant_m and is_constant_n:
            return products
        return max(products, rows * columns)


@dataclass(frozen=True, slots=True)
class CachedCpuTile(CpuTile):
    """A matmul tile with sizes per cache level too."""

    form: ClassVar[str] = (
        "tile_config_{m}x{n}_cache{cache_m}x{cache_n}x{cache_k}"
        "_vector{vector_m}x{vector_n}x{vector_k}"
    )
    cache_m: int
    cache_n: int
    cache_k: int

    @property
    def cache(self) -> tuple[int, int, int]:
        return self.cache_m, self.cache_n, self.cache_k


@dataclass(frozen=True, slots=True)
class CpuConvTile(IreeTile):
    """A convolution tile: output rows and channels per thread, and the vector tile of output
    columns x channels x input channels (filter taps one at a time)."""

    form: ClassVar[str] = (
        "tile_config_{tile_rows}x{tile_channels}"
        "_vector{vector_columns}x{vector_channels}x{vector_depth}_conv"
    )
    tile_rows: int
    tile_channels: int
    vector_columns: int
    vector_channels: int
    vector_depth: int

    def problem(self, operation: Operation) -> str | None:
        return None if operation.kind is OperationKind.CONV2D else "for convolutions only"

    def lowering(self, operation: Operation) -> Lowering:
        # Loops: image, output row, output column, output channel, filter row, column, depth.
        columns = self.vector_columns
        levels = [
            ("distribution", [1, self.tile_rows, 0, self.tile_channels, 0, 0, 0]),
            ("vector_common_parallel", [1, 1, columns, self.vector_channels, 0, 0, 0]),
            ("vector_reduction", [0, 0, 0, 0, 1, 1, self.vector_depth]),
        ]
        products = columns * self.vector_channels * self.vector_depth
        return Lowering(
            _compilation_info(levels, "ConvTileAndDecomposeExpert"),
            vector_bytes=products * operation.signature.accumulator.itemsize,
        )


def _cached_extent(size: int, tile: int, cache: int) -> tuple[int, bool]:
    """Rows (columns) of a cache tile of a thread's tile of a matrix, and whether all such tiles
    have that many. Where they do not, the compiler plans for as many as the tile could have."""
    if tile < size and size % tile:
        return cache, False
    thread = min(tile, size)
    return min(cache, thread), cache >= thread or thread % cache == 0


def _compilation_info(levels: list[tuple[str, list[int]]], pipeline: str) -> str:
    config = ", ".join(f"{level} = {attribute_list(sizes)}" for level, sizes in levels)
    return (
        f"#iree_codegen.compilation_info<lowering_config = #iree_cpu.lowering_config<{config}>, "
        "translation_info = #iree_codegen.translation_info<"
        f"pipeline = #iree_cpu.pipeline<{pipeline}>>>"
    )


_TILES: tuple[CpuTile, ...] = (
    CpuTile(64, 64, 8, 32, 4),
    CpuTile(64, 64, 8, 32, 2),
    CachedCpuTile(64, 64, 8, 32, 1, 64, 64, 64),
    CachedCpuTile(128, 128, 8, 32, 1, 32, 64, 128),
    CpuTile(128, 128, 8, 32, 4),
    CpuTile(128, 128, 4, 64, 1),
    CpuTile(64, 64, 4, 64, 1),
    CpuTile(32, 64, 8, 32, 4),
    CpuTile(64, 64, 4, 16, 4),
)
"""Tiles worth trying: the winners of a sweep of 134 tiles on two cores with AVX-512 (512³ in f32,
bf16 and s8, 1024³ and 257x129x65 in f32), and the last one for processors with AVX2."""

_THREAD_SIZES = (16, 32, 64, 128, 256)
_VECTOR_ROWS, _VECTOR_COLUMNS, _VECTOR_DEPTHS = (4, 8), (16, 32, 64), (1, 2, 4)
"""What a search combines; other vectors were slower in that sweep."""

_CONV_TILES = (
    CpuConvTile(1, 64, 8, 32, 1),
    CpuConvTile(1, 64, 4, 32, 4),
    CpuConvTile(4, 64, 8, 16, 4),
)


def cpu_search_space(operation: Operation) -> Iterator[IreeTile]:
    """Further matmul tiles for a search: those of threads with sides up to a factor of two apart,
    with every vector that fits into them."""
    if operation.kind is OperationKind.CONV2D:
        return
    m, n, _ = loop_sizes(operation)
    for rows, columns in product(_THREAD_SIZES, _THREAD_SIZES):
        if max(rows, columns) > 2 * min(rows, columns) or rows >= 2 * m or columns >= 2 * n:
            continue
        for vector in product(_VECTOR_ROWS, _VECTOR_COLUMNS, _VECTOR_DEPTHS):
            if vector[0] <= rows and vector[1] <= columns:
                yield CpuTile(rows, columns, *vector)


def cpu_tiles(operation: Operation, vector_limit_bytes: int | None = None) -> Iterator[IreeTile]:
    """Tiles worth trying for `operation`, without the default.

    Args:
        operation: the operation to compute.
        vector_limit_bytes: tiles that form a vector of this size or more are left out, because the
            compiler rejects them; None: the limit is not known.
    """
    if operation.kind is OperationKind.CONV2D:
        tiles: Sequence[IreeTile] = _CONV_TILES
    else:
        yield DATA_TILING
        m, n, _ = loop_sizes(operation)
        # A tile of more than twice the matrix equals a smaller one, padded.
        tiles = [tile for tile in _TILES if tile.m < 2 * m and tile.n < 2 * n]
    yield from within_limit(tiles, operation, vector_limit_bytes)


def within_limit(
    tiles: Iterable[IreeTile], operation: Operation, vector_limit_bytes: int | None
) -> Iterator[IreeTile]:
    """`tiles` without those whose vectors the compiler rejects; see :func:`cpu_tiles`."""
    for tile in tiles:
        vector_bytes = tile.lowering(operation).vector_bytes
        if vector_limit_bytes is None or vector_bytes < vector_limit_bytes:
            yield tile
