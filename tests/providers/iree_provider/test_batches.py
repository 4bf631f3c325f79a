"""Sources, compiled artefacts, and the printed commands, run as they are printed."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import StorageError
from gemmetry.domain.record import BuildFacts
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.iree_provider import batches
from gemmetry.providers.iree_provider.batches import (
    Artefact,
    artefact_stem,
    find_artefact,
    operation_folder,
    parse_functions,
    store_artefact,
    store_binary,
    store_logs,
    write_source,
)
from gemmetry.providers.iree_provider.provider import PROVIDER

CPU = Target(TargetKind.CPU)
CUDA = Target(TargetKind.CUDA, "sm_80", None)


HOST = ("--iree-llvmcpu-target-cpu=host",)
NAME = "matmul_64x96x128_f32t_f32t_f32t"
TILE = "tile_config_64x64_vector8x32x4"
SIMT = "tile_config_32x32x32_threads4x4_simt"


def dispatch(k: int = 128, target: Target = CPU, configuration: str = "default") -> Dispatch:
    operation = parse_operation(f"matmul_64x96x{k}_f32t_f32t_f32t")
    return Dispatch(operation, Configuration(configuration), "iree", target)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of generated files with the sources of two operations."""
    for k in (128, 256):
        write_source(tmp_path, [dispatch(k)])
    return tmp_path


@pytest.fixture
def stem(folder: Path) -> Path:
    """Of a stored dispatch."""
    stem, names = artefact_stem(folder, dispatch(), HOST), store_binary(folder, [dispatch()], b"b")
    facts = BuildFacts(compile_ns=7, default_configuration="chosen", compiled_for="znver5")
    store_artefact(stem, Artefact("3.13.0", names[dispatch()], facts))
    return stem


def test_one_file_holds_all_configurations_of_all_targets(tmp_path: Path):
    path = write_source(tmp_path, [dispatch(), dispatch(configuration=TILE)])
    assert path == tmp_path / "linalg" / "matmul" / NAME / f"{NAME}.mlir"
    write_source(tmp_path, [dispatch(128, CUDA, SIMT), dispatch(128, CUDA)])
    functions = parse_functions(path.read_text())
    assert list(functions) == [f"{NAME}_{name}" for name in ("default", TILE, SIMT)]
    assert "iree_cpu.lowering_config" in functions[f"{NAME}_{TILE}"]
    assert "iree_gpu.lowering_config" in functions[f"{NAME}_{SIMT}"]
    assert "compilation_info" not in functions[f"{NAME}_default"]
    before = path.stat()
    write_source(tmp_path, [dispatch()])
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_what_was_stored_is_found_again(folder, stem, monkeypatch):
    found = find_artefact(stem, "3.13.0")
    assert found is not None
    assert found.facts.default_configuration == "chosen"
    assert (stem.parent / found.binary).read_bytes() == b"b"
    assert find_artefact(stem, "3.14.0") is None
    assert find_artefact(stem, None) == found, "without a compiler any version serves"
    for other in (
        artefact_stem(folder, dispatch(), (*HOST, "-O0")),
        artefact_stem(folder, dispatch(256), HOST),
        artefact_stem(folder, dispatch(target=CUDA), HOST),
    ):
        assert find_artefact(other, "3.13.0") is None
    gpu = artefact_stem(folder, dispatch(), ("--iree-cuda-target=sm_80",))
    monkeypatch.setattr(batches, "processor_identity", lambda: "another processor")
    assert artefact_stem(folder, dispatch(), HOST) != stem
    assert artefact_stem(folder, dispatch(), ("--iree-cuda-target=sm_80",)) == gpu


def test_a_record_without_its_binary_or_half_written_counts_for_nothing(stem):
    (record,) = stem.parent.glob("*.json")
    whole = record.read_text()
    fields = {"compiler_version": "3.13.0", "binary": find_artefact(stem, None).binary,
              "compile_ns": 7, "assembly": "x.ptx", "registers": 96, "spill_bytes": 0}  # fmt: skip
    record.write_text(json.dumps(fields))
    found = find_artefact(stem, "3.13.0")  # of an earlier version of the record
    assert (found.assembly, found.facts.registers, found.facts.spill_bytes) == ("x.ptx", 96, 0)
    for damaged in (whole[: len(whole) // 2], json.dumps({"unknown": 1}), "[1]"):
        record.write_text(damaged)
        assert find_artefact(stem, "3.13.0") is None
    record.write_text(whole)
    for binary in stem.parent.glob("*.vmfb"):
        binary.unlink()
    assert find_artefact(stem, "3.13.0") is None


@pytest.mark.parametrize("has_links", [True, False])
def test_a_shared_binary_is_in_the_folder_of_each_operation(folder: Path, monkeypatch, has_links):
    """What is verified and what is timed is one file."""

    def refuse(*_: object) -> None:
        raise OSError("not on this file system")

    if not has_links:
        monkeypatch.setattr(batches.os, "link", refuse)
    both = [dispatch(128), dispatch(256)]
    for content in (b"old", b"new", b"new"):
        names = store_binary(folder, both, content)
        paths = []
        for one in both:
            place = operation_folder(folder, one.operation)
            paths.append(place / "compiled" / names[one])
            assert paths[-1].read_bytes() == content
            links = [place / f"{one.name}_cpu_{use}.vmfb" for use in batches.USES]
            assert {link.readlink() for link in links} == {paths[-1].relative_to(place)}
            assert set(place.glob("*.*")) == {
                place / ".lock", place / f"{one.operation}.mlir", *links,
            }  # fmt: skip
        assert paths[0].samefile(paths[1]) == has_links
    assert batches.USES == ("profile", "verify")


def test_what_was_printed_is_kept_once_per_call_and_gathered(folder: Path):
    first, second, third = (
        artefact_stem(folder, one, HOST)
        for one in (dispatch(), dispatch(target=CUDA), dispatch(256))
    )
    store_logs({first: "// call 1\n", third: "// call 1\n"})
    store_logs({second: "// call 2\n"})
    one, other = (stem.with_name(f"{stem.name}.log") for stem in (first, third))
    assert one.samefile(other)
    gathered = operation_folder(folder, dispatch().operation) / batches.COMPILE_LOG
    assert gathered.read_text() == "// call 1\n\n// call 2\n"
    store_logs({first: "// call 3\n"})
    assert gathered.read_text() == "// call 3\n\n// call 2\n"
    assert other.read_text() == "// call 1\n"


def test_a_folder_that_is_gone_is_reported(tmp_path: Path):
    (tmp_path / "blocked").write_text("a file")
    stem = artefact_stem(tmp_path, dispatch(), HOST)
    for store in (
        lambda: store_binary(tmp_path, [dispatch()], b"binary"),
        lambda: store_logs({stem: "text"}),
        lambda: write_source(tmp_path / "blocked", [dispatch()]),
    ):
        with pytest.raises(StorageError, match="cannot write"):
            store()


def test_the_commands_work_as_they_are_printed(tmp_path: Path):
    """numpy's files hold what numpy has a type for."""
    operation = parse_operation("matmul_32x48x64_bf16t_bf16t_f32t_bias")
    dispatch = Dispatch(operation, Configuration(), "iree", CPU)
    (compiled,) = PROVIDER().compile([dispatch], Workspace(generated=tmp_path / "generated"))
    facts = compiled.facts
    assert facts.source_path.startswith("generated/linalg/matmul/")
    inputs = (tmp_path / facts.binary_path).parent / "inputs"
    assert not inputs.exists()

    path = f"{sysconfig.get_path('scripts')}:/usr/bin:/bin"
    running = facts.run_command.replace("{seed}", "7").replace("{distribution}", "normal")
    for command in (facts.compile_command, f"{running} --benchmark_min_time=1x"):
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env={"PATH": path}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert (tmp_path / f"{dispatch.name}.vmfb").stat().st_size > 0
    assert dispatch.name in done.stdout
    assert done.stderr.count("Warning") == 0
    names = ["lhs.bin", "rhs.bin", "bias.npy"]
    assert {path.name for path in inputs.iterdir()} == set(names)
    expected = make_inputs(operation, distribution="normal", seed=7)
    for name, array in zip(names, expected, strict=True):
        assert (inputs / name).read_bytes().endswith(array.tobytes())
    np.testing.assert_array_equal(np.load(inputs / "bias.npy"), expected[2])


PRODUCT = "matmul_1x1x1_f32t_f32t_f32t"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([PRODUCT, "written", "7", "uniform"], 0, ""),
        ([PRODUCT], 2, "FOLDER"),
        (["matmul_nonsense", "x"], 2, "error: "),
        ([PRODUCT, "x", "seven"], 2, "'seven' is not a whole number"),
        ([PRODUCT, "x", "7", "nothing"], 2, "nothing"),
        ([PRODUCT, "/dev/null/x"], 3, "cannot write /dev/null/x"),
    ],
)
def test_mistakes_set_the_exit_status(arguments, status, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert batches.main(arguments) == status
    assert words in capsys.readouterr().err
