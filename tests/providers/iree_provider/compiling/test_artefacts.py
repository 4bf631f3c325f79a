from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind
from gemmetry.domain.errors import StorageError
from gemmetry.domain.names import parse_operation
from gemmetry.providers.iree_provider import batches as artefacts
from gemmetry.providers.iree_provider.batches import (
    COMPILE_LOG,
    Artefact,
    artefact_key,
    compiled_folder,
    find_artefact,
    log_path,
    operation_folder,
    store_artefact,
    store_binary,
    store_logs,
    store_machine_code,
)
from gemmetry.providers.iree_provider.machine_code import MachineCode

CPU = Target(TargetKind.CPU)
CUDA = Target(TargetKind.CUDA, "sm_80", None)
HOST = ("--iree-llvmcpu-target-cpu=host",)


def dispatch(k: int = 128, target: Target = CPU) -> Dispatch:
    operation = parse_operation(f"matmul_64x96x{k}_f32t_f32t_f32t")
    return Dispatch(operation, Configuration("default"), "iree", target)


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, Dispatch, str]:
    one = dispatch()
    operation_folder(tmp_path, one.operation).mkdir(parents=True)
    key = artefact_key(one, HOST)
    names = store_binary(tmp_path, [one], b"binary")
    store_artefact(tmp_path, one, key, Artefact("3.13.0", names[one], 7, "chosen", "znver5"))
    return tmp_path, one, key


def test_what_was_stored_is_found_again(stored):
    folder, one, key = stored
    found = find_artefact(folder, one, key, "3.13.0")
    assert found is not None
    assert found.default_configuration == "chosen"
    assert (compiled_folder(folder, one.operation) / found.binary).read_bytes() == b"binary"


def test_another_compiler_flags_source_or_target_finds_nothing(stored):
    folder, one, key = stored
    assert find_artefact(folder, one, key, "3.14.0") is None
    assert find_artefact(folder, one, artefact_key(one, (*HOST, "-O0")), "3.13.0") is None
    assert find_artefact(folder, dispatch(256), key, "3.13.0") is None
    assert find_artefact(folder, dispatch(target=CUDA), key, "3.13.0") is None


def test_without_a_compiler_any_version_serves(stored):
    folder, one, key = stored
    assert find_artefact(folder, one, key, None) is not None


def test_code_for_the_host_fits_no_other_processor(stored, monkeypatch):
    _, one, key = stored
    gpu_key = artefact_key(one, ("--iree-cuda-target=sm_80",))
    monkeypatch.setattr(artefacts, "processor_identity", lambda: "another processor")
    assert artefact_key(one, HOST) != key
    assert artefact_key(one, ("--iree-cuda-target=sm_80",)) == gpu_key


def test_a_record_without_its_binary_or_half_written_counts_for_nothing(stored):
    folder, one, key = stored
    place = compiled_folder(folder, one.operation)
    (record,) = place.glob("*.json")
    whole = record.read_text()
    record.write_text(whole[: len(whole) // 2])
    assert find_artefact(folder, one, key, "3.13.0") is None
    record.write_text(json.dumps({"unknown": 1}))
    assert find_artefact(folder, one, key, "3.13.0") is None
    record.write_text(whole)
    for binary in place.glob("*.vmfb"):
        binary.unlink()
    assert find_artefact(folder, one, key, "3.13.0") is None


def test_a_shared_binary_is_in_the_folder_of_each_operation(tmp_path: Path):
    both = [dispatch(128), dispatch(256)]
    for one in both:
        operation_folder(tmp_path, one.operation).mkdir(parents=True)
    names = store_binary(tmp_path, both, b"both")
    paths = [compiled_folder(tmp_path, one.operation) / names[one] for one in both]
    assert [path.read_bytes() for path in paths] == [b"both", b"both"]
    assert paths[0].samefile(paths[1])
    assert store_binary(tmp_path, both, b"both") == names


def test_what_is_verified_and_what_is_timed_is_one_file(tmp_path: Path):
    one = dispatch()
    folder = operation_folder(tmp_path, one.operation)
    folder.mkdir(parents=True)
    for content in (b"old", b"new", b"new"):
        binary = folder / "compiled" / store_binary(tmp_path, [one], content)[one]
        for use in ("profile", "verify"):
            path = folder / f"{one.name}_cpu_{use}.vmfb"
            assert path.readlink() == binary.relative_to(folder)
            assert path.read_bytes() == content
    assert sorted(path.suffix for path in folder.iterdir()) == ["", ".vmfb", ".vmfb"]


def test_without_second_names_there_are_copies(tmp_path: Path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError("not on this file system")

    monkeypatch.setattr(artefacts.os, "link", refuse)
    both = [dispatch(128), dispatch(256)]
    for one in both:
        operation_folder(tmp_path, one.operation).mkdir(parents=True)
    store_binary(tmp_path, both, b"both")
    found = list(tmp_path.rglob("*.vmfb"))
    assert len(found) == 2 + 4  # the links of profile and verify
    assert {path.read_bytes() for path in found} == {b"both"}


def test_what_was_printed_is_kept_once_per_call_and_gathered(tmp_path: Path):
    first, second, third = dispatch(), dispatch(target=CUDA), dispatch(256)
    for one in (first, third):
        operation_folder(tmp_path, one.operation).mkdir(parents=True)
    store_logs(tmp_path, {first: ("k", "// call 1\n"), third: ("k", "// call 1\n")})
    store_logs(tmp_path, {second: ("k", "// call 2\n")})
    assert log_path(tmp_path, first, "k").samefile(log_path(tmp_path, third, "k"))
    gathered = operation_folder(tmp_path, first.operation) / COMPILE_LOG
    assert gathered.read_text() == "// call 1\n\n// call 2\n"
    store_logs(tmp_path, {first: ("k", "// call 3\n")})
    assert gathered.read_text() == "// call 3\n\n// call 2\n"
    assert log_path(tmp_path, third, "k").read_text() == "// call 1\n"


def test_machine_code_lies_next_to_the_binary(tmp_path: Path):
    one = dispatch(target=CUDA)
    compiled_folder(tmp_path, one.operation).mkdir(parents=True)
    name = store_machine_code(tmp_path, one, "key", MachineCode("mma.sync", ".ptx", "mma.sync"))
    assert name == "default_cuda-sm_80_key.ptx"
    assert (compiled_folder(tmp_path, one.operation) / name).read_text() == "mma.sync"


def test_a_folder_that_is_gone_is_reported(tmp_path: Path):
    with pytest.raises(StorageError, match="cannot write"):
        store_binary(tmp_path, [dispatch()], b"binary")
    with pytest.raises(StorageError, match="cannot write"):
        store_logs(tmp_path, {dispatch(): ("key", "text")})
