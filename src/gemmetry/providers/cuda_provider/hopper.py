"""Rungs 5 to 11 of the ladder: matrix instructions of warpgroups, fed by the copy engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.operation import BF16, F16, F32, EpilogueStep, Operation, Scaling
from gemmetry.hardware.cuda_plans import (
    Argument,
    Compilation,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Macros,
    Pointer,
    macros_of,
)
from gemmetry.providers.cuda_provider.launching.kernel import (
    STEP_BYTES,
    CudaKernel,
    StoredProduct,
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
    if s.lhs is not s.rhs or s.lhs not in (BF16, F16):
        return f"rungs 5 to 11 multiply bf16 and f16, not {s.lhs} with {s.rhs}"
    if s.result not in (s.lhs, F32):
        return f"rungs 5 to 11 return {s.lhs} or f32, not {s.result}"
    if s.accumulator is not F32:
        return f"rungs 5 to 11 accumulate in f32, not {s.accumulator}"
    if s.scaling is not Scaling.NONE:
        return f"rungs 5 to 11 take no factors, here {s.scaling}"
    return None


def _why_not_plain(operation: Operation) -> str | None:
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
    return _why_not_plain(operation)


def _formats(problem: StoredProduct) -> dict[str, int]:
    return {
        "IN_F16": int(problem.a.dtype is F16),
        "OUT_F16": int(problem.result is F16),
        "OUT_F32": int(problem.result is F32),
    }


def _directions(problem: StoredProduct) -> dict[str, int]:
    return {"A_ALONG_M": int(problem.a.along_lines), "B_ALONG_N": int(problem.b.along_lines)}


def _operand_bytes(tiling: Tiling, problem: StoredProduct) -> int:
    """Bytes of a stage: boxes along M or N are 64 elements wide."""
    wide = (
        -(-lines // 64) * 64 if operand.along_lines else lines
        for lines, operand in ((tiling.tile_m, problem.a), (tiling.tile_n, problem.b))
    )
    return sum(wide) * STEP_BYTES


def _maps(tiling: Tiling, problem: StoredProduct) -> tuple[Argument, Argument]:
    """The tensor maps of A and B, in boxes of one block's share."""
    found = []
    for operand, lines, shares in (
        (problem.a, tiling.tile_m, tiling.cluster_n),
        (problem.b, tiling.tile_n, tiling.cluster_m),
    ):
        if operand.along_lines:
            found.append(operand.tiles(64, _STEP // shares))
        else:
            found.append(operand.tiles(lines // shares, _STEP))
    return found[0], found[1]


def _planned(
    problem: StoredProduct,
    source: str,
    macros: Macros,
    grid: Grid,
    arguments: tuple[Argument, ...],
    workspaces: dict[str, int] | None = None,
) -> LaunchPlan:
    launch = KernelLaunch(
        compilation=Compilation(source=f"gemm/{source}", macros=macros),
        grid=grid,
        arguments=arguments,
    )
    return LaunchPlan(
        launches=(*problem.packings, launch),
        workspaces={**problem.workspaces, **(workspaces or {})},
    )


def _plan_first(source: str, stages: int) -> Callable[[Operation, Configuration, int], LaunchPlan]:
    """Rungs 5 and 6: every block computes one tile of 128 × 128."""
    tiling = Tiling(128, 128)

    def plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
        problem = problem_of(operation)
        macros = {"TILE_M": 128, "TILE_N": 128, "CONSUMERS": 2, **_formats(problem)}
        if stages > 1:
            macros["STAGES"] = stages
        grid = Grid(
            blocks=(tiling.clusters(problem.m, problem.n), 1, 1),
            threads=(128 * tiling.consumers, 1, 1),
            dynamic_bytes=ring_bytes(stages, _operand_bytes(tiling, problem), 0),
        )
        sizes = (problem.m, problem.n, problem.k)
        arguments = (*_maps(tiling, problem), Pointer("result"), sizes)
        return _planned(problem, source, macros_of(**macros), grid, arguments)

    return plan


def _plan_middle(
    source: str, tiling: Tiling
) -> Callable[[Operation, Configuration, int], LaunchPlan]:
    """Rungs 7 to 10."""
    rung = int(source[1:3])

    def plan(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
        problem = problem_of(operation)
        direct = problem.is_stored_directly
        stage_bytes = _operand_bytes(tiling, problem)
        staging = 0 if rung < 10 or direct else staging_bytes(tiling)
        stages = stages_that_fit(stage_bytes, staging)
        macros = {
            "TILE_M": tiling.tile_m, "TILE_N": tiling.tile_n, "STAGES": stages,
            "CONSUMERS": tiling.consumers, **_formats(problem), **_directions(problem),
        }  # fmt: skip
        if rung >= 9:
            macros["CLUSTER"] = tiling.cluster_m
        if rung >= 10:
            macros["DIRECT"] = int(direct)
        clusters = tiling.clusters(problem.m, problem.n)
        if rung >= 8:
            clusters = min(clusters, processors // tiling.cluster)
        grid = Grid(
            blocks=(clusters * tiling.cluster, 1, 1),
            threads=(tiling.threads, 1, 1),
            dynamic_bytes=ring_bytes(stages, stage_bytes, staging),
        )
        arguments: list[Argument] = [*_maps(tiling, problem)]
        if rung >= 10:
            arguments.append(arguments[0] if direct else problem.result_tiles(16, 64))
        sizes = (problem.m, problem.n, problem.k) + ((tiling.band,) if rung >= 8 else ())
        arguments += [Pointer("result"), sizes]
        return _planned(problem, source, macros_of(**macros), grid, tuple(arguments))

    return plan


def _tiling_of(name: str) -> Tiling | None:
    return parse_tiling(name.removeprefix("r11_"))


def _parse_best(name: str) -> Configuration | None:
    tiling = _tiling_of(name)
    return None if tiling is None else tiling.configuration("r11", _STEP)


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
    height = tiling.tile_m // tiling.consumers // 64
    sums = height * tiling.tile_n // 2
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
    tiling = _tiling_of(configuration.name)
    if tiling is None:
        return f"{configuration.name} is no tiling"
    if reason := _why_not_tiling(problem_of(operation), tiling):
        return reason
    sums = tiling.tile_m * tiling.tile_n // tiling.consumers // 128
    if EpilogueStep.GELU in operation.signature.epilogue and sums > _MOST_GELU_SUMS:
        return f"gelu of a {tiling.tile_m}x{tiling.tile_n} tile needs more registers"
    return None


def _plan_best(operation: Operation, configuration: Configuration, processors: int) -> LaunchPlan:
    tiling = _tiling_of(configuration.name)
    assert tiling is not None, configuration.name
    problem, tiling = _in_kernel(problem_of(operation), tiling)
    s = operation.signature
    direct, is_split = problem.is_stored_directly, tiling.splits > 1
    stage_bytes = _operand_bytes(tiling, problem)
    staging = 0 if direct else staging_bytes(tiling)
    stages = stages_that_fit(stage_bytes, staging)
    macros = macros_of(
        TILE_M=tiling.tile_m, TILE_N=tiling.tile_n, STAGES=stages, CONSUMERS=tiling.consumers,
        CLUSTER_M=tiling.cluster_m, CLUSTER_N=tiling.cluster_n, SPLIT=int(is_split),
        SWAPPED=int(problem.is_swapped), DIRECT=int(direct), ALPHA=int(s.alpha != 1),
        ADDEND=int(s.beta != 0), EPILOGUE=epilogue_digits(operation),
        BIAS_ALONG_M=int(problem.is_transposed), **_formats(problem), **_directions(problem),
    )  # fmt: skip
    tiles = tiling.clusters(problem.m, problem.n)
    # A slice is a cluster's only unit, so that nobody waits for a cluster that has not started.
    units = tiles * tiling.splits
    clusters = units if is_split else min(tiles, processors // tiling.cluster)
    grid = Grid(
        blocks=(clusters * tiling.cluster, 1, 1),
        threads=(tiling.threads, 1, 1),
        dynamic_bytes=ring_bytes(stages, stage_bytes, staging),
        starts_early=True,
    )
    maps = _maps(tiling, problem)
    roles = {spec.role for spec in operation.inputs}

    def pointer(role: str) -> Argument:
        return Pointer(role) if role in roles else None

    workspaces = {}
    if is_split:
        blocks = tiles * tiling.cluster
        workspaces = {
            "partial": (tiling.splits + 1)
            * blocks * tiling.tile_m * tiling.tile_n * _PARTIAL_BYTES,
            "arrivals": blocks * tiling.consumers * 4,
        }  # fmt: skip
    staged = staged_columns(tiling.tile_n)
    box = (staged, 16) if problem.is_swapped else (16, staged)
    arguments: tuple[Argument, ...] = (
        *maps,
        maps[0] if direct else problem.result_tiles(*box),
        Pointer("result"), pointer("addend"), pointer("bias"), pointer("residual"),
        Pointer("partial", alignment=16) if is_split else None,
        Pointer("arrivals") if is_split else None,
        float(s.alpha), float(s.beta),
        (problem.m, problem.n, problem.k, tiling.band, 0 if is_split else tiles,
         units if is_split else 0),
    )  # fmt: skip
    return _planned(problem, "r11_best", macros, grid, arguments, workspaces)


_FORMATS = tuple(
    f"matmul_512x512x512_{lhs}t_{lhs}n_{result}t"
    for lhs in ("bf16", "f16")
    for result in (lhs, "f32")
)
_LAYOUTS = tuple(f"matmul_512x512x512_bf16{a}_bf16{b}_bf16t" for a, b in ("tt", "nt", "nn"))
_UNEVEN = ("matmul_500x501x502_bf16t_bf16n_bf16t", "matmul_511x513x515_f16n_f16t_f16n")
_EPILOGUES = (
    "matmul_512x512x512_bf16t_bf16n_bf16t_alpha0p5_beta2_bias_relu",
    "matmul_512x512x512_f16t_f16n_f16t_bias_gelu_residual",
)


def _only(key: str, tiling: Tiling) -> Callable[[Operation], Iterable[Configuration]]:
    return lambda operation: (tiling.configuration(key, _STEP),)


def _middle(name: str, adds: str, tiling: Tiling, *instructions: str) -> CudaKernel:
    """The row of one of the rungs 7 to 10."""
    return CudaKernel(
        name=name,
        rung=int(name[1:3]),
        adds=adds,
        instructions=("HGMMA", "UTMALDG", "SYNCS", "USETMAXREG", *instructions),
        exempt=lambda compilation: instructions if ("DIRECT", 1) in compilation.macros else (),
        checked=(*_FORMATS, *_LAYOUTS, *_UNEVEN),
        why_not=lambda operation, configuration: _why_not_plain(operation),
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
        parse=_parse_best,
    ),
)
"""Rungs 5 to 11."""
