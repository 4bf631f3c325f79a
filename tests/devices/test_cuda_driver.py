"""Tests of compiling CUDA C++ without a GPU."""

from __future__ import annotations

import re

import pytest

from gemmetry.domain.errors import CompileError

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.devices import cuda_driver
from gemmetry.devices.cuda_driver import (
    CudaError,
    checked,
    compile_source,
    fetched,
    macros_of,
)

RIGHT = macros_of(MUTANT=0, SERIAL=0, INPUT_BF16=0, OUTPUT_BF16=0)


def test_machine_code_is_kept() -> None:
    cubin = compile_source("mutants/tiled_matmul", RIGHT, "sm_90")
    assert cubin.code.startswith(b"\x7fELF") and b"tiled_matmul" in cubin.code
    assert compile_source("mutants/tiled_matmul", RIGHT, "sm_90") is cubin


def test_a_rejected_source_is_reported_with_the_compilers_first_line() -> None:
    with pytest.raises(CompileError, match="NVRTC rejected hopper_matmul for sm_90"):
        compile_source("mutants/hopper_matmul", RIGHT, "sm_90a")  # its macros are missing


def test_a_failed_call_raises_with_its_code() -> None:
    status = cuda_driver.driver.CUresult
    assert checked((status.CUDA_SUCCESS, 7), "asking") == 7
    assert checked((status.CUDA_SUCCESS,), "asking") is None
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE while asking") as caught:
        checked((status.CUDA_ERROR_INVALID_VALUE,), "asking")
    assert caught.value.error_code == 1


def test_an_empty_log_leaves_the_bytes_of_others_alone() -> None:
    nvrtc = cuda_driver.nvrtc
    _, program = nvrtc.nvrtcCreateProgram(b"__global__ void f() {}", b"f.cu", 0, [], [])
    nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"])
    log = fetched(program, "ProgramLog")
    assert log.strip(b"\0") == b""
    assert [bytes([value]).hex() for value in range(256)] == [f"{v:02x}" for v in range(256)]
    assert fetched(program, "CUBIN").startswith(b"\x7fELF")
    nvrtc.nvrtcDestroyProgram(program)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_the_spoiling_kernel_keeps_its_values_in_registers(architecture: str) -> None:
    """A compiler that saw through it would leave nearly all registers of the device as they are."""
    log = compile_source("stress", (), architecture).log
    registers = [int(count) for count in re.findall(r"Used (\d+) registers", log)]
    assert max(registers) >= 240
    assert min(registers) <= 16  # The other kernel leaves room for whom it keeps waiting.
    assert {int(count) for count in re.findall(r"(\d+) bytes spill", log)} == {0}
