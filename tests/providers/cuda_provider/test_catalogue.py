"""Rows of all kernels, how one is chosen, and properties of their plans."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import Configuration, parse_operation
from gemmetry.hardware.cuda_plans import Pointer, Tiles
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.decode import parse_variant
from gemmetry.providers.cuda_provider.hopper import KERNELS
from gemmetry.providers.cuda_provider.kernel import (
    SHARED_BYTES,
    CudaKernel,
    Tiling,
    parse_tiling,
    predicted_cycles,
    ranked,
    ring_bytes,
    staged_columns,
    stages_that_fit,
    staging_bytes,
)
from gemmetry.providers.kernels import __path__ as sources

PROCESSORS = 132
SMALL = "matmul_256x256x256_bf16t_bf16n_bf16t"

each_kernel = pytest.mark.parametrize("kernel", catalogue.kernels(), ids=lambda one: one.name)


def test_rungs_and_keys_belong_to_one_kernel_each() -> None:
    found = catalogue.kernels()
    rungs = [kernel.rung for kernel in found if kernel.rung is not None]
    assert len(set(rungs)) == len(rungs)
    assert max(Counter(kernel.key for kernel in found).values()) == 1
    for kernel in found:
        assert "_" not in kernel.key
        assert kernel.rung is None or kernel.name.startswith(f"r{kernel.rung:02d}_")


@each_kernel
def test_names_lead_back_to_plans_of_sources_and_buffers_that_exist(kernel: CudaKernel) -> None:
    files = {
        str(path.relative_to(folder).with_suffix(""))
        for folder in map(Path, sources)
        for path in folder.rglob("*.cu")
    }
    for name in kernel.checked:
        operation = parse_operation(name)
        assert kernel.refusal(operation) is None
        roles = {spec.role for spec in (*operation.inputs, operation.output)}
        legal = kernel.legal(operation)
        assert legal, name
        for one in legal:
            assert catalogue.kernel_of(one.name) is kernel
            again = kernel.configuration(one.name, operation)
            assert again == one and again.parameters == one.parameters
            plan = kernel.plan(operation, one, PROCESSORS)
            assert plan.launches
            for launch in plan.launches:
                assert launch.compilation.source in files
                named = {one.buffer for one in launch.arguments if isinstance(one, Pointer | Tiles)}
                assert named <= roles | set(plan.workspaces)
                blocks, cluster = launch.grid.blocks, launch.grid.cluster
                assert not any(a % b for a, b in zip(blocks, cluster, strict=True))


def test_the_fastest_kernels_are_tried() -> None:
    best = max(kernel.rung for kernel in catalogue.kernels() if kernel.rung is not None)
    operation = parse_operation(SMALL)
    chosen = catalogue.kernel_of(catalogue.choose(operation).name)
    assert chosen is not None and chosen.rung in (best, None)
    tried = [one.name for one in catalogue.worth_trying(operation)]
    assert tried[0] == "default"
    assert not {"r00", "r01"} & set(tried), "the slow steps of the ladder"


unswapped = st.builds(
    Tiling,
    st.sampled_from((64, 128, 192, 256)),
    st.sampled_from((64, 96, 128, 160, 176, 192, 208, 224, 256)),
    st.sampled_from((1, 2, 4)),
    st.sampled_from((1, 2, 4)),
    st.integers(1, 99),
    st.integers(1, 64),
    starts_early=st.booleans(),
)


def swapped(one: Tiling) -> Tiling:
    tile, cluster = (one.tile_n, one.tile_m), (one.cluster_n, one.cluster_m)
    return Tiling(*tile, *cluster, one.band, one.splits, True, one.starts_early)


tilings = st.one_of(unswapped, unswapped.map(swapped))


@given(tilings)
def test_names_parse_back(tiling: Tiling) -> None:
    assert parse_tiling(str(tiling)) == tiling


@given(unswapped)
def test_a_swapped_tiling_takes_the_same_kernel(tiling: Tiling) -> None:
    turned = swapped(tiling)
    assert turned.in_kernel == tiling.in_kernel == tiling
    assert turned.threads == tiling.threads and turned.cluster == tiling.cluster
    assert turned.clusters(320, 7168) == tiling.clusters(7168, 320)


@given(unswapped)
def test_the_ring_and_the_staging_memory_fit(tiling: Tiling) -> None:
    stage_bytes = (tiling.tile_m + tiling.tile_n) * 128
    staging = staging_bytes(tiling)
    stages = stages_that_fit(stage_bytes, staging)
    assert ring_bytes(stages, stage_bytes, staging) <= SHARED_BYTES
    one_more = ring_bytes(stages + 1, stage_bytes, staging) + 512
    assert stages == 12 or one_more > SHARED_BYTES
    columns = staged_columns(tiling.tile_n)
    assert tiling.tile_n % columns == 0
    assert columns == 64 or tiling.tile_n % (2 * columns)


WIDE, SQUARE, LOW = Tiling(128, 256, 2), Tiling(128, 128, 2), Tiling(64, 64, 2)
SLICED, TURNED = Tiling(128, 128, 2, splits=4), Tiling(160, 128, is_swapped=True)


@pytest.mark.parametrize(
    ("choices", "shape", "best"),
    [
        ((WIDE, SQUARE, LOW), (128, 4096, 4096), LOW),
        ((WIDE, SQUARE, LOW), (8192, 8192, 8192), WIDE),
        # Both large tiles reach what the power limit allows; the order of the list decides.
        ((LOW, SQUARE, WIDE), (8192, 8192, 8192), SQUARE),
        # Slices pay where K is long and tiles are few.
        ((SQUARE, SLICED), (256, 1024, 65536), SLICED),
        ((SQUARE, SLICED), (256, 1024, 512), SQUARE),
        # 320 rows are two swapped tiles of 160.
        ((WIDE, SQUARE, TURNED), (320, 7168, 2048), TURNED),
    ],
)
def test_the_best_tile_fits_the_result(choices, shape, best) -> None:
    assert ranked(choices, *shape)[0] == best


SIZES = st.integers(1, 9000)


@given(tilings, SIZES, SIZES, SIZES)
def test_more_work_never_takes_less_time(tiling: Tiling, m: int, n: int, k: int) -> None:
    assert predicted_cycles(tiling, m, n, k, 132) <= predicted_cycles(tiling, m + 64, n, k, 132)
    assert predicted_cycles(tiling, m, n, k, 132) <= predicted_cycles(tiling, m, n, k + 64, 132)


BEST = next(one for one in KERNELS if one.rung == 11)


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, SIZES, st.integers(1, 200))
def test_any_shape_has_a_plan_within_the_limits(m: int, n: int, k: int, processors: int) -> None:
    operation = parse_operation(f"matmul_{m}x{n}x{k}_bf16t_bf16n_bf16t")
    for kernel in KERNELS[2:7]:
        legal = kernel.legal(operation)
        assert legal
        for configuration in legal[:3]:
            launch = kernel.plan(operation, configuration, max(processors, 4)).launches[-1]
            tiling = parse_tiling(configuration.name.partition("_")[2])
            assert tiling is not None
            assert launch.grid.dynamic_bytes <= SHARED_BYTES
            assert launch.grid.blocks[0] % tiling.cluster == 0
            for one in (one for one in launch.arguments if isinstance(one, Tiles)):
                assert all(1 <= size <= 256 for size in one.boxes.box)
                assert all(stride % 16 == 0 for stride in one.boxes.all_strides)


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(1, 300), st.integers(2, 8))
def test_uneven_slices_stay_within_their_workspace(k: int, columns: int, splits: int) -> None:
    operation = parse_operation(f"matmul_64x{columns}x{k}_bf16t_bf16n_f32t")
    configuration = Configuration(f"r11_64x64_c1x1_b8_k{splits}")
    if BEST.why_not(operation, configuration) is not None:
        assert splits > -(-k // 64)
        return
    plan = BEST.plan(operation, configuration, 132)
    *_, (_, _, _, _, _, sharers) = plan.launches[-1].arguments
    steps, tiles = -(-k // 64), -(-columns // 64)
    shared = tiles * steps
    bounds = [cluster * shared // sharers for cluster in range(sharers + 1)]
    assert all(a < b for a, b in itertools.pairwise(bounds))
    for tile in range(tiles):
        begin, end = tile * steps, (tile + 1) * steps
        first = ((begin + 1) * sharers - 1) // shared
        last = (end * sharers - 1) // shared
        assert bounds[first] <= begin < bounds[first + 1]
        assert bounds[last] < end <= bounds[last + 1]
        size = (last - first + 1) * tiles * 64 * 64 * 4
        assert size <= plan.workspaces["partial"]


REGISTERS, MMA = map(catalogue.kernel_of, ("r03", "r04"))
FOLDER = resources.files("gemmetry.providers.kernels") / "gemm"


def test_the_register_tile_is_that_of_the_source() -> None:
    operation = parse_operation(SMALL)
    (configuration,) = REGISTERS.legal(operation)
    (launch,) = REGISTERS.plan(operation, configuration, PROCESSORS).launches
    source = (FOLDER / "r03_register_tiles.cu").read_text()
    tile, tile_k, threads = (
        int(re.search(rf"\b{name} = (\d+)", source)[1]) for name in ("TILE", "TILE_K", "THREADS")
    )
    assert configuration.tile == (tile, tile, tile_k)
    assert launch.grid.threads == (threads, 1, 1)


def test_warps_divide_the_tile() -> None:
    operation = parse_operation(SMALL)
    listed = MMA.legal(operation)
    assert len({one.name for one in listed}) == len(listed) >= 5
    for configuration in listed:
        (launch,) = MMA.plan(operation, configuration, PROCESSORS).launches
        macros = dict(launch.compilation.macros)
        for axis in "MN":
            assert macros[f"TILE_{axis}"] % (16 * macros[f"WARPS_{axis}"]) == 0


DECODE = catalogue.kernel_of("decode")


def runs_of_warps(blocks: int, n: int, runs: int, name: str) -> Iterator[tuple[int, int]]:
    """The tile and run of everything that the warps of decode.cu read, with its arithmetic."""
    variant = parse_variant(name)
    assert variant is not None
    tiles, stride = -(-n // variant.rows), blocks // variant.split
    for block in range(blocks):
        rank = block % variant.split
        for warp in range(variant.warps):
            first = runs * rank // variant.split + warp
            end = runs * (rank + 1) // variant.split
            count = max(end - first + variant.warps - 1, 0) // variant.warps
            for tile in range(block // variant.split, tiles, stride):
                for at in range(count):
                    yield tile, first + at * variant.warps


@pytest.mark.parametrize("name", [*DECODE.checked, "matmul_1x7168x2048_bf16t_bf16n_bf16t"])
def test_every_run_of_the_weights_is_read_once(name: str) -> None:
    operation = parse_operation(name)
    _, n, k, _ = operation.matmul_shape
    for configuration in DECODE.legal(operation):
        variant = parse_variant(configuration.name)
        assert variant is not None
        runs = -(-k * operation.signature.rhs.itemsize // (128 * variant.depth))
        for processors in (1, 132):
            (launch,) = DECODE.plan(operation, configuration, processors).launches
            blocks = launch.grid.blocks[0]
            read = Counter(runs_of_warps(blocks, n, runs, configuration.name))
            tiles = -(-n // variant.rows)
            assert read == Counter((tile, run) for tile in range(tiles) for run in range(runs))
            assert blocks % variant.split == 0 and blocks <= max(processors, variant.split)


def test_loads_without_the_copy_engine_are_tried_last() -> None:
    aligned, other = (
        DECODE.legal(parse_operation(f"matmul_2x64x{k}_bf16t_bf16n_bf16t")) for k in (64, 65)
    )
    assert [one.parameters["direct"] for one in aligned] == [False] * 5 + [True]
    assert other and all(one.parameters["direct"] for one in other)


@pytest.mark.parametrize(
    ("name", "suffix"), [(SMALL, "_early"), ("matmul_1x512x512_bf16t_bf16n_bf16t", "_ahead")]
)
def test_an_early_start_is_requested_by_name(name: str, suffix: str) -> None:
    """No configuration that a run chooses by itself starts early."""
    operation = parse_operation(name)
    every = [(kernel, one) for kernel in catalogue.kernels() for one in kernel.legal(operation)]
    chosen = catalogue.choose(operation)
    assert chosen is not None
    best = catalogue.kernel_of(chosen.name)
    early = best.configuration(f"{chosen.name}{suffix}", operation)
    assert best.why_not(operation, early) is None
    for kernel, configuration in (*every, (best, early)):
        launches = kernel.plan(operation, configuration, PROCESSORS).launches
        starts_early = any(launch.grid.starts_early for launch in launches)
        assert starts_early is (configuration is early)
