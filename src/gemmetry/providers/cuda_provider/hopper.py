"""Kernels on Hopper's matrix instructions of warpgroups, fed by the copy engine.

These are rungs 5 to 11 of the ladder, and products of e4m3 numbers with a factor for each tensor,
row or block, whose sums are promoted to f32 every 128 products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.operation import (
    BF16,
    E4M3,
    F16,
    F32,
    BlockScaling,
    EpilogueStep,
    Operation,
    Scaling,
)
from gemmetry.hardware.cuda_plans import (
    Argument,
    Compilation,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Pointer,
    macros_of,
)
from gemmetry.providers.cuda_provider.kernel import (
    STEP_BYTES,
    CudaKernel,
    Plan,
    StoredProduct,
    Tiling,
    epilogue_macros,
    format_macros,
    formats_of,
    only,
    parser,
    pointers,
    problem_of,
    ranked,
    result_macros,
    ring_bytes,
    staged_columns,
    stages_that_fit,
    staging_bytes,
    tiling_of,
    wrong_formats,
)

_STEP = STEP_BYTES // 2
"""Elements of K in a step of the ring."""
_PARTIAL_BYTES = 4

_TILINGS = (
    *(
        Tiling(m, n, cm, cn, band)
        for m, n, cm, cn in (
            (128, 256, 2, 1), (128, 256, 1, 1), (256, 128, 1, 2), (128, 192, 2, 1),
            (128, 128, 2, 1), (192, 176, 1, 1),
        )
        for band in (8, 16)
    ),
    *(
        Tiling(m, n, cm, 1)
        for m, n, cm in (
            (64, 64, 1), (64, 64, 2), (64, 96, 2), (64, 128, 1), (64, 128, 2), (64, 160, 2),
            (64, 176, 2), (128, 64, 1), (128, 64, 2), (128, 96, 2), (128, 128, 1),
            (128, 208, 2), (256, 160, 1),
        )
    ),
    *(
        Tiling(m, n, cm, 1, 8, splits)
        for m, n, cm in ((64, 64, 2), (64, 128, 2), (128, 128, 2), (128, 192, 2), (128, 192, 1))
        for splits in (2, 3, 4, 8)
    ),
    *(
        Tiling(m, n, 1, cn, 8, splits, is_swapped=True)
        for m, n, cn in (
            (32, 128, 1), (64, 128, 1), (64, 256, 1), (96, 128, 1), (96, 256, 1), (160, 64, 1),
            (160, 128, 1), (160, 128, 2), (160, 192, 1), (192, 128, 1), (256, 128, 2),
        )
        for splits in (1, 2, 4, 6)
    ),
)  # fmt: skip
"""The tilings of rung 11 that are worth trying on some shape."""
_TRIED = 12
"""How many of them are tried for a shape, the best by prediction."""
_WIDTHS = (32, 64, 96, 128, 160, 176, 192, 208, 224, 256)
"""Widths of wgmma in ptx.cuh."""
_MOST_SUMS = {1: 128, 2: 160, 3: 96}
"""Warpgroups that multiply -> sums of a thread up to which no registers are spilled."""
_MOST_SPLIT_SUMS = {1: 96, 2: 96, 3: 0}
"""The same where slices are added."""
_MOST_SWAPPED_SUMS = 128
"""The same where the result is stored transposed."""
_MOST_GELU_SUMS = 128
"""Sums of a thread up to which the error function spills no registers."""
_MOST_SHARED_STEPS = 2**31 - 1
"""Number of steps times their sharers, which r11_best.cu counts in 32 bits."""


def why_not_hopper(operation: Operation) -> str | None:
    """None if the formats are those of rungs 5 to 11, else the reason."""
    s = operation.signature
    if reason := wrong_formats("a kernel of rungs 5 to 11", s, (BF16, F16), (s.lhs, F32)):
        return reason
    return None if s.scaling is Scaling.NONE else f"rungs 5 to 11 take no factors, here {s.scaling}"


def _why_not_plain(operation: Operation, configuration: Configuration) -> str | None:
    s = operation.signature
    if s.alpha != 1 or s.beta != 0 or s.epilogue:
        return "only rung 11 has alpha, beta and an epilogue"
    return why_not_hopper(operation)


def _why_not_first(operation: Operation, configuration: Configuration) -> str | None:
    """Rungs 5 and 6."""
    problem = problem_of(operation)
    if problem.a.along_lines or problem.b.along_lines or problem.is_transposed:
        return "rungs 5 and 6 read along K: A and C row-major, B column-major (layouts t, n, t)"
    if problem.a.needs_packing or problem.b.needs_packing:
        return "rungs 5 and 6 need rows of a multiple of 16 bytes: K is no multiple of 8"
    return _why_not_plain(operation, configuration)


def _operand_bytes(tiling: Tiling, problem: StoredProduct) -> int:
    """Bytes of a stage: boxes along M or N are 64 elements wide."""
    wide = (
        -(-lines // 64) * 64 if operand.along_lines else lines
        for lines, operand in ((tiling.tile_m, problem.a), (tiling.tile_n, problem.b))
    )
    return sum(wide) * STEP_BYTES


def _maps(tiling: Tiling, problem: StoredProduct) -> tuple[Argument, Argument]:
    """The tensor maps of A and B, in boxes of one block's share."""
    a, b = (
        operand.tiles(64, _STEP // shares) if operand.along_lines
        else operand.tiles(lines // shares, _STEP)
        for operand, lines, shares in (
            (problem.a, tiling.tile_m, tiling.cluster_n),
            (problem.b, tiling.tile_n, tiling.cluster_m),
        )
    )  # fmt: skip
    return a, b


def _planned(
    source: str,
    tiling: Tiling,
    problem: StoredProduct,
    arguments: tuple[Argument, ...],
    macros: Mapping[str, int],
    *,
    clusters: int,
    stage_bytes: int = 0,
    staging: int = 0,
    stages: int = 0,
    threads: int = 0,
    workspaces: Mapping[str, int] | None = None,
    starts_early: bool = False,
) -> LaunchPlan:
    """The launch of a kernel with a ring of stages, after the packing of operands.

    Args:
        stage_bytes: of one stage; 0: :func:`_operand_bytes`.
        staging: bytes through which results leave.
        stages: 0: as many as fit.
        threads: of a block; 0: the tiling's.
    """
    stage_bytes = stage_bytes or _operand_bytes(tiling, problem)
    stages = stages or stages_that_fit(stage_bytes, staging)
    given = {
        "TILE_M": tiling.tile_m, "TILE_N": tiling.tile_n, "CONSUMERS": tiling.consumers,
        "STAGES": stages, **macros,
    }  # fmt: skip
    if stages == 1:
        del given["STAGES"]
    launch = KernelLaunch(
        compilation=Compilation(source=f"gemm/{source}", macros=macros_of(**given)),
        grid=Grid(
            blocks=(clusters * tiling.cluster, 1, 1),
            threads=(threads or tiling.threads, 1, 1),
            dynamic_bytes=ring_bytes(stages, stage_bytes, staging),
            starts_early=starts_early,
        ),
        arguments=arguments,
    )
    copies = {one.buffer: one.rows * one.row_bytes for one in problem.packed}
    return LaunchPlan(
        launches=(*(one.packing() for one in problem.packed), launch),
        workspaces={**copies, **(workspaces or {})},
    )


def _directions(problem: StoredProduct) -> dict[str, int]:
    return {"A_ALONG_M": int(problem.a.along_lines), "B_ALONG_N": int(problem.b.along_lines)}


def _plan_first(source: str, stages: int) -> Plan:
    """Rungs 5 and 6: every block computes one tile of 128 × 128."""
    tiling = Tiling(128, 128)

    def plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
        problem = problem_of(operation)
        arguments = (*_maps(tiling, problem), Pointer("result"), problem.sizes)
        return _planned(
            source, tiling, problem, arguments, format_macros(operation),
            clusters=tiling.clusters(problem.m, problem.n), stages=stages,
            threads=128 * tiling.consumers,
        )  # fmt: skip

    return plan


def _plan_middle(source: str, tiling: Tiling) -> Plan:
    """Rungs 7 to 10."""
    rung = int(source[1:3])

    def plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
        problem = problem_of(operation)
        direct = problem.is_stored_directly
        macros = {**format_macros(operation), **_directions(problem)}
        if rung >= 9:
            macros["CLUSTER"] = tiling.cluster_m
        if rung >= 10:
            macros["DIRECT"] = int(direct)
        clusters = tiling.clusters(problem.m, problem.n)
        if rung >= 8:
            clusters = min(clusters, processors // tiling.cluster)
        maps = _maps(tiling, problem)
        stored = (maps[0] if direct else problem.result_tiles(16, 64),) if rung >= 10 else ()
        sizes = problem.sizes + ((tiling.band,) if rung >= 8 else ())
        return _planned(
            source, tiling, problem, (*maps, *stored, Pointer("result"), sizes), macros,
            clusters=clusters, staging=0 if rung < 10 or direct else staging_bytes(tiling),
        )  # fmt: skip

    return plan


def _best_configurations(operation: Operation) -> Iterable[Configuration]:
    problem = problem_of(operation)
    legal = [one for one in _TILINGS if _why_not_tiling(problem, one) is None]
    best = ranked(legal, problem.m, problem.n, problem.k)[:_TRIED]
    return [one.configuration("r11", _STEP) for one in best]


def _in_kernel(problem: StoredProduct, tiling: Tiling) -> tuple[StoredProduct, Tiling]:
    """The product that r11_best.cu computes, and how it divides that."""
    return (problem.swapped if tiling.is_swapped else problem), tiling.in_kernel


def _why_not_tiling(problem: StoredProduct, tiling: Tiling) -> str | None:
    """None if r11_best.cu can be compiled for a tiling and computes the product, else why not."""
    shape = f"{tiling.tile_m}x{tiling.tile_n}"
    rows, columns = ("columns", "rows") if tiling.is_swapped else ("rows", "columns")
    problem, tiling = _in_kernel(problem, tiling)
    if tiling.tile_m not in (64, 128, 192, 256) or tiling.tile_n not in _WIDTHS:
        widths = ", ".join(map(str, _WIDTHS))
        return f"tiles are 64, 128, 192 or 256 {rows} by {widths} {columns}"
    sums = tiling.tile_m // tiling.consumers // 64 * tiling.tile_n // 2
    most = _MOST_SUMS[tiling.consumers]
    if sums > (min(most, _MOST_SWAPPED_SUMS) if problem.is_swapped else most):
        return f"a tile of {shape} needs more registers than there are"
    if max(tiling.cluster_m, tiling.cluster_n) > 4 or tiling.cluster not in (1, 2, 4):
        return "clusters are 1, 2 or 4 blocks"
    if tiling.band < 1 or tiling.splits < 1:
        return "bands and slices start at 1"
    if not problem.b.along_lines and tiling.tile_n // tiling.cluster_m % 8:
        return f"{tiling.cluster_m} blocks cannot share {tiling.tile_n} {columns} in eights"
    if tiling.splits > 1:
        steps = -(-problem.k // _STEP)
        units = tiling.clusters(problem.m, problem.n) * tiling.splits
        if sums > _MOST_SPLIT_SUMS[tiling.consumers]:
            return f"slices of a {shape} tile need more registers"
        if tiling.splits > steps:
            return f"K = {problem.k} has fewer than {tiling.splits} steps of {_STEP}"
        if units * units // tiling.splits * steps > _MOST_SHARED_STEPS:
            return "there are too many tiles to divide them further"
    return None


def _why_not_best(operation: Operation, configuration: Configuration) -> str | None:
    if reason := why_not_hopper(operation):
        return reason
    tiling = tiling_of(configuration.name)
    if tiling is None:
        return f"{configuration.name} is no tiling"
    if reason := _why_not_tiling(problem_of(operation), tiling):
        return reason
    sums = tiling.tile_m * tiling.tile_n // tiling.consumers // 128
    if EpilogueStep.GELU in operation.signature.epilogue and sums > _MOST_GELU_SUMS:
        return f"gelu of a {tiling.tile_m}x{tiling.tile_n} tile needs more registers"
    return None


def _plan_best(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
    tiling = tiling_of(configuration.name)
    assert tiling is not None, configuration.name
    problem, tiling = _in_kernel(problem_of(operation), tiling)
    s = operation.signature
    direct, is_split = problem.is_stored_directly, tiling.splits > 1
    tiles = tiling.clusters(problem.m, problem.n)
    # A slice is a cluster's only unit, so that nobody waits for a cluster that has not started.
    units = tiles * tiling.splits
    maps, staged = _maps(tiling, problem), staged_columns(tiling.tile_n)
    workspaces = {}
    if is_split:
        blocks = tiles * tiling.cluster
        workspaces = {
            "partial": (tiling.splits + 1)
            * blocks * tiling.tile_m * tiling.tile_n * _PARTIAL_BYTES,
            "arrivals": blocks * tiling.consumers * 4,
        }  # fmt: skip
    box = (staged, 16) if problem.is_swapped else (16, staged)
    arguments: tuple[Argument, ...] = (
        *maps,
        maps[0] if direct else problem.result_tiles(*box),
        Pointer("result"), *pointers(operation, "addend", "bias", "residual"),
        Pointer("partial", alignment=16) if is_split else None,
        Pointer("arrivals") if is_split else None,
        float(s.alpha), float(s.beta),
        (problem.m, problem.n, problem.k, tiling.band, 0 if is_split else tiles,
         units if is_split else 0),
    )  # fmt: skip
    macros = {
        "CLUSTER_M": tiling.cluster_m, "CLUSTER_N": tiling.cluster_n, "SPLIT": int(is_split),
        "SWAPPED": int(problem.is_swapped), "DIRECT": int(direct),
        "BIAS_ALONG_M": int(problem.is_transposed), **epilogue_macros(operation),
        **format_macros(operation), **_directions(problem),
    }  # fmt: skip
    return _planned(
        "r11_best", tiling, problem, arguments, macros,
        clusters=units if is_split else min(tiles, processors // tiling.cluster),
        staging=0 if direct else staging_bytes(tiling), workspaces=workspaces,
        starts_early=tiling.starts_early,
    )  # fmt: skip


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

_FP8_WIDTHS = (64, 96, 128, 160)
_MOST_FP8_SUMS = {1: 160, 2: 192, 3: 128}
"""Warpgroups that multiply -> sums and products of a thread up to which no registers are
spilled."""
_FP8_TILINGS = (
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


def _why_not_fp8_tiling(tiling: Tiling) -> str | None:
    if tiling.tile_m not in (64, 128, 192, 256) or tiling.tile_n not in _FP8_WIDTHS:
        widths = ", ".join(map(str, _FP8_WIDTHS))
        return f"tiles are 64, 128, 192 or 256 rows by {widths} columns"
    height = tiling.tile_m // tiling.consumers // 64
    if (height + 1) * tiling.tile_n // 2 > _MOST_FP8_SUMS[tiling.consumers]:
        return f"a tile of {tiling.tile_m}x{tiling.tile_n} needs more registers than there are"
    if tiling.is_swapped or tiling.starts_early:
        return "the fp8 kernel computes no transpose, and does not start early"
    if tiling.cluster_m not in (1, 2, 4) or tiling.cluster_n != 1 or tiling.splits != 1:
        return "clusters are 1, 2 or 4 blocks below each other, and K is not divided"
    if tiling.tile_n // tiling.cluster_m % 8:
        return f"{tiling.cluster_m} blocks cannot share {tiling.tile_n} columns in eights"
    return None if tiling.band > 0 else "bands start at 1"


def _why_not_fp8(operation: Operation, configuration: Configuration) -> str | None:
    s = operation.signature
    if reason := wrong_formats("the fp8 kernel", s, (E4M3,), (BF16, F16, F32), "tnt"):
        return reason
    if s.scaling not in _SCALES:
        return f"the fp8 kernel takes the factors {', '.join(map(str, _SCALES))}, not {s.scaling}"
    tiling = tiling_of(configuration.name)
    return f"{configuration.name} is no tiling" if tiling is None else _why_not_fp8_tiling(tiling)


def _plan_fp8(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
    problem, tiling = problem_of(operation), tiling_of(configuration.name)
    assert tiling is not None, configuration.name
    s, scales = operation.signature, _SCALES[operation.signature.scaling]
    direct = problem.is_stored_directly
    factors = {2: tiling.tile_m + _SQUARES, 3: tiling.tile_m + tiling.tile_n}.get(scales, 0)
    map_a = problem.a.tiles(tiling.tile_m, _DEPTH)
    stored = map_a if direct else problem.result_tiles(16, staged_columns(tiling.tile_n))
    arguments: tuple[Argument, ...] = (
        map_a, problem.b.tiles(tiling.tile_n // tiling.cluster_m, _DEPTH), stored,
        Pointer("result"),
        *pointers(operation, "scale_a", "scale_b", "addend", "bias", "residual"),
        float(s.alpha), float(s.beta), (problem.m, problem.n, problem.k, tiling.band),
    )  # fmt: skip
    macros = {
        "IN_E4M3": 1, "CLUSTER": tiling.cluster_m, "DIRECT": int(direct), "SCALES": scales,
        **result_macros(operation), **epilogue_macros(operation),
    }  # fmt: skip
    return _planned(
        "fp8", tiling, problem, arguments, macros,
        clusters=min(tiling.clusters(problem.m, problem.n), processors // tiling.cluster_m),
        stage_bytes=(tiling.tile_m + tiling.tile_n) * STEP_BYTES + 4 * factors,
        staging=0 if direct else staging_bytes(tiling),
    )  # fmt: skip


_FORMATS = formats_of("512x512x512")
_LAYOUTS = tuple(f"matmul_512x512x512_bf16{a}_bf16{b}_bf16t" for a, b in ("tt", "nt", "nn"))
_UNEVEN = ("matmul_500x501x502_bf16t_bf16n_bf16t", "matmul_511x513x515_f16n_f16t_f16n")
_EPILOGUES = (
    "matmul_512x512x512_bf16t_bf16n_bf16t_alpha0p5_beta2_bias_relu",
    "matmul_512x512x512_f16t_f16n_f16t_bias_gelu_residual",
)


def _only(key: str, tiling: Tiling) -> Callable[[Operation], Iterable[Configuration]]:
    return only(tiling.configuration(key, _STEP))


def _middle(name: str, adds: str, tiling: Tiling, *instructions: str) -> CudaKernel:
    """The row of one of the rungs 7 to 10."""
    return CudaKernel(
        name=name,
        rung=int(name[1:3]),
        adds=adds,
        instructions=("HGMMA", "UTMALDG", "SYNCS", "USETMAXREG", *instructions),
        exempt=lambda compilation: instructions if ("DIRECT", 1) in compilation.macros else (),
        checked=(*_FORMATS, *_LAYOUTS, *_UNEVEN),
        why_not=_why_not_plain,
        plan=_plan_middle(name, tiling),
        configurations=_only(name[:3], tiling),
    )


KERNELS = (
    CudaKernel(
        name="r05_wgmma",
        rung=5,
        adds="matrix instructions of a warpgroup, and boxes fetched by the copy engine",
        instructions=("HGMMA", "UTMALDG", "SYNCS"),
        checked=_FORMATS,
        why_not=_why_not_first,
        plan=_plan_first("r05_wgmma", 1),
        configurations=_only("r05", Tiling(128, 128)),
    ),
    CudaKernel(
        name="r06_pipeline",
        rung=6,
        adds="a ring of stages: fetching runs ahead of multiplying",
        instructions=("HGMMA", "UTMALDG", "SYNCS"),
        checked=_FORMATS,
        why_not=_why_not_first,
        plan=_plan_first("r06_pipeline", 4),
        configurations=_only("r06", Tiling(128, 128)),
    ),
    _middle(
        "r07_warp_specialised",
        "some warps fetch, others multiply, and registers go to those who need them",
        Tiling(128, 256),
    ),
    _middle(
        "r08_persistent",
        "blocks stay, and walk tiles in an order that suits the L2 cache",
        Tiling(128, 256),
    ),
    _middle(
        "r09_multicast", "two blocks share what they fetch of B", Tiling(128, 256, cluster_m=2)
    ),
    _middle(
        "r10_tma_store",
        "results leave through shared memory and the copy engine",
        Tiling(128, 256, cluster_m=2),
        "STSM",
        "UTMASTG",
    ),
    CudaKernel(
        name="r11_best",
        rung=11,
        adds="tiles to suit the shape, slices of K, alpha, beta and epilogues",
        instructions=("HGMMA", "UTMALDG", "SYNCS", "USETMAXREG"),
        checked=(*_FORMATS, *_LAYOUTS, *_UNEVEN, *_EPILOGUES),
        why_not=_why_not_best,
        plan=_plan_best,
        configurations=_best_configurations,
        everything=lambda operation: [one.configuration("r11", _STEP) for one in _TILINGS],
        parse=parser("r11", _STEP),
    ),
    CudaKernel(
        name="fp8",
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
        why_not=_why_not_fp8,
        plan=_plan_fp8,
        configurations=lambda operation: [
            one.configuration("fp8", _DEPTH)
            for one in ranked(_FP8_TILINGS, *operation.matmul_shape[:3])[:10]
        ],
        everything=lambda operation: [one.configuration("fp8", _DEPTH) for one in _FP8_TILINGS],
        parse=parser("fp8", _DEPTH),
    ),
)
