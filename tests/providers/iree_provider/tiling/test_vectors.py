"""Which tiles a processor's compiler rejects: the rule, and the compiler itself for other
processors than this one (on any host, as only the front half of the compiler runs)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gemmetry.domain.dispatch import Dispatch, Target, TargetKind
from gemmetry.domain.names import parse_operation
from gemmetry.providers.iree_provider import tiles as vectors
from gemmetry.providers.iree_provider.batches import dispatch_function
from gemmetry.providers.iree_provider.compiler import attribute_errors
from gemmetry.providers.iree_provider.provider import PROVIDER
from gemmetry.providers.iree_provider.support import TARGET_CPU_VARIABLE, target_flags
from gemmetry.providers.iree_provider.tiles import configuration, vector_limit_bytes
from gemmetry.providers.iree_provider.tiling import parse_tile, tiles_for
from gemmetry.providers.iree_provider.tiling_cpu import CachedCpuTile, CpuTile, cpu_tiles

CPU = Target(TargetKind.CPU)
F32 = parse_operation("matmul_512x512x512_f32t_f32t_f32t")
FOR_X86 = "--iree-llvmcpu-target-triple=x86_64-unknown-linux-gnu"
CACHED = "tile_config_64x64_cache64x64x64_vector8x32x1"
SMALLER = "tile_config_128x128_cache32x64x128_vector8x32x1"


@pytest.fixture
def program() -> Path:
    path = PROVIDER()._compiler_path()
    if path is None:
        pytest.skip("iree-compile is not installed")
    return path


def _flags(cpu: str, *more: str) -> list[str]:
    return target_flags(CPU, F32, {"target_cpu": cpu, "compile_flags": [FOR_X86, *more]})


@pytest.mark.parametrize(
    ("limit", "left_out"),
    [(None, set()), (32768, set()), (16384, {CACHED}), (8192, {CACHED, SMALLER})],
)
def test_what_the_processor_cannot_hold_is_not_offered(limit, left_out) -> None:
    every = {tile.name for tile in tiles_for(F32, CPU)}
    assert every - {tile.name for tile in tiles_for(F32, CPU, limit)} == left_out


@pytest.mark.parametrize(
    ("operation", "tile", "elements"),
    [
        ("matmul_512x512x512", CpuTile(64, 64, 8, 32, 4), 8 * 32 * 4),
        ("matmul_4x512x512", CpuTile(64, 64, 8, 32, 4), 4 * 32 * 4),
        ("matmul_512x512x512", CachedCpuTile(64, 64, 8, 32, 1, 64, 64, 64), 64 * 64),
        ("matmul_512x512x512", CachedCpuTile(32, 64, 8, 32, 1, 64, 64, 64), 32 * 64),
        ("matmul_257x512x512", CachedCpuTile(32, 64, 8, 32, 1, 64, 64, 64), 64 * 64),
        ("matmul_33x512x512", CachedCpuTile(64, 64, 8, 32, 1, 64, 64, 64), 33 * 64),
        ("matmul_512x512x64", CachedCpuTile(64, 64, 8, 32, 1, 64, 64, 64), 8 * 32),
        ("matmul_512x513x64", CachedCpuTile(64, 64, 8, 32, 1, 64, 64, 64), 64 * 64),
        ("matmul_512x512x512", CachedCpuTile(128, 128, 8, 32, 1, 48, 96, 64), 48 * 96),
    ],
)
def test_the_largest_vector_of_a_tile(operation, tile, elements) -> None:
    for formats, size in (("f32t_f32t_f32t", 4), ("f64t_f64t_f64t", 8)):
        lowering = tile.lowering(parse_operation(f"{operation}_{formats}"))
        assert lowering.vector_bytes == elements * size


@pytest.mark.parametrize("cpu", ["generic", "haswell", "skylake-avx512"])
def test_the_compiler_rejects_exactly_what_is_left_out(cpu, program) -> None:
    flags = _flags(cpu)
    limit = vector_limit_bytes(program, flags)
    assert limit is not None
    functions: dict[str, str] = {}
    left_out = set()
    for name in ("matmul_512x512x512_f32t_f32t_f32t", "matmul_257x129x65_f64t_f64t_f64t",
                 "matmul_256x256x64_f32t_f32t_f32t"):  # fmt: skip
        operation = parse_operation(name)
        for tile in cpu_tiles(operation):
            vector_bytes = tile.lowering(operation).vector_bytes
            if vector_bytes < vectors.SMALLEST_LIMIT_BYTES // 2:  # far from every limit
                continue
            dispatch = Dispatch(operation, configuration(tile), "iree", CPU)
            functions[dispatch.name] = dispatch_function(dispatch)
            if vector_bytes >= limit:
                left_out.add(dispatch.name)
    done = subprocess.run(
        [str(program), "-", "-o", "-", *flags, "--compile-to=executable-targets"],
        input="\n".join(functions.values()).encode(), capture_output=True, check=False,
    )  # fmt: skip
    assert set(attribute_errors(done.stderr.decode(), functions)) == left_out
    assert 0 < len(left_out) < len(functions)


def test_the_limit_is_the_compilers_own(program) -> None:
    assert vector_limit_bytes(program, _flags("generic")) == vectors.SMALLEST_LIMIT_BYTES
    assert vector_limit_bytes(program, _flags("haswell")) == 2 * vectors.SMALLEST_LIMIT_BYTES
    fewer = _flags("generic", "--iree-llvmcpu-max-allowed-number-of-native-vectors=100")
    assert vector_limit_bytes(program, fewer) == 1600


def test_without_an_answer_the_limit_is_unknown(tmp_path) -> None:
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
    assert every - names(target_cpu="generic", compile_flags=flags) == {CACHED, SMALLER}
    assert every - names(target_cpu="haswell", compile_flags=flags) == {CACHED}
    monkeypatch.setenv(TARGET_CPU_VARIABLE, "haswell")
    assert every - names(compile_flags=flags) == {CACHED}
    assert parse_tile(CACHED, CPU) is not None, "who asks for it by name gets the compiler's word"
