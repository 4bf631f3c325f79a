"""Tests of finding NVIDIA's tools, and of reading disassembled code and what ptxas prints."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from gemmetry.hardware.cuda_plans import (
    CubinContents,
    CubinError,
    CubinKernel,
    NoDisassemblerError,
    ResourceUsage,
    cuda_tools,
    instructions_of,
    instructions_of_each,
    performance_notes,
    ptxas_usage,
    read_cubin,
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "cubins"
NVCC, CUTE = (EXAMPLES / f"{name}_gemm.cubin" for name in ("nvcc", "cute"))


def test_a_kernel_compiled_by_nvcc_states_what_it_takes():
    contents = read_cubin(NVCC.read_bytes())
    assert contents.architecture == "sm_90a"
    assert contents.kernels == {
        "gemm": CubinKernel(
            parameter_bytes=(128, 128, 8, 12), registers=168, stack_bytes=0, max_threads=384
        )
    }


def test_a_kernel_compiled_by_cute_dsl_has_another_version_of_the_abi():
    data = CUTE.read_bytes()
    assert data[8] != NVCC.read_bytes()[8]
    contents = read_cubin(data)
    assert contents.architecture == "sm_90a"
    ((name, kernel),) = contents.kernels.items()
    assert name.startswith("kernel_cutlass_gemm_")
    assert (kernel.parameter_bytes, kernel.required_threads) == ((8, 8, 8, 4, 4, 4), (128, 1, 1))


@pytest.mark.parametrize(("architecture", "stated", "variant"), [
    ("sm_80", "sm_80", False), ("sm_90", "sm_90", False), ("sm_90a", "sm_90a", True),
])  # fmt: skip
def test_what_is_read_is_what_the_compiler_reports(tmp_path, architecture, stated, variant):
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    from gemmetry.hardware.cuda_compiler import compile_file

    (tmp_path / "k.cu").write_text(
        """
        struct Sizes { int m; long long n; };
        extern "C" __global__ void __launch_bounds__(128)
            f(const float* a, int n, Sizes s, char c) {
          __shared__ float memory[64];
          memory[threadIdx.x % 64] = a[n];
          __syncthreads();
          ((float*)a)[s.m + s.n] = memory[c];
        }
        __global__ void g(double) {}
        """
    )
    cubin = compile_file(tmp_path, "k", (), architecture)
    contents = read_cubin(cubin.code)
    assert (contents.architecture, contents.is_specific) == (stated, variant)
    usage = ptxas_usage(cubin.log)["f"]
    kernel = contents.kernels["f"]
    assert kernel.parameter_bytes == (8, 4, 16, 1)
    assert kernel.registers == usage.registers
    assert kernel.shared_bytes == usage.shared_bytes == 256
    assert kernel.stack_bytes == 0
    assert kernel.max_threads == 128
    assert [one.parameter_bytes for name, one in contents.kernels.items() if name != "f"] == [(8,)]


def test_a_file_that_is_cut_off_anywhere_is_refused():
    data = NVCC.read_bytes()
    for end in (*range(200), *range(200, len(data), 97), len(data) - 1):
        with pytest.raises(CubinError):
            read_cubin(data[:end])


@pytest.mark.parametrize(("data", "reason"), [
    (b"", "is empty"),
    (b"#!/bin/sh\n" * 20, "not an ELF file"),
    (b"\x7fELF\x02\x01" + bytes(12) + struct.pack("<H", 62) + bytes(100), "machine 62"),
])  # fmt: skip
def test_other_files_are_named(data, reason):
    with pytest.raises(CubinError, match=reason):
        read_cubin(data)


@pytest.mark.parametrize(("number", "is_specific", "runs", "runs_not"), [
    (80, False, ["sm_80", "sm_86"], ["sm_75", "sm_90"]),
    (86, False, ["sm_86", "sm_89"], ["sm_80"]),
    (90, True, ["sm_90"], ["sm_100", "sm_80"]),
    (100, False, ["sm_100", "sm_103"], ["sm_90", "sm_120"]),
    (100, True, ["sm_100"], ["sm_103"]),
])  # fmt: skip
def test_code_runs_on_later_devices_of_its_generation(number, is_specific, runs, runs_not):
    contents = CubinContents(number=number, is_specific=is_specific, kernels={})
    assert all(contents.runs_on(one) for one in runs)
    assert not any(contents.runs_on(one) for one in runs_not)


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
    with pytest.raises(NoDisassemblerError, match="not on PATH"):
        instructions_of(b"code")
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


def test_several_are_read_at_once():
    """As each of them alone: their instructions differ."""
    codes = [path.read_bytes() for path in (NVCC, CUTE, NVCC)]
    try:
        alone = [instructions_of(code) for code in codes[:2]]
    except NoDisassemblerError as error:
        pytest.skip(str(error))
    assert alone[0] != alone[1]
    assert instructions_of_each(codes) == [*alone, alone[0]]
    assert instructions_of_each([]) == []


PRINTED = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : Function properties for gemm
ptxas         .     512 bytes stack frame, 40 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 512 bytes cumulative stack, 1024 bytes smem
ptxas info    : Compiling entry function 'other' for 'sm_90a'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 26 registers, used 0 barriers
"""


def test_what_each_kernel_needs_is_read():
    assert ptxas_usage(PRINTED) == {
        "gemm": ResourceUsage(168, 40, 512, 1024),
        "other": ResourceUsage(26, 0, 0, 0),
    }
    assert ptxas_usage("ptxas fatal : unknown option") == {}


@pytest.mark.parametrize(
    "line",
    [
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to insufficient register resources in the function 'gemm'",
        "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to "
        "determine register count at entry.",
        "wgmma.mma_async instructions are serialized",
    ],
)
def test_kernels_that_are_slower_than_their_source_are_noticed(line):
    assert performance_notes(f"{PRINTED}{line}\n") == [line]
    assert performance_notes(PRINTED) == []
