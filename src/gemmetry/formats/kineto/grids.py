"""Grids of AMD kernels in Kineto traces -> workgroups.

Kineto copies them unchanged from the launch, where their meaning varies:

- ``hipExtModuleLaunchKernel``, which launches all Tensile GEMMs, takes work-items. Example: a GEMM
  of 15360 x 6144 with macro tile 256 x 192 has 60 x 32 workgroups of 256 and the "grid" 491520.
- Recorded through rocprofiler-sdk (MI350, ROCm 7.0), "grid" is the size of a workgroup and "block"
  the work-items. Example: an element-wise kernel with the "block" 524288, although the maximum is
  1024.
- With ROCm 6.2 the kernels of the MI250 trace have no sizes, but the launches do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from gemmetry.formats.events import CallRows, GpuKind, GpuRows, Int32, Int64

_IN_WORK_ITEMS = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")
_MOST_THREADS = 1024
"""Most threads of a workgroup or block, on all GPUs of AMD and NVIDIA."""


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchGrids:
    """Sizes recorded with calls."""

    correlation: Int64
    grid: Int32
    block: Int32


def workgroups(
    gpu: GpuRows, launches: LaunchGrids, names: Sequence[str], calls: Iterable[CallRows]
) -> GpuRows:
    """`gpu` with grids in workgroups.

    Args:
        gpu: rows as recorded in the file.
        launches: sizes recorded with calls.
        names: of calls and kernels.
        calls: all calls, in pieces.
    """
    wanted = [names.index(name) for name in _IN_WORK_ITEMS if name in names]
    if not wanted and not len(launches.correlation) and not _is_swapped(gpu.grid, gpu.block):
        return gpu
    grid, block = _filled(gpu, launches)
    if _is_swapped(grid, block):
        grid, block = _rounded_up(block, grid), grid
    elif wanted:
        numbers = [piece.correlation[np.isin(piece.name, wanted)] for piece in calls]
        rows = np.isin(gpu.correlation, np.concatenate([np.zeros(0, np.int64), *numbers]))
        rows &= (gpu.correlation >= 0) & (block > 0).all(axis=1)
        grid = np.where(rows[:, None], _rounded_up(grid, block), grid)
    return dataclasses.replace(gpu, grid=grid, block=block)


def _filled(gpu: GpuRows, launches: LaunchGrids) -> tuple[Int32, Int32]:
    """Sizes, taken from the launches where the kernels have none."""
    empty = (gpu.grid == 0).all(axis=1) & (gpu.kind == GpuKind.KERNEL) & (gpu.correlation >= 0)
    rows = np.flatnonzero(empty)
    if not len(rows) or not len(launches.correlation):
        return gpu.grid, gpu.block
    order = np.argsort(launches.correlation, kind="stable")
    place = np.searchsorted(launches.correlation, gpu.correlation[rows], sorter=order)
    found = order[np.minimum(place, len(order) - 1)]
    fits = launches.correlation[found] == gpu.correlation[rows]
    grid, block = gpu.grid.copy(), gpu.block.copy()
    grid[rows[fits]] = launches.grid[found[fits]]
    block[rows[fits]] = launches.block[found[fits]]
    return grid, block


def _is_swapped(grid: Int32, block: Int32) -> bool:
    """Whether blocks exceed every GPU's limit, while all "grids" are possible blocks."""
    threads = block.astype(np.int64).prod(axis=1)
    return bool(
        len(threads)
        and (threads > _MOST_THREADS).any()
        and (grid.astype(np.int64).prod(axis=1) <= _MOST_THREADS).all()
    )


def _rounded_up(items: Int32, size: Int32) -> Int32:
    result: Int32 = np.where(size > 0, -(-items // np.maximum(size, 1)), 0).astype(np.int32)
    return result
