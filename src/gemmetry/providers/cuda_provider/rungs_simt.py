"""Rungs 0 to 4 of the ladder: one launch with pointers to A, (m, k) row-major, B, stored as (n, k),
and C, (m, n) row-major."""

from __future__ import annotations

from collections.abc import Callable

from gemmetry.devices.cuda_plans import (
    Compilation,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Macros,
    Pointer,
    macros_of,
)
from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.dtypes import BF16, F16, F32
from gemmetry.domain.operation import Layout, Operation, Scaling
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
        why_not=lambda operation, configuration: why_not_simt(operation),
        plan=_thread_plan,
        configurations=only("r01"),
    ),
)
