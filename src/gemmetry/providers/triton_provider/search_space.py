"""All tiles of the Triton kernel that a search may try: many more than :mod:`.tiles` lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.operation import Operation
from gemmetry.providers.triton_provider import block_scaled, descriptors, tiles
from gemmetry.providers.triton_provider.architectures import Architecture
from gemmetry.providers.triton_provider.tiles import TritonTile

_ROWS = (16, 32, 64, 128, 256)
_COLUMNS = (32, 64, 128, 256)
_STEPS_BYTES = (64, 128, 256)
"""Bytes along K of one step of a row of A: in bf16 32 to 128 elements."""
_WARPS = (4, 8)
_STAGES = (3, 4)
_WHOLE = 128
"""Columns up to which persistent programs store a tile in one part; a wider one takes too much
shared memory from the ring."""
_MOST_ACCUMULATORS = 128
_FEWEST_ACCUMULATORS = 8
"""Sums in f32 that a thread keeps: more spill (:mod:`.tiles`), fewer leave warps without work."""
_LARGEST_SLIVER = 8
"""Tiles whose sides differ by more than this factor read more than they multiply."""


def search_space(
    operation: Operation, architecture: Architecture | None
) -> Iterator[Configuration]:
    """The listed tiles first, then every other tile that is valid for `operation`, fits its size
    and keeps its warps busy. For Triton's interpreter (architecture None) and AMD's GPUs the listed
    ones are all there are."""
    listed = tiles.valid_tiles(operation, architecture)
    found = dict.fromkeys(listed)
    if architecture is not None and not architecture.is_amd:
        m, n, _, _ = operation.matmul_shape
        found |= dict.fromkeys(
            tile
            for tile in _all(operation, architecture)
            if _suits(tile, m, n, architecture)
            and tiles.why_invalid(tile, operation, architecture) is None
        )
    return (tile.configuration for tile in found)


def _all(operation: Operation, architecture: Architecture) -> Iterator[TritonTile]:
    s = operation.signature
    steps = [size * 8 // s.lhs.storage_bits for size in _STEPS_BYTES]
    sizes = product(_ROWS, _COLUMNS, steps, _WARPS, _STAGES)
    if s.blocks is not None:
        methods = block_scaled.methods(s, architecture)
        for m, n, k, warps, stages in sizes:
            for name in methods:
                depth = block_scaled.step(s.blocks, name, k)
                yield TritonTile(m, n, depth, warps, stages, method=name)
        return
    for row in sizes:
        tile = TritonTile(*row)
        yield tile
        parts = 1 if tile.block_n <= _WHOLE else 2
        yield replace(tile, method=descriptors.PERSISTENT, parts=parts)


def _suits(tile: TritonTile, m: int, n: int, architecture: Architecture) -> bool:
    smaller, larger = sorted((tile.block_m, tile.block_n))
    sums = tile.block_m * tile.block_n / (tile.warps * architecture.warp_size)
    return (
        larger <= _LARGEST_SLIVER * smaller
        and _FEWEST_ACCUMULATORS <= sums <= _MOST_ACCUMULATORS
        and all(block < 2 * max(size, 16) for block, size in ((tile.block_m, m), (tile.block_n, n)))
    )
