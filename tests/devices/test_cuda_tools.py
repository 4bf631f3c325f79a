"""Tests of finding NVIDIA's tools and of reading disassembled code."""

from __future__ import annotations

import sys

import pytest

from gemmetry.hardware.cuda_plans import (
    NoDisassemblerError,
    cuda_tools,
    instructions_of,
    instructions_of_each,
    macros_of,
)

SHOWN = """\
        .section        .text.gemm,"ax",@progbits
gemm:
.text.gemm:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 UTMALDG.2D [UR8], [UR4], desc[UR6] ;
        /*0020*/             @UP1 SYNCS.ARRIVE.TRANS64 RZ, [UR5], R2 ;
        /*10030*/                  HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4], R24 ;
"""


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Neither PATH nor packages nor variables lead to a tool."""
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def program(folder, body):
    """An executable nvdisasm in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nvdisasm"
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return path


def test_tools_are_found_on_path_and_in_a_toolkit(nowhere, monkeypatch, tmp_path):
    assert list(cuda_tools("nvdisasm")) == []
    second = program(tmp_path / "toolkit" / "bin", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    assert list(cuda_tools("nvdisasm")) == [second]
    first = program(tmp_path / "path", "")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert list(cuda_tools("nvdisasm")) == [first, second]


def test_names_of_instructions_are_read(nowhere, monkeypatch, tmp_path):
    """A tool that is too old for the code is passed over."""
    program(tmp_path / "old", "raise SystemExit('unknown architecture')")
    monkeypatch.setenv("PATH", str(tmp_path / "old"))
    with pytest.raises(NoDisassemblerError, match="old/nvdisasm: CalledProcessError"):
        instructions_of(b"code")
    body = f"import sys; assert open(sys.argv[-1]).read() == 'code'; print({SHOWN!r})"
    program(tmp_path / "toolkit" / "bin", body)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    assert instructions_of(b"code") == {
        "LDC", "UTMALDG.2D", "SYNCS.ARRIVE.TRANS64", "HGMMA.64x256x16.F32.BF16",
    }  # fmt: skip


def test_without_a_tool_the_reason_is_given(nowhere):
    with pytest.raises(NoDisassemblerError, match="not on PATH"):
        instructions_of(b"code")


def test_several_are_read_at_once():
    """As each of them alone: their instructions differ."""
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    from gemmetry.hardware.cuda_compiler import compile_source

    macros = macros_of(MUTANT=0, SERIAL=0, INPUT_BF16=0, OUTPUT_BF16=0)
    sources = (("stress", ()), ("mutants/tiled_matmul", macros), ("stress", ()))
    codes = [compile_source(name, macros, "sm_90a").code for name, macros in sources]
    try:
        alone = [instructions_of(code) for code in codes]
    except NoDisassemblerError as error:
        pytest.skip(str(error))
    assert alone[0] != alone[1]
    assert instructions_of_each(codes) == alone
    assert instructions_of_each([]) == []
