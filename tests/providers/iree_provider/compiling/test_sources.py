from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind
from gemmetry.domain.errors import StorageError
from gemmetry.domain.names import parse_operation
from gemmetry.providers.iree_provider.batches import parse_functions, source_path, write_source

NAME = "matmul_64x96x128_f32t_f32t_f32t"
OPERATION = parse_operation(NAME)
CPU = Target(TargetKind.CPU)
CUDA = Target(TargetKind.CUDA, "sm_80", None)
TILE = "tile_config_64x64_vector8x32x4"
SIMT = "tile_config_32x32x32_threads4x4_simt"


def dispatch(configuration: str, target: Target = CPU) -> Dispatch:
    return Dispatch(OPERATION, Configuration(configuration), "iree", target)


def test_files_lie_where_the_old_profiler_put_them(tmp_path: Path):
    assert (
        source_path(tmp_path, OPERATION) == tmp_path / "linalg" / "matmul" / NAME / f"{NAME}.mlir"
    )


def test_one_file_holds_all_configurations_of_all_targets(tmp_path: Path):
    path = write_source(tmp_path, [dispatch("default"), dispatch(TILE)])
    write_source(tmp_path, [dispatch(SIMT, CUDA), dispatch("default", CUDA)])
    functions = parse_functions(path.read_text())
    assert list(functions) == [f"{NAME}_{name}" for name in ("default", TILE, SIMT)]
    assert "iree_cpu.lowering_config" in functions[f"{NAME}_{TILE}"]
    assert "iree_gpu.lowering_config" in functions[f"{NAME}_{SIMT}"]
    assert "compilation_info" not in functions[f"{NAME}_default"]


def test_writing_the_same_again_leaves_the_file_alone(tmp_path: Path):
    path = write_source(tmp_path, [dispatch("default")])
    before = path.stat().st_mtime_ns, path.stat().st_ino
    write_source(tmp_path, [dispatch("default")])
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path):
    blocked = tmp_path / "generated"
    blocked.write_text("a file")
    with pytest.raises(StorageError, match="cannot write"):
        write_source(blocked, [dispatch("default")])
