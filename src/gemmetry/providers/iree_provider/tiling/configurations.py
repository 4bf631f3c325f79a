"""The tiles to try for an operation on a target, and the tiles that names stand for."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.iree_provider.targets import compile_architecture
from gemmetry.providers.iree_provider.tiling.cpu import (
    cpu_search_space,
    cpu_tiles,
    parse_cpu_tile,
    within_limit,
)
from gemmetry.providers.iree_provider.tiling.gpu import (
    cuda_tiles,
    hip_tiles,
    parse_cuda_tile,
    parse_hip_tile,
)
from gemmetry.providers.iree_provider.tiling.legacy import legacy_tiles, parse_legacy_tile
from gemmetry.providers.iree_provider.tiling.tiles import DEFAULT, LEGACY_DEFAULT, IreeTile


def tiles_for(
    operation: Operation, target: Target, vector_limit_bytes: int | None = None
) -> Iterator[IreeTile]:
    """Tiles worth trying, the compiler's own choice first, without those that cannot fit.

    Args:
        operation: the operation to compute.
        target: the target to compile for.
        vector_limit_bytes: on a CPU, see :func:`cpu_tiles`.
    """
    yield DEFAULT
    if target.kind is TargetKind.CPU:
        yield from cpu_tiles(operation, vector_limit_bytes)
    elif target.kind is TargetKind.HIP:
        yield from hip_tiles(operation)
    elif target.kind is TargetKind.CUDA:
        for tile in legacy_tiles(operation, compile_architecture(target, operation)):
            if tile.problem(operation) is None:
                yield tile
        yield from cuda_tiles(operation)


def search_tiles(
    operation: Operation, target: Target, vector_limit_bytes: int | None = None
) -> Iterator[IreeTile]:
    """Those of :func:`tiles_for`, and on a CPU those that only a search tries."""
    found = dict.fromkeys(tiles_for(operation, target, vector_limit_bytes))
    if target.kind is TargetKind.CPU:
        more = within_limit(cpu_search_space(operation), operation, vector_limit_bytes)
        found |= dict.fromkeys(more)
    return iter(found)


def parse_tile(name: str, target: Target) -> IreeTile | None:
    """The tile called `name` in the grammar of the target, whether listed or not; else None."""
    for choice in (DEFAULT, LEGACY_DEFAULT):
        if name == choice.name:
            return choice
    if target.kind is TargetKind.CPU:
        return parse_cpu_tile(name)
    if target.kind is TargetKind.HIP:
        return parse_hip_tile(name)
    if target.kind is TargetKind.CUDA:
        return parse_legacy_tile(name) or parse_cuda_tile(name)
    return None
