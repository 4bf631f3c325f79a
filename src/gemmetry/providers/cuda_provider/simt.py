"""Rungs 0 to 4 of the ladder: one launch with pointers to A, (m, k) row-major, B, stored as (n, k),
and C, (m, n) row-major.
"""

from __future__ import annotations

from collections.abc import Callable

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.operation import BF16, F16, F32, Layout, Operation, Scaling
from gemmetry.hardware.cuda_plans import (
    Compilation,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Macros,
    Pointer,
    macros_of,
)
from gemmetry.providers.cuda_provider.launching.kernel import CudaKernel

CHECKED = tuple(
    f"matmul_256x256x256_{lhs}t_{lhs}n_{result}t"
    for lhs in ("bf16", "f16")
    for result in (lhs, "f32")
)
"""Every format of these rungs."""

_NAIVE_THREADS = 896
"""28 warps, of which one thread works: what the kernel lessons document launched."""
_THREADS = 256
_REGISTER_TILE = 128
"""TILE of r03_register_tiles.cu, along M and N."""
_REGISTER_PARAMETERS = {"tile_m": _REGISTER_TILE, "tile_n": _REGISTER_TILE, "tile_k": 16}
_MMA_TILES = (
    (128, 256, 32, 4, 2, 4),
    (128, 256, 64, 3, 2, 4),
    (256, 128, 32, 4, 4, 2),
    (128, 128, 32, 4, 2, 4),
    (128, 128, 64, 3, 2, 4),
    (64, 64, 64, 4, 2, 2),
)
"""Rows, columns and depth of a tile, stages, and warps along rows and columns."""
_LARGEST_NAIVE = 512**3
"""Multiply-adds that one thread does within seconds."""
_NAIVE_STEP_S = 20e-9
"""About the time of one multiply-add where nothing hides the latency of its loads."""


def why_not_simt(operation: Operation) -> str | None:
    """None if the formats and layouts are those of rungs 0 to 4, else the reason."""
    s = operation.signature
    if s.lhs is not s.rhs or s.lhs not in (BF16, F16):
        return f"rungs 0 to 4 multiply bf16 and f16, not {s.lhs} with {s.rhs}"
    if s.result not in (s.lhs, F32):
        return f"rungs 0 to 4 return {s.lhs} or f32, not {s.result}"
    if s.accumulator is not F32:
        return f"rungs 0 to 4 accumulate in f32, not {s.accumulator}"
    layouts = (s.lhs_layout, s.rhs_layout, s.result_layout)
    if layouts != (Layout.ROW, Layout.COLUMN, Layout.ROW):
        return "rungs 0 to 4 read along K: A and C row-major, B column-major (layouts t, n, t)"
    if s.alpha != 1 or s.beta != 0 or s.epilogue or s.scaling is not Scaling.NONE:
        return "rungs 0 to 4 compute A @ B alone, without alpha, beta, scaling or an epilogue"
    return None


def simt_macros(operation: Operation) -> Macros:
    """What the sources are given of the formats."""
    s = operation.signature
    return macros_of(
        IN_F16=int(s.lhs is F16), OUT_F16=int(s.result is F16), OUT_F32=int(s.result is F32)
    )


def simt_plan(operation: Operation, source: str, macros: Macros, grid: Grid) -> LaunchPlan:
    """One launch with the arguments of rungs 0 to 4."""
    m, n, k, _ = operation.matmul_shape
    compilation = Compilation(source=f"gemm/{source}", macros=macros)
    pointers = (Pointer("lhs"), Pointer("rhs"), Pointer("result"))
    return LaunchPlan(
        launches=(KernelLaunch(compilation=compilation, grid=grid, arguments=(*pointers, m, n, k)),)
    )


def only(name: str) -> Callable[[Operation], tuple[Configuration, ...]]:
    """The configurations of a kernel that has one."""
    return lambda operation: (Configuration(name),)


def _why_not_naive(operation: Operation, configuration: Configuration) -> str | None:
    m, n, k, _ = operation.matmul_shape
    if m * n * k > _LARGEST_NAIVE:
        return f"one thread would take too long: it computes up to 512x512x512, not {m}x{n}x{k}"
    return why_not_simt(operation)


def _naive_plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
    grid = Grid(blocks=(1, 1, 1), threads=(_NAIVE_THREADS, 1, 1))
    return simt_plan(operation, "r00_naive", simt_macros(operation), grid)


def _thread_plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
    m, n, _, _ = operation.matmul_shape
    grid = Grid(blocks=(-(-m * n // _THREADS), 1, 1), threads=(_THREADS, 1, 1))
    return simt_plan(operation, "r01_thread_per_output", simt_macros(operation), grid)


def _tile_grid(operation: Operation, tile_m: int, tile_n: int, threads: int, dynamic: int) -> Grid:
    m, n, _, _ = operation.matmul_shape
    blocks = -(-m // tile_m) * -(-n // tile_n)
    return Grid(blocks=(blocks, 1, 1), threads=(threads, 1, 1), dynamic_bytes=dynamic)


def _shared_plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
    tile = int(configuration.parameters["tile_m"])
    grid = _tile_grid(operation, tile, tile, tile * tile, 0)
    macros = simt_macros(operation) + macros_of(TILE=tile)
    return simt_plan(operation, "r02_shared_tiles", macros, grid)


def _register_plan(
    operation: Operation, configuration: Configuration, processors: int
) -> LaunchPlan:
    grid = _tile_grid(operation, _REGISTER_TILE, _REGISTER_TILE, _THREADS, 0)
    return simt_plan(operation, "r03_register_tiles", simt_macros(operation), grid)


def _mma_plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
    values = {name: int(value) for name, value in configuration.parameters.items()}
    tile_m, tile_n, tile_k = (values[f"tile_{axis}"] for axis in "mnk")
    threads = 32 * values["warps_m"] * values["warps_n"]
    dynamic = values["stages"] * (tile_m + tile_n) * tile_k * 2
    grid = _tile_grid(operation, tile_m, tile_n, threads, dynamic)
    macros = macros_of(**{name.upper(): value for name, value in values.items()})
    return simt_plan(operation, "r04_mma", simt_macros(operation) + macros, grid)


def _shared_configurations(operation: Operation) -> tuple[Configuration, ...]:
    return tuple(
        Configuration(f"r02_tile{tile}", {"tile_m": tile, "tile_n": tile, "tile_k": tile})
        for tile in (32, 16)
    )


def _mma_configurations(operation: Operation) -> tuple[Configuration, ...]:
    names = ("tile_m", "tile_n", "tile_k", "stages", "warps_m", "warps_n")
    return tuple(
        Configuration(f"r04_{m}x{n}x{k}_s{stages}", dict(zip(names, row, strict=True)))
        for row in _MMA_TILES
        for m, n, k, stages, _, _ in [row]
    )


def _why_not_simt(operation: Operation, configuration: Configuration) -> str | None:
    return why_not_simt(operation)


def _naive_seconds(operation: Operation) -> float:
    m, n, k, _ = operation.matmul_shape
    return m * n * k * _NAIVE_STEP_S


KERNELS = (
    CudaKernel(
        name="r00_naive",
        rung=0,
        adds="one thread computes everything",
        checked=CHECKED,
        why_not=_why_not_naive,
        plan=_naive_plan,
        configurations=only("r00"),
        seconds_per_launch=_naive_seconds,
    ),
    CudaKernel(
        name="r01_thread_per_output",
        rung=1,
        adds="one thread for each element of C",
        checked=CHECKED,
        why_not=_why_not_simt,
        plan=_thread_plan,
        configurations=only("r01"),
    ),
    CudaKernel(
        name="r02_shared_tiles",
        rung=2,
        adds="blocks share tiles of A and B in shared memory",
        instructions=("LDS", "BAR.SYNC"),
        checked=CHECKED,
        why_not=_why_not_simt,
        plan=_shared_plan,
        configurations=_shared_configurations,
    ),
    CudaKernel(
        name="r03_register_tiles",
        rung=3,
        adds="8 × 8 results in the registers of each thread, and loads of 16 bytes",
        instructions=("LDG.E.128", "LDS.128"),
        checked=CHECKED,
        why_not=_why_not_simt,
        plan=_register_plan,
        configurations=lambda operation: (Configuration("r03", _REGISTER_PARAMETERS),),
    ),
    CudaKernel(
        name="r04_mma",
        rung=4,
        adds="tensor cores (mma.sync), fed by asynchronous copies in stages",
        instructions=("HMMA.16816", "LDGSTS", "LDSM"),
        checked=CHECKED,
        why_not=_why_not_simt,
        plan=_mma_plan,
        configurations=_mma_configurations,
    ),
)
