"""Names of configurations and their inverse, on every target; the old dispatch profiler's tiles,
counted from a run of its generator; which tiles a processor's compiler rejects: the rule, and the
compiler itself for other processors than this one (only its front half runs)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmetry.domain.dispatch import (
    Dispatch,
    Target,
    TargetKind,
    parse_operation,
    split_dispatch_name,
)
from gemmetry.domain.operation import operation_name
from gemmetry.providers.iree_provider.batches import dispatch_function
from gemmetry.providers.iree_provider.compiler import attribute_errors
from gemmetry.providers.iree_provider.provider import PROVIDER
from gemmetry.providers.iree_provider.support import TARGET_CPU_VARIABLE, target_flags
from gemmetry.providers.iree_provider.tiles import (
    DEFAULT,
    SMALLEST_LIMIT_BYTES,
    CachedCpuTile,
    CpuTile,
    LegacyTile,
    legacy_tiles,
    parse_tile,
    search_tiles,
    tiles_for,
    vector_limit_bytes,
)

CPU = Target(TargetKind.CPU)
CUDA = Target(TargetKind.CUDA, "sm_80", None)
HIP = Target(TargetKind.HIP, "gfx942", None)
VULKAN = Target(TargetKind.VULKAN, "ada", None)

F32 = parse_operation("matmul_512x512x512_f32t_f32t_f32t")
F16 = parse_operation("matmul_256x512x128_f16t_f16t_f16t")
CONV = parse_operation("conv2d_1x58x58x64_3x3x128_f32nhwc_f32hwcf_f32nhwc")
OPERATIONS = [
    F32, F16, CONV,
    *map(parse_operation, (
        "matmul_257x129x65_f16t_f16t_f16t", "matmul_512x512x512_s8t_s8t_s32t",
        "batch_matmul_16x512x64x512_f32t_f32t_f32t",
        "matmul_splitk_128x128x12288_f16t_f16t_f16t_slices4",
    )),
]  # fmt: skip


@given(st.text("tile_configvecor0123456789x_", max_size=40))
def test_what_parses_prints_the_same(text):
    for target in (CPU, CUDA, HIP, VULKAN):
        tile = parse_tile(text, target)
        assert tile is None or tile.name == text


@pytest.mark.parametrize("target", [CPU, CUDA, HIP, VULKAN], ids=str)
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_listed_tiles_are_distinct_fit_and_parse_back(operation, target):
    tiles = list(tiles_for(operation, target))
    assert tiles[0] is DEFAULT
    assert len({tile.name for tile in tiles}) == len(tiles)
    for tile in tiles:
        assert tile.problem(operation) is None
        assert parse_tile(tile.name, target) == tile
        made = tile.configuration
        name = f"{operation_name(operation)}_{made.name}"
        assert split_dispatch_name(name) == (operation, made.name)


@pytest.mark.parametrize("shape", ["256x256x256", "32x512x256"])
def test_a_search_on_a_cpu_has_many_more_tiles(shape):
    operation = parse_operation(f"matmul_{shape}_f32t_f32t_f32t")
    listed, found = list(tiles_for(operation, CPU)), list(search_tiles(operation, CPU))
    assert found[: len(listed)] == listed
    assert len(found) > 4 * len(listed)
    assert len({tile.name for tile in found}) == len(found)
    for tile in found:
        assert parse_tile(tile.name, CPU) == tile
    few = list(search_tiles(operation, CPU, 8192))
    assert len(listed) < len(few) < len(found)
    for other, target in ((CONV, CPU), (F16, HIP)):
        assert list(search_tiles(other, target)) == list(tiles_for(other, target))
    small = parse_operation("matmul_32x32x64_f32t_f32t_f32t")
    names = [tile.name for tile in tiles_for(small, CPU)]
    assert not any("128x128" in name for name in names), "far larger than the matrix"


MATMULS = ("matmul_256x512x128", "matmul_2560x2560x2560", "matmul_3456x1024x2048")
SPLIT_KS = [f"matmul_splitk_128x128x12288_{{}}_slices{slices}" for slices in (2, 4, 16)]
HALF, SINGLE = "f16t_f16t_f16t", "f32t_f32t_f32t"


def test_the_old_profilers_operations_have_its_109_tiles():
    """17 operations."""
    matmuls, batches = [f"{one}_{{}}" for one in MATMULS], ["batch_matmul_16x512x64x512_{}"]
    for names, formats, count in (
        (matmuls, HALF, 20), (matmuls, SINGLE, 26), (matmuls, "f16t_f16t_f32t", 20),
        (SPLIT_KS, HALF, 15), (SPLIT_KS, SINGLE, 21), (batches, HALF, 3), (batches, SINGLE, 4),
    ):  # fmt: skip
        operations = [parse_operation(name.format(formats)) for name in names]
        tiles = [(one, tile) for one in operations for tile in legacy_tiles(one)]
        assert len(tiles) == count
        for operation, tile in tiles:
            assert tile.problem(operation) is None, f"{operation}: {tile.name}"
            assert tile.name in {tile.name for tile in tiles_for(operation, CUDA)}


def test_the_old_filter_counts_all_stages_of_both_operands():
    operation = parse_operation("matmul_256x512x128_f16t_f16t_f16t")
    tile = LegacyTile(128, 128, 64, 4)
    # (128 * 64 + 64 * 128) * 2 bytes * 4 stages = 128 KiB: fits sm_80 (163), not sm_86 (99).
    assert tile.old_problem(operation, "sm_80") is None
    assert "131072 bytes" in tile.old_problem(operation, "sm_86")
    assert "does not divide n=512 by 192" in LegacyTile(128, 192, 32, 3).old_problem(operation)
    assert len(list(legacy_tiles(operation, "sm_86"))) < len(list(legacy_tiles(operation)))


FOR_X86 = "--iree-llvmcpu-target-triple=x86_64-unknown-linux-gnu"
CACHING = "tile_config_64x64_cache64x64x64_vector8x32x1"
SMALLER = "tile_config_128x128_cache32x64x128_vector8x32x1"


@pytest.fixture
def program() -> Path:
    path = PROVIDER()._compiler_path()
    if path is None:
        pytest.skip("iree-compile is not installed")
    return path


def _flags(cpu: str, *more: str) -> list[str]:
    return target_flags(CPU, F32, {"target_cpu": cpu, "compile_flags": [FOR_X86, *more]})


CACHED, LOWER = (CachedCpuTile(rows, 64, 8, 32, 1, 64, 64, 64) for rows in (64, 32))


@pytest.mark.parametrize(
    ("shape", "tile", "elements"),
    [
        ("512x512x512", CpuTile(64, 64, 8, 32, 4), 8 * 32 * 4),
        ("4x512x512", CpuTile(64, 64, 8, 32, 4), 4 * 32 * 4),
        ("512x512x512", CACHED, 64 * 64),
        ("512x512x512", LOWER, 32 * 64),
        ("257x512x512", LOWER, 64 * 64),
        ("33x512x512", CACHED, 33 * 64),
        ("512x512x64", CACHED, 8 * 32),
        ("512x513x64", CACHED, 64 * 64),
        ("512x512x512", CachedCpuTile(128, 128, 8, 32, 1, 48, 96, 64), 48 * 96),
    ],
)
def test_the_largest_vector_of_a_tile(shape, tile, elements) -> None:
    for formats, size in ((SINGLE, 4), ("f64t_f64t_f64t", 8)):
        lowering = tile.lowering(parse_operation(f"matmul_{shape}_{formats}"))
        assert lowering.vector_bytes == elements * size


@pytest.mark.parametrize("cpu", ["generic", "haswell", "skylake-avx512"])
def test_the_compiler_rejects_exactly_what_is_left_out(cpu, program) -> None:
    flags = _flags(cpu)
    limit = vector_limit_bytes(program, flags)
    assert limit is not None
    functions, left_out = {}, set()
    for name in ("matmul_512x512x512_f32t_f32t_f32t", "matmul_257x129x65_f64t_f64t_f64t",
                 "matmul_256x256x64_f32t_f32t_f32t"):  # fmt: skip
        operation = parse_operation(name)
        for tile in tiles_for(operation, CPU):
            vector_bytes = tile.lowering(operation).vector_bytes
            if vector_bytes < SMALLEST_LIMIT_BYTES // 2:  # far from every limit
                continue
            dispatch = Dispatch(operation, tile.configuration, "iree", CPU)
            functions[dispatch.name] = dispatch_function(dispatch)
            if vector_bytes >= limit:
                left_out.add(dispatch.name)
    done = subprocess.run(
        [str(program), "-", "-o", "-", *flags, "--compile-to=executable-targets"],
        input="\n".join(functions.values()).encode(), capture_output=True, check=False,
    )  # fmt: skip
    assert set(attribute_errors(done.stderr.decode(), functions)) == left_out
    assert 0 < len(left_out) < len(functions)


def test_the_limit_is_the_compilers_own_or_unknown(program, tmp_path) -> None:
    fewer = _flags("generic", "--iree-llvmcpu-max-allowed-number-of-native-vectors=100")
    assert vector_limit_bytes(program, fewer) == 1600
    assert vector_limit_bytes(program, _flags("generic")) == SMALLEST_LIMIT_BYTES
    assert vector_limit_bytes(program, _flags("haswell")) == 2 * SMALLEST_LIMIT_BYTES
    assert vector_limit_bytes(tmp_path / "none", ()) is None
    silent = tmp_path / "iree-compile"
    silent.write_text(f"#!{sys.executable}\n")
    silent.chmod(0o755)
    assert vector_limit_bytes(silent, ()) is None
    silent.chmod(0o644)
    assert vector_limit_bytes(silent, ("--other",)) is None


def test_the_provider_offers_what_its_processor_takes(program, monkeypatch) -> None:
    def names(**options) -> set[str]:
        return {found.name for found in PROVIDER(options).configurations(F32, CPU)}

    every = {tile.name for tile in tiles_for(F32, CPU)}
    flags = [FOR_X86]
    assert every - names(target_cpu="generic", compile_flags=flags) == {CACHING, SMALLER}
    assert every - names(target_cpu="haswell", compile_flags=flags) == {CACHING}
    monkeypatch.setenv(TARGET_CPU_VARIABLE, "haswell")
    assert every - names(compile_flags=flags) == {CACHING}
    assert parse_tile(CACHING, CPU) is not None, "who asks for it by name gets the compiler's word"
