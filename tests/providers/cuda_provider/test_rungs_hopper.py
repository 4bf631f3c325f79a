"""Rungs 5 to 11: plans, legality, and that tiles cover results."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.hardware.cuda_plans import Tiles
from gemmetry.providers.cuda_provider.hopper import KERNELS
from gemmetry.providers.cuda_provider.kernel import SHARED_BYTES, CudaKernel, parse_tiling

RUNGS = {kernel.rung: kernel for kernel in KERNELS}
BEST = RUNGS[11]
SQUARE = parse_operation("matmul_4096x4096x4096_bf16t_bf16n_bf16t")


def macros(kernel: CudaKernel, name: str, configuration: str = "") -> dict[str, int]:
    operation = parse_operation(name)
    chosen = (
        kernel.configuration(configuration, operation)
        if configuration
        else kernel.legal(operation)[0]
    )
    assert chosen is not None
    return dict(kernel.plan(operation, chosen, 132).launches[-1].compilation.macros)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_row_names_operations_that_it_computes(kernel: CudaKernel) -> None:
    for name in kernel.checked:
        operation = parse_operation(name)
        legal = kernel.legal(operation)
        assert legal, (name, kernel.refusal(operation))
        for configuration in legal:
            assert kernel.configuration(configuration.name, operation) == configuration
            plan = kernel.plan(operation, configuration, 132)
            for launch in plan.launches:
                assert launch.grid.dynamic_bytes <= SHARED_BYTES
                assert launch.grid.blocks[0] >= 1


@settings(max_examples=200)
@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 200))
def test_any_shape_has_a_plan_within_the_limits(m: int, n: int, k: int, processors: int) -> None:
    operation = parse_operation(f"matmul_{m}x{n}x{k}_bf16t_bf16n_bf16t")
    for kernel in KERNELS[2:]:
        legal = kernel.legal(operation)
        assert legal
        for configuration in legal[:3]:
            plan = kernel.plan(operation, configuration, max(processors, 4))
            launch = plan.launches[-1]
            tiling = parse_tiling(configuration.name.partition("_")[2])
            assert tiling is not None
            assert launch.grid.dynamic_bytes <= SHARED_BYTES
            assert launch.grid.blocks[0] % tiling.cluster == 0
            boxes = [one for one in launch.arguments if isinstance(one, Tiles)]
            for one in boxes:
                assert all(1 <= size <= 256 for size in one.boxes.box)
                assert all(stride % 16 == 0 for stride in one.boxes.all_strides)


def test_slices_cover_k_once_each() -> None:
    plan = BEST.plan(SQUARE, Configuration("r11_128x128_c2x1_b8_k4"), 132)
    *_, (_, _, k, _, whole, sharers) = plan.launches[-1].arguments
    tiles = 16 * 32
    assert (whole, sharers) == (0, tiles * 4)
    # r11_best.cu: cluster c has the steps from c · shared / sharers to (c + 1) · shared / sharers.
    steps = -(-k // 64)
    shared = tiles * steps
    bounds = [cluster * shared // sharers for cluster in range(sharers + 1)]
    assert bounds[0] == 0 and bounds[-1] == shared
    assert {b - a for a, b in itertools.pairwise(bounds)} == {16}
    # Workspaces hold every slice of every tile.
    assert plan.workspaces["partial"] >= 4 * 2 * tiles * 128 * 128 * 4
    assert plan.workspaces["arrivals"] == 2 * tiles * 2 * 4


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


def test_a_swapped_tiling_computes_the_transpose_and_stores_the_same_result() -> None:
    configuration = "r11_160x128_c1x2_b8_swap"
    for layout, is_bias_along_m in (("t", 1), ("n", 0)):
        name = f"matmul_320x7168x2048_bf16t_bf16n_bf16{layout}"
        operation = parse_operation(name)
        plan = BEST.plan(operation, Configuration(configuration), 132)
        launch = plan.launches[-1]
        found = dict(launch.compilation.macros)
        assert found["SWAPPED"] == 1 and found["BIAS_ALONG_M"] == is_bias_along_m
        assert (found["TILE_M"], found["TILE_N"], found["CLUSTER_M"]) == (128, 160, 2)
        a, b, result = (one for one in launch.arguments if isinstance(one, Tiles))
        turned = layout == "n"
        assert (a.buffer, b.buffer) == (("lhs", "rhs") if turned else ("rhs", "lhs"))
        # Rows of C as it is stored: along N where it is row-major.
        assert result.boxes.extents == ((320, 7168) if turned else (7168, 320))
        assert result.boxes.box == (16, 32)
        assert launch.grid.blocks[0] <= 132
    assert (
        macros(BEST, "matmul_320x7168x2048_bf16t_bf16n_bf16t", "r11_64x64_c1x1_b8")["SWAPPED"] == 0
    )


def test_macros_follow_the_operation() -> None:
    plain = macros(BEST, "matmul_512x512x512_bf16t_bf16n_bf16t")
    assert (plain["ALPHA"], plain["ADDEND"], plain["EPILOGUE"], plain["DIRECT"]) == (0, 0, 0, 0)
    rich = macros(BEST, "matmul_512x512x512_f16n_f16t_f16n_alpha2_beta3_residual_bias_gelu")
    assert (rich["ALPHA"], rich["ADDEND"], rich["EPILOGUE"]) == (1, 1, 413)
    assert rich["BIAS_ALONG_M"] == 1 and rich["IN_F16"] == rich["OUT_F16"] == 1
    assert macros(BEST, "matmul_512x513x512_bf16t_bf16n_bf16t")["DIRECT"] == 1
    assert macros(BEST, "matmul_512x512x512_bf16t_bf16n_f32t")["DIRECT"] == 1


@pytest.mark.parametrize(
    ("name", "configuration", "reason"),
    [
        ("matmul_64x64x64_f32t_f32n_f32t", "r11_64x64_c1x1_b8", "multiply bf16 and f16"),
        ("matmul_64x64x64_bf16t_bf16n_bf16t", "r11_100x64_c1x1_b8", "tiles are"),
        ("matmul_64x64x64_bf16t_bf16n_bf16t", "r11_256x256_c1x1_b8", "registers"),
        ("matmul_64x64x64_bf16t_bf16n_bf16t", "r11_64x64_c8x1_b8", "clusters"),
        ("matmul_64x64x64_bf16t_bf16n_bf16t", "r11_64x64_c1x1_b8_k2", "fewer than 2 steps"),
        ("matmul_64x64x640_bf16t_bf16n_bf16t", "r11_128x256_c1x1_b8_k2", "registers"),
        ("matmul_64x64x64_bf16t_bf16n_bf16t", "r11_64x64_c1x1_b0", "start at 1"),
        ("matmul_64x64x64_bf16t_bf16n_bf16t", "r11_nonsense", "no tiling"),
        ("matmul_64x64x64_bf16t_bf16n_bf16t", "r11_64x160_c1x1_b8_swap", "256 columns by"),
        ("matmul_64x64x64_bf16t_bf16n_bf16t", "r11_160x128_c1x4_b8_k9_swap", "fewer than 9 steps"),
        ("matmul_64x64x64_f16t_f16n_f16t_gelu", "r11_256x160_c1x1_b8", "gelu of a 256x160"),
    ],
)
def test_illegal_configurations_are_refused_with_a_reason(
    name: str, configuration: str, reason: str
) -> None:
    refusal = BEST.why_not(parse_operation(name), Configuration(configuration))
    assert refusal is not None and reason in refusal


def test_only_the_last_rung_has_an_epilogue() -> None:
    operation = parse_operation("matmul_64x64x64_bf16t_bf16n_bf16t_bias")
    assert [kernel.rung for kernel in KERNELS if kernel.legal(operation)] == [11]


def test_the_first_rungs_need_aligned_rows_along_k() -> None:
    for name in ("matmul_64x64x63_bf16t_bf16n_bf16t", "matmul_64x64x64_bf16t_bf16t_bf16t"):
        legal = [kernel.rung for kernel in KERNELS if kernel.legal(parse_operation(name))]
        assert legal == [7, 8, 9, 10, 11]
