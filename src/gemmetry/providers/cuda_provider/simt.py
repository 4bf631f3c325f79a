"""Rungs 0 to 4 of the ladder: one launch with pointers to A, (m, k) row-major, B, stored as (n, k),
and C, (m, n) row-major.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.operation import BF16, F16, F32, Operation, Scaling
from gemmetry.hardware.cuda_plans import (
    Compilation,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Pointer,
    macros_of,
)
from gemmetry.providers.cuda_provider.kernel import (
    CudaKernel,
    Plan,
    format_macros,
    formats_of,
    only,
    wrong_formats,
)

CHECKED = formats_of("256x256x256")
"""Every format of these rungs."""

_NAIVE_THREADS = 896
"""28 warps, of which one thread works: what the kernel lessons document launched."""
_THREADS = 256
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


def why_not_simt(operation: Operation, configuration: Configuration) -> str | None:
    """None if the formats and layouts are those of rungs 0 to 4, else the reason."""
    s = operation.signature
    rungs = "a kernel of rungs 0 to 4"
    if reason := wrong_formats(rungs, s, (BF16, F16), (s.lhs, F32), "tnt"):
        return reason
    if s.alpha != 1 or s.beta != 0 or s.epilogue or s.scaling is not Scaling.NONE:
        return "rungs 0 to 4 compute A @ B alone, without alpha, beta, scaling or an epilogue"
    return None


def _why_not_naive(operation: Operation, configuration: Configuration) -> str | None:
    m, n, k, _ = operation.matmul_shape
    if m * n * k > _LARGEST_NAIVE:
        return f"one thread would take too long: it computes up to 512x512x512, not {m}x{n}x{k}"
    return why_not_simt(operation, configuration)


def _planned(source: str, grid: Callable[[int, int, dict[str, int]], Grid]) -> Plan:
    """One launch of a source, which is given the formats and the configuration's parameters, on the
    grid for an (m, n) result with those parameters."""

    def plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
        m, n, k, _ = operation.matmul_shape
        values = {name: int(value) for name, value in configuration.parameters.items()}
        given = {name.upper(): value for name, value in values.items()}
        if source == "r02_shared_tiles":
            given = {"TILE": values["tile_m"]}
        elif source == "r03_register_tiles":
            given = {}
        formats = format_macros(operation)
        launch = KernelLaunch(
            compilation=Compilation(
                source=f"gemm/{source}", macros=macros_of(**formats) + macros_of(**given)
            ),
            grid=grid(m, n, values),
            arguments=(Pointer("lhs"), Pointer("rhs"), Pointer("result"), m, n, k),
        )
        return LaunchPlan(launches=(launch,))

    return plan


def _grid(blocks: int, threads: int, dynamic_bytes: int = 0) -> Grid:
    return Grid(blocks=(blocks, 1, 1), threads=(threads, 1, 1), dynamic_bytes=dynamic_bytes)


def _tiled(threads: Callable[[dict[str, int]], int]) -> Callable[[int, int, dict[str, int]], Grid]:
    """A block of so many threads for each tile; stages of operands in 16 bits are dynamic."""

    def grid(m: int, n: int, v: dict[str, int]) -> Grid:
        blocks = -(-m // v["tile_m"]) * -(-n // v["tile_n"])
        stages = v.get("stages", 0) * (v["tile_m"] + v["tile_n"]) * v["tile_k"] * 2
        return _grid(blocks, threads(v), stages)

    return grid


_SHARED = [
    Configuration(f"r02_tile{tile}", {"tile_m": tile, "tile_n": tile, "tile_k": tile})
    for tile in (32, 16)
]
_MMA_NAMES = ("tile_m", "tile_n", "tile_k", "stages", "warps_m", "warps_n")
_MMA = [
    Configuration("r04_{}x{}x{}_s{}".format(*row), dict(zip(_MMA_NAMES, row, strict=True)))
    for row in _MMA_TILES
]


KERNELS = (
    CudaKernel(
        name="r00_naive",
        rung=0,
        adds="one thread computes everything",
        checked=CHECKED,
        why_not=_why_not_naive,
        plan=_planned("r00_naive", lambda m, n, values: _grid(1, _NAIVE_THREADS)),
        configurations=only(Configuration("r00")),
        seconds_per_launch=lambda operation: math.prod(operation.matmul_shape[:3]) * _NAIVE_STEP_S,
    ),
    CudaKernel(
        name="r01_thread_per_output",
        rung=1,
        adds="one thread for each element of C",
        checked=CHECKED,
        why_not=why_not_simt,
        plan=_planned(
            "r01_thread_per_output", lambda m, n, values: _grid(-(-m * n // _THREADS), _THREADS)
        ),
        configurations=only(Configuration("r01")),
    ),
    CudaKernel(
        name="r02_shared_tiles",
        rung=2,
        adds="blocks share tiles of A and B in shared memory",
        instructions=("LDS", "BAR.SYNC"),
        checked=CHECKED,
        why_not=why_not_simt,
        plan=_planned("r02_shared_tiles", _tiled(lambda v: v["tile_m"] ** 2)),
        configurations=only(*_SHARED),
    ),
    CudaKernel(
        name="r03_register_tiles",
        rung=3,
        adds="8 × 8 results in the registers of each thread, and loads of 16 bytes",
        instructions=("LDG.E.128", "LDS.128"),
        checked=CHECKED,
        why_not=why_not_simt,
        plan=_planned("r03_register_tiles", _tiled(lambda v: _THREADS)),
        configurations=only(Configuration("r03", {"tile_m": 128, "tile_n": 128, "tile_k": 16})),
    ),
    CudaKernel(
        name="r04_mma",
        rung=4,
        adds="tensor cores (mma.sync), fed by asynchronous copies in stages",
        instructions=("HMMA.16816", "LDGSTS", "LDSM"),
        checked=CHECKED,
        why_not=why_not_simt,
        plan=_planned("r04_mma", _tiled(lambda v: 32 * v["warps_m"] * v["warps_n"])),
        configurations=only(*_MMA),
    ),
)
