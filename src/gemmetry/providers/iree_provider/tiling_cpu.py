"""Tiles for llvm-cpu: distribution over threads, optional cache blocking, and the vector tile.

They become ``#iree_cpu.lowering_config`` with the pipeline DoubleTilingExpert (convolutions:
ConvTileAndDecomposeExpert). Any size is valid; the compiler rejects tiles that form vectors too
large for the processor (:mod:`gemmetry.providers.iree_provider.tiles`), which is that
configuration's compile error. Such tiles are not offered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from gemmetry.domain.dispatch import Parameter
from gemmetry.domain.operation import Operation, OperationKind
from gemmetry.providers.iree_provider.tiles import (
    DATA_TILING,
    IreeTile,
    Lowering,
    attribute_list,
    batch_dims,
    loop_sizes,
)

_MATMUL = re.compile(
    r"tile_config_(?P<m>\d+)x(?P<n>\d+)(?:_cache(?P<cm>\d+)x(?P<cn>\d+)x(?P<ck>\d+))?"
    r"_vector(?P<vm>\d+)x(?P<vn>\d+)x(?P<vk>\d+)"
)
_CONV = re.compile(
    r"tile_config_(?P<rows>\d+)x(?P<channels>\d+)"
    r"_vector(?P<columns>\d+)x(?P<vector>\d+)x(?P<depth>\d+)_conv"
)


@dataclass(frozen=True, slots=True)
class CpuTile:
    """A matmul tile: the sizes per thread, per cache level (zeros: no such level), and in vector
    registers."""

    m: int
    n: int
    cache_m: int
    cache_n: int
    cache_k: int
    vector_m: int
    vector_n: int
    vector_k: int

    @property
    def name(self) -> str:
        cache = f"_cache{self.cache_m}x{self.cache_n}x{self.cache_k}" if self.cache_k else ""
        vector = f"{self.vector_m}x{self.vector_n}x{self.vector_k}"
        return f"tile_config_{self.m}x{self.n}{cache}_vector{vector}"

    def parameters(self) -> dict[str, Parameter]:
        values: dict[str, Parameter] = {"tile_m": self.m, "tile_n": self.n}
        if self.cache_k:
            values |= {"cache_m": self.cache_m, "cache_n": self.cache_n, "cache_k": self.cache_k}
        vector = {"vector_m": self.vector_m, "vector_n": self.vector_n, "vector_k": self.vector_k}
        return values | vector

    def problem(self, operation: Operation) -> str | None:
        if operation.kind is OperationKind.CONV2D:
            return "a convolution has other loops; its tiles end in _conv"
        return None

    def lowering(self, operation: Operation) -> Lowering:
        lead = batch_dims(operation)
        zeros, ones = [0] * lead, [1] * lead
        levels = [("distribution", [*ones, self.m, self.n, 0])]
        if self.cache_k:
            levels.append(("cache_parallel", [*ones, self.cache_m, self.cache_n, 0]))
            levels.append(("cache_reduction", [*zeros, 0, 0, self.cache_k]))
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
        if not self.cache_k:
            return products
        rows, is_constant_m = _cached_extent(m, self.m, self.cache_m)
        columns, is_constant_n = _cached_extent(n, self.n, self.cache_n)
        if k <= self.cache_k and is_constant_m and is_constant_n:
            return products
        return max(products, rows * columns)


@dataclass(frozen=True, slots=True)
class CpuConvTile:
    """A convolution tile: output rows and channels per thread, and the vector tile of output
    columns x channels x input channels (filter taps one at a time)."""

    rows: int
    channels: int
    vector_columns: int
    vector_channels: int
    vector_depth: int

    @property
    def name(self) -> str:
        vector = f"{self.vector_columns}x{self.vector_channels}x{self.vector_depth}"
        return f"tile_config_{self.rows}x{self.channels}_vector{vector}_conv"

    def parameters(self) -> dict[str, Parameter]:
        return {
            "tile_rows": self.rows,
            "tile_channels": self.channels,
            "vector_columns": self.vector_columns,
            "vector_channels": self.vector_channels,
            "vector_depth": self.vector_depth,
        }

    def problem(self, operation: Operation) -> str | None:
        return None if operation.kind is OperationKind.CONV2D else "for convolutions only"

    def lowering(self, operation: Operation) -> Lowering:
        # Loops: image, output row, output column, output channel, filter row, column, depth.
        columns = self.vector_columns
        levels = [
            ("distribution", [1, self.rows, 0, self.channels, 0, 0, 0]),
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


def parse_cpu_tile(name: str) -> IreeTile | None:
    """The tile called `name`; None if no form fits or a size is zero."""
    if name == DATA_TILING.name:
        return DATA_TILING
    if match := _MATMUL.fullmatch(name):
        sizes = [int(text) if text is not None else 0 for text in match.groups()]
        given = [int(text) for text in match.groups() if text is not None]
        tile: IreeTile = CpuTile(*sizes)
    elif match := _CONV.fullmatch(name):
        given = [int(text) for text in match.groups()]
        tile = CpuConvTile(*given)
    else:
        return None
    # One name per tile: 064 would be another name of 64.
    return tile if min(given) > 0 and tile.name == name else None


_TILES = (
    CpuTile(64, 64, 0, 0, 0, 8, 32, 4),
    CpuTile(64, 64, 0, 0, 0, 8, 32, 2),
    CpuTile(64, 64, 64, 64, 64, 8, 32, 1),
    CpuTile(128, 128, 32, 64, 128, 8, 32, 1),
    CpuTile(128, 128, 0, 0, 0, 8, 32, 4),
    CpuTile(128, 128, 0, 0, 0, 4, 64, 1),
    CpuTile(64, 64, 0, 0, 0, 4, 64, 1),
    CpuTile(32, 64, 0, 0, 0, 8, 32, 4),
    CpuTile(64, 64, 0, 0, 0, 4, 16, 4),
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
                yield CpuTile(rows, columns, 0, 0, 0, *vector)


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
