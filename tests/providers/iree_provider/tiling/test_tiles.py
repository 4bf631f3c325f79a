"""Names of configurations and their inverse, on every target."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.names import parse_operation, split_dispatch_name
from gemmetry.domain.operation import operation_name
from gemmetry.providers.iree_provider.tiles import DATA_TILING, DEFAULT, configuration
from gemmetry.providers.iree_provider.tiling import LegacyTile, parse_tile, search_tiles, tiles_for
from gemmetry.providers.iree_provider.tiling_cpu import CachedCpuTile, CpuConvTile, CpuTile
from gemmetry.providers.iree_provider.tiling_gpu import MfmaTile, MmaTile, SimtTile

CPU = Target(TargetKind.CPU)
CUDA = Target(TargetKind.CUDA, "sm_80", None)
HIP = Target(TargetKind.HIP, "gfx942", None)
VULKAN = Target(TargetKind.VULKAN, "ada", None)

F32 = parse_operation("matmul_512x512x512_f32t_f32t_f32t")
F16 = parse_operation("matmul_256x512x128_f16t_f16t_f16t")
ODD = parse_operation("matmul_257x129x65_f16t_f16t_f16t")
CONV = parse_operation("conv2d_1x58x58x64_3x3x128_f32nhwc_f32hwcf_f32nhwc")
OPERATIONS = [
    F32,
    F16,
    ODD,
    CONV,
    parse_operation("matmul_512x512x512_s8t_s8t_s32t"),
    parse_operation("batch_matmul_16x512x64x512_f32t_f32t_f32t"),
    parse_operation("matmul_splitk_128x128x12288_f16t_f16t_f16t_slices4"),
]
SIZES = st.integers(1, 4096)


def test_golden_names():
    names = {
        CpuTile(64, 64, 8, 32, 4): "tile_config_64x64_vector8x32x4",
        CachedCpuTile(128, 128, 8, 32, 1, 64, 64, 64): (
            "tile_config_128x128_cache64x64x64_vector8x32x1"
        ),
        CpuConvTile(4, 64, 8, 32, 1): "tile_config_4x64_vector8x32x1_conv",
        MmaTile(128, 128, 64, 2, 2): "tile_config_128x128x64_warps2x2_mma",
        SimtTile(64, 64, 32, 4, 4): "tile_config_64x64x32_threads4x4_simt",
        MfmaTile(128, 128, 64, 2, 2, 16): "tile_config_128x128x64_waves2x2_mfma16",
        LegacyTile(128, 128, 32, 5): "tile_config_128x128_32x5_tensorcore_mmasync",
        DEFAULT: "default",
        DATA_TILING: "data_tiling",
    }
    assert {tile.name for tile in names} == set(names.values())
    assert all(tile.name == name for tile, name in names.items())


@given(st.tuples(*[SIZES] * 8), st.booleans())
@settings(deadline=None, max_examples=60)
def test_any_cpu_tile_parses_back(sizes, has_cache):
    tile = CachedCpuTile(*sizes) if has_cache else CpuTile(*sizes[:5])
    assert parse_tile(tile.name, CPU) == tile


@given(st.tuples(*[SIZES] * 5), st.sampled_from([16, 32]))
@settings(deadline=None, max_examples=60)
def test_any_other_tile_parses_back(sizes, rows):
    for tile, target in (
        (CpuConvTile(*sizes), CPU),
        (MmaTile(*sizes), CUDA),
        (SimtTile(*sizes), CUDA),
        (LegacyTile(*sizes[:4]), CUDA),
        (MfmaTile(*sizes, rows), HIP),
    ):
        assert parse_tile(tile.name, target) == tile


@given(st.text("tile_configvecor0123456789x_", max_size=40))
@settings(deadline=None, max_examples=100)
def test_what_parses_prints_the_same(text):
    for target in (CPU, CUDA, HIP, VULKAN):
        tile = parse_tile(text, target)
        assert tile is None or tile.name == text


@pytest.mark.parametrize(
    "name",
    [
        "tile_config_064x64_vector8x32x4",
        "tile_config_0x64_vector8x32x4",
        "tile_config_64x64_vector8x32",
        "tile_config_64x64_vector8x32x4_mma",
        "tile_config_",
        "",
    ],
)
def test_other_spellings_are_not_names(name):
    assert all(parse_tile(name, target) is None for target in (CPU, CUDA, HIP, VULKAN))


def test_a_tile_belongs_to_one_kind_of_target():
    assert parse_tile("tile_config_128x128_32x5_tensorcore_mmasync", CPU) is None
    assert parse_tile("tile_config_64x64_vector8x32x4", CUDA) is None
    assert parse_tile("data_tiling", CUDA) is None
    assert parse_tile("tile_config_default", HIP) is not None


@pytest.mark.parametrize("target", [CPU, CUDA, HIP, VULKAN], ids=str)
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_listed_tiles_are_distinct_fit_and_parse_back(operation, target):
    tiles = list(tiles_for(operation, target))
    assert tiles[0] is DEFAULT
    assert len({tile.name for tile in tiles}) == len(tiles)
    for tile in tiles:
        assert tile.problem(operation) is None
        assert parse_tile(tile.name, target) == tile
        made = configuration(tile)
        name = f"{operation_name(operation)}_{made.name}"
        assert split_dispatch_name(name) == (operation, made.name)


@pytest.mark.parametrize("shape", ["256x256x256", "32x512x256"])
def test_a_search_on_a_cpu_has_many_more_tiles(shape):
    operation = parse_operation(f"matmul_{shape}_f32t_f32t_f32t")
    cpu = Target(TargetKind.CPU)
    listed, found = list(tiles_for(operation, cpu)), list(search_tiles(operation, cpu))
    assert found[: len(listed)] == listed
    assert len(found) > 4 * len(listed)
    assert len({tile.name for tile in found}) == len(found)
    for tile in found:
        assert parse_tile(tile.name, cpu) == tile
    few = list(search_tiles(operation, cpu, 8192))
    assert len(listed) < len(few) < len(found)


def test_a_search_elsewhere_has_the_listed_tiles():
    convolution = parse_operation("conv2d_1x8x8x4_3x3x16_f32nhwc_f32hwcf_f32nhwc")
    product = parse_operation("matmul_256x256x256_f16t_f16t_f32t")
    for operation, target in (
        (convolution, Target(TargetKind.CPU)),
        (product, Target(TargetKind.HIP, "gfx942", None)),
    ):
        assert list(search_tiles(operation, target)) == list(tiles_for(operation, target))


def test_vulkan_has_the_compilers_choice_only():
    assert list(tiles_for(F32, VULKAN)) == [DEFAULT]


def test_tiles_far_larger_than_the_matrix_are_not_listed():
    small = parse_operation("matmul_32x32x64_f32t_f32t_f32t")
    names = [tile.name for tile in tiles_for(small, CPU)]
    assert not any(name.startswith("tile_config_128x128") for name in names)


def test_cpu_levels_of_a_batch_have_a_leading_one():
    batch = parse_operation("batch_matmul_4x64x64x64_f32t_f32t_f32t")
    info = CachedCpuTile(64, 64, 8, 32, 4, 64, 64, 32).lowering(batch).compilation_info
    assert info == (
        "#iree_codegen.compilation_info<lowering_config = #iree_cpu.lowering_config<"
        "distribution = [1, 64, 64, 0], cache_parallel = [1, 64, 64, 0], "
        "cache_reduction = [0, 0, 0, 32], vector_common_parallel = [1, 8, 32, 0], "
        "vector_reduction = [0, 0, 0, 4]>, translation_info = #iree_codegen.translation_info<"
        "pipeline = #iree_cpu.pipeline<DoubleTilingExpert>>>"
    )


def test_data_tiling_is_a_flag():
    lowering = DATA_TILING.lowering(F32)
    assert lowering.flags == ("--iree-opt-data-tiling",)
    assert lowering.compilation_info is None


def test_a_tile_beyond_every_limit_is_not_refused():
    tile = CpuTile(64, 128, 64, 128, 1)
    assert tile.lowering(F32).vector_bytes == 64 * 128 * 4
    assert tile.problem(F32) is None


def test_tensor_core_tiles_count_instructions_and_pad_what_is_left_over():
    tile = MmaTile(64, 64, 64, 2, 2)
    even = tile.lowering(F16).compilation_info
    assert "subgroup = [2, 4, 0]" in even
    assert "reduction = [0, 0, 4]" in even
    assert "NV_MMA_SYNC_F32_16x8x16_F16" in even
    assert "padding" not in even
    assert "padding = [64, 64, 64]" in tile.lowering(ODD).compilation_info


@pytest.mark.parametrize(
    ("tile", "operation", "part"),
    [
        (MmaTile(128, 128, 32, 2, 2), F32, "no tensor-core instruction for f32"),
        (MmaTile(96, 128, 24, 2, 2), F16, "not a multiple of its warps' 32x16x16"),
        (MmaTile(1024, 512, 32, 8, 8), F16, "at most 1024 threads"),
        (MmaTile(64, 64, 32, 2, 2), CONV, "implicit GEMM"),
        (SimtTile(64, 64, 16, 3, 4), F32, "not a multiple of a thread's"),
        (SimtTile(8, 8, 16, 4, 4), F32, "4 threads"),
        (MfmaTile(128, 128, 64, 2, 2, 16), ODD, "does not divide m=257"),
        (MfmaTile(128, 128, 64, 4, 8, 16), F16, "at most 1024 threads"),
        (MfmaTile(128, 128, 64, 2, 2, 32), parse_operation("matmul_256x256x256_f64t_f64t_f64t"),
         "no 32-row MFMA of f64"),
        (CpuTile(64, 64, 8, 32, 4), CONV, "end in _conv"),
        (CpuConvTile(4, 64, 8, 32, 1), F32, "convolutions only"),
    ],
)  # fmt: skip
def test_tiles_that_do_not_fit_say_why(tile, operation, part):
    assert part in tile.problem(operation)
