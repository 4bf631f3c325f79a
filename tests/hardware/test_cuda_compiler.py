"""Tests of compiling CUDA C++ without a GPU."""

from __future__ import annotations

import re

import pytest

from gemmetry.domain.errors import CompileError

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.hardware import cuda_compiler
from gemmetry.hardware.cuda_compiler import Cubin, compile_file, compile_source, fetched
from gemmetry.hardware.cuda_plans import macros_of

RIGHT = macros_of(MUTANT=0, SERIAL=0, INPUT_BF16=0, OUTPUT_BF16=0)


def test_machine_code_is_kept_and_a_rejected_source_reported_with_the_compilers_first_line():
    cubin = compile_source("mutants/tiled_matmul", RIGHT, "sm_90")
    assert cubin.code.startswith(b"\x7fELF") and b"tiled_matmul" in cubin.code
    assert compile_source("mutants/tiled_matmul", RIGHT, "sm_90") is cubin
    with pytest.raises(CompileError, match="NVRTC rejected hopper_matmul for sm_90"):
        compile_source("mutants/hopper_matmul", RIGHT, "sm_90a")  # its macros are missing


def test_an_empty_log_leaves_the_bytes_of_others_alone():
    nvrtc = cuda_compiler.nvrtc
    _, program = nvrtc.nvrtcCreateProgram(b"__global__ void f() {}", b"f.cu", 0, [], [])
    nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"])
    log = fetched(program, "ProgramLog")
    assert log.strip(b"\0") == b""
    assert [bytes([value]).hex() for value in range(256)] == [f"{v:02x}" for v in range(256)]
    assert fetched(program, "CUBIN").startswith(b"\x7fELF")
    nvrtc.nvrtcDestroyProgram(program)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_the_spoiling_kernel_keeps_its_values_in_registers(architecture):
    """A compiler that saw through it would leave nearly all registers of the device as they are."""
    log = compile_source("stress", (), architecture).log
    registers = [int(count) for count in re.findall(r"Used (\d+) registers", log)]
    assert max(registers) >= 240
    assert min(registers) <= 16  # The other kernel leaves room for whom it keeps waiting.
    assert {int(count) for count in re.findall(r"(\d+) bytes spill", log)} == {0}


class Compiler:
    """Counts what reaches NVRTC, and compiles nothing."""

    def __init__(self, monkeypatch, folder):
        self.folder, self.kept = folder / "sources", folder / "kept"
        self.folder.mkdir()
        self.calls = 0
        self.write("kernel.cu", '#include "shared.cuh"')
        self.write("shared.cuh", "// empty")
        monkeypatch.setattr(cuda_compiler, "_compile", self._count)

    def _count(self, request, architecture):
        self.calls += 1
        return Cubin(f"code {self.calls}".encode(), f"log of {architecture}", "ptx")

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def __call__(self, architecture="sm_90a", **macros):
        return compile_file(
            self.folder, "kernel", macros_of(**macros), architecture, kept_in=self.kept
        )


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    return Compiler(monkeypatch, tmp_path)


def test_machine_code_on_disk_is_found_again_as_long_as_nothing_changes(compiler, monkeypatch):
    first = compiler(TILE=64)
    assert first == Cubin(b"code 1", "log of sm_90a", "ptx")
    assert compiler(TILE=64) == first and compiler.calls == 1
    assert compiler(TILE=128).code == b"code 2"
    assert compiler("sm_100a", TILE=64).code == b"code 3"
    compiler.write("shared.cuh", "// changed")
    assert compiler(TILE=64).code == b"code 4"
    compiler.write("kernel.cu", "// changed")
    for _ in range(2):
        assert compiler(TILE=64).code == b"code 5"
    monkeypatch.setattr(cuda_compiler, "nvrtc_version", lambda: (99, 1))
    assert compiler(TILE=64).code == b"code 6"
    assert len(list(compiler.kept.iterdir())) == 6


def test_a_damaged_file_is_replaced_and_what_cannot_be_kept_is_compiled_again(compiler):
    compiler()
    (file,) = compiler.kept.iterdir()
    for damaged in (b"", file.read_bytes()[:-1], b"x" + file.read_bytes()):
        file.write_bytes(damaged)
        fresh = compiler()
        assert fresh.code == b"code %d" % compiler.calls
        assert compiler() == fresh
    assert compiler.calls == 4
    file.unlink()
    compiler.kept.rmdir()
    compiler.kept.write_text("a file")
    assert [compiler().code for _ in range(2)] == [b"code 5", b"code 6"]


def test_a_missing_library_is_reported_with_what_to_install(monkeypatch, tmp_path):
    def missing():
        raise RuntimeError("Failed to dlopen libnvrtc.so.13\nmore")

    monkeypatch.setattr(cuda_compiler.nvrtc, "nvrtcVersion", missing)
    with pytest.raises(CompileError, match="cannot be loaded: Failed to dlopen") as caught:
        compile_file(cuda_compiler.SOURCES, "stress", (), "sm_90")
    assert "gemmetry[cuda]" in caught.value.hint
