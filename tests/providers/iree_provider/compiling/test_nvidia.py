from __future__ import annotations

import io
import shutil
import sys
import zipfile
from pathlib import Path

from gemmetry.providers.iree_provider.compiler import (
    assemble,
    find_ptxas,
    ptxas_usage,
    shared_memory,
)
from gemmetry.providers.iree_provider.machine_code import Usage

PRINTED = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'f_dispatch_0' for 'sm_90'
ptxas info    : Function properties for f_dispatch_0
    512 bytes stack frame, 40 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 376 bytes cmem[0]
ptxas info    : Compiling entry function 'g_dispatch_0' for 'sm_90'
ptxas info    : Function properties for g_dispatch_0
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 26 registers, used 0 barriers, 1024 bytes smem, 368 bytes cmem[0]
"""


def test_what_ptxas_says_is_read():
    assert ptxas_usage(PRINTED) == {
        "f_dispatch_0": Usage(255, 40, 0),
        "g_dispatch_0": Usage(26, 0, 1024),
    }
    assert ptxas_usage("ptxas fatal : Value 'sm_1' is not defined for option 'gpu-name'") == {}


def test_assembling_keeps_command_and_words(tmp_path: Path):
    program = tmp_path / "ptxas"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:3])\n")
    program.chmod(0o755)
    printed = assemble(tmp_path / "a.ptx", "sm_90", program)
    assert printed == "// $ ptxas -v -arch=sm_90 a.ptx\n['-v', '-arch=sm_90']\n"
    assert "FileNotFoundError" in assemble(tmp_path / "a.ptx", "sm_90", tmp_path / "none")


def test_ptxas_is_taken_from_the_path_first(tmp_path: Path, monkeypatch):
    program = tmp_path / "ptxas"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ptxas() == program
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert shutil.which("ptxas") is None
    assert find_ptxas() is None


def archive(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("module.fb", b"other")
        file.writestr("linked.fb", content)
    return buffer.getvalue()


def test_a_file_that_is_not_a_cuda_binary_shows_nothing():
    assert shared_memory(b"no archive") == {}
    assert shared_memory(archive(b"\x7fELF")) == {}
    assert shared_memory(archive(b"CDA1" + b"\xff" * 100)) == {}
    assert shared_memory(archive(b"CDA1" + b"\0" * 62)) == {}
