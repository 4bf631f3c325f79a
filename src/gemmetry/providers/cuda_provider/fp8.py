"""Products of e4m3 numbers with a factor for each tensor, row or block, on Hopper's matrix
instructions, with sums promoted to f32 every 128 products.
"""

from __future__ import annotations

from collections.abc import Iterable

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.operation import BF16, E4M3, F16, F32, BlockScaling, Layout, Operation, Scaling
from gemmetry.hardware.cuda_plans import (
    Argument,
    Compilation,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Pointer,
    macros_of,
)
from gemmetry.providers.cuda_provider.launching.kernel import (
    STEP_BYTES,
    CudaKernel,
    Tiling,
    epilogue_digits,
    parse_tiling,
    problem_of,
    ranked,
    ring_bytes,
    staged_columns,
    stages_that_fit,
    staging_bytes,
)

_DEPTH = 128
"""Elements of K of a block with a factor, and of a step of the ring."""
_SCALES: dict[Scaling | BlockScaling, int] = {
    Scaling.NONE: 0,
    Scaling.TENSOR: 0,
    Scaling.ROW: 1,
    BlockScaling(_DEPTH, F32, 1, 128): 2,
    BlockScaling(_DEPTH, F32, 1, 1): 3,
}
"""How operands are scaled -> the macro SCALES of fp8.cu."""
_SQUARES = 32
"""Numbers of a stage that the factors of squares take, of which two are used."""

_WIDTHS = (64, 96, 128, 160)
_MOST_SUMS = {1: 160, 2: 192, 3: 128}
"""Warpgroups that multiply -> sums and products of a thread up to which no registers are
spilled."""
_TILINGS = (
    *(
        Tiling(m, n, cluster, 1, band)
        for m, n, cluster in (
            (192, 128, 1), (192, 128, 2), (256, 128, 1), (256, 128, 2), (128, 128, 1),
            (128, 128, 2), (128, 160, 1),
        )
        for band in (8, 16)
    ),
    *(
        Tiling(m, n, cluster)
        for m, n, cluster in (
            (128, 64, 1), (128, 64, 2), (128, 96, 1), (64, 128, 1), (64, 128, 2), (64, 64, 1),
            (64, 64, 2), (64, 96, 2),
        )
    ),
)  # fmt: skip
_TRIED = 10


def _why_not_operation(operation: Operation) -> str | None:
    s = operation.signature
    if s.lhs is not E4M3 or s.rhs is not E4M3:
        return f"the fp8 kernel multiplies e4m3, not {s.lhs} with {s.rhs}"
    if s.result not in (BF16, F16, F32):
        return f"the fp8 kernel returns bf16, f16 or f32, not {s.result}"
    if s.accumulator is not F32:
        return f"the fp8 kernel accumulates in f32, not {s.accumulator}"
    layouts = (s.lhs_layout, s.rhs_layout, s.result_layout)
    if layouts != (Layout.ROW, Layout.COLUMN, Layout.ROW):
        return (
            "Hopper's matrix instructions of 8-bit numbers read along K: A and C row-major, B "
            "column-major (layouts t, n, t)"
        )
    if s.scaling not in _SCALES:
        known = ", ".join(map(str, _SCALES))
        return f"the fp8 kernel takes the factors {known}, not {s.scaling}"
    return None


def _why_not_tiling(tiling: Tiling) -> str | None:
    if tiling.tile_m not in (64, 128, 192, 256) or tiling.tile_n not in _WIDTHS:
        widths = ", ".join(map(str, _WIDTHS))
        return f"tiles are 64, 128, 192 or 256 rows by {widths} columns"
    height = tiling.tile_m // tiling.consumers // 64
    if (height + 1) * tiling.tile_n // 2 > _MOST_SUMS[tiling.consumers]:
        return f"a tile of {tiling.tile_m}x{tiling.tile_n} needs more registers than there are"
    if tiling.is_swapped:
        return "the fp8 kernel computes no transpose"
    if tiling.cluster_m not in (1, 2, 4) or tiling.cluster_n != 1 or tiling.splits != 1:
        return "clusters are 1, 2 or 4 blocks below each other, and K is not divided"
    if tiling.tile_n // tiling.cluster_m % 8:
        return f"{tiling.cluster_m} blocks cannot share {tiling.tile_n} columns in eights"
    return None if tiling.band > 0 else "bands start at 1"


def _why_not(operation: Operation, configuration: Configuration) -> str | None:
    if reason := _why_not_operation(operation):
        return reason
    tiling = _tiling_of(configuration.name)
    return f"{configuration.name} is no tiling" if tiling is None else _why_not_tiling(tiling)


def _tiling_of(name: str) -> Tiling | None:
    return parse_tiling(name.removeprefix("fp8_"))


def _parse(name: str) -> Configuration | None:
    tiling = _tiling_of(name)
    return None if tiling is None else tiling.configuration("fp8", _DEPTH)


def _configurations(operation: Operation) -> Iterable[Configuration]:
    m, n, k, _ = operation.matmul_shape
    return [one.configuration("fp8", _DEPTH) for one in ranked(_TILINGS, m, n, k)[:_TRIED]]


def _plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
    problem, tiling = problem_of(operation), _tiling_of(configuration.name)
    assert tiling is not None, configuration.name
    s = operation.signature
    scales = _SCALES[s.scaling]
    direct = problem.is_stored_directly
    factors = {2: tiling.tile_m + _SQUARES, 3: tiling.tile_m + tiling.tile_n}.get(scales, 0)
    stage_bytes = (tiling.tile_m + tiling.tile_n) * STEP_BYTES + 4 * factors
    staging = 0 if direct else staging_bytes(tiling)
    stages = stages_that_fit(stage_bytes, staging)
    macros = macros_of(
        IN_E4M3=1, OUT_F16=int(problem.result is F16), OUT_F32=int(problem.result is F32),
        TILE_M=tiling.tile_m, TILE_N=tiling.tile_n, STAGES=stages, CONSUMERS=tiling.consumers,
        CLUSTER=tiling.cluster_m, DIRECT=int(direct), SCALES=scales, ALPHA=int(s.alpha != 1),
        ADDEND=int(s.beta != 0), EPILOGUE=epilogue_digits(operation),
    )  # fmt: skip
    clusters = min(tiling.clusters(problem.m, problem.n), processors // tiling.cluster_m)
    map_a = problem.a.tiles(tiling.tile_m, _DEPTH)
    staged = staged_columns(tiling.tile_n)
    roles = {spec.role for spec in operation.inputs}
    optional = ("scale_a", "scale_b", "addend", "bias", "residual")
    arguments: tuple[Argument, ...] = (
        map_a,
        problem.b.tiles(tiling.tile_n // tiling.cluster_m, _DEPTH),
        map_a if direct else problem.result_tiles(16, staged),
        Pointer("result"),
        *(Pointer(role) if role in roles else None for role in optional),
        float(s.alpha), float(s.beta),
        (problem.m, problem.n, problem.k, tiling.band),
    )  # fmt: skip
    launch = KernelLaunch(
        compilation=Compilation(source="gemm/fp8", macros=macros),
        grid=Grid(
            blocks=(clusters * tiling.cluster_m, 1, 1),
            threads=(tiling.threads, 1, 1),
            dynamic_bytes=ring_bytes(stages, stage_bytes, staging),
        ),
        arguments=arguments,
    )
    return LaunchPlan(launches=(*problem.packings, launch), workspaces=problem.workspaces)


KERNELS = (
    CudaKernel(
        name="fp8",
        key="fp8",
        adds="e4m3 with factors of tensors, rows or blocks, sums promoted to f32; epilogues",
        instructions=("QGMMA", "UTMALDG", "SYNCS", "USETMAXREG"),
        checked=(
            *(f"matmul_512x512x512_e4m3t_e4m3n_{result}t" for result in ("bf16", "f16", "f32")),
            *(
                f"matmul_512x512x512_e4m3t_e4m3n_bf16t_{scaling}"
                for scaling in ("scaletensor", "scalerow", "vs1x128", "vs1x128_vs128x128")
            ),
            "matmul_500x501x502_e4m3t_e4m3n_bf16t_vs1x128_vs128x128",
            "matmul_512x512x512_e4m3t_e4m3n_bf16t_vs1x128_alpha0p5_beta2_bias_gelu_residual",
            "matmul_500x501x502_e4m3t_e4m3n_f32t_vs1x128_vs128x128_bias_gelu_residual",
        ),
        why_not=_why_not,
        plan=_plan,
        configurations=_configurations,
        everything=lambda operation: [one.configuration("fp8", _DEPTH) for one in _TILINGS],
        parse=_parse,
    ),
)
"""Products of e4m3 numbers."""
