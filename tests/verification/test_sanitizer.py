"""The output texts have the form of compute-sanitizer's manual and of version 2025.x."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.verification.checks.results import CheckOutcome
from gemmetry.verification.protocol import (
    ERROR_EXIT_STATUS,
    SanitizedRun,
    find_sanitizer,
    sanitizer_command,
    sanitizer_result,
)

CLEAN = """\
========= COMPUTE-SANITIZER
gemmetry: launching
========= ERROR SUMMARY: 0 errors
"""

MEMCHECK = """\
========= COMPUTE-SANITIZER
gemmetry: launching
========= Invalid __global__ write of size 4 bytes
=========     at gemm(const float *, const float *, float *, int, int, int)+0x1c0 in gemm.cu:41
=========     by thread (31,0,0) in block (2,0,0)
=========     Access at 0x7f2c4ba00c04 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f2c4ba00000 of size 3072 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x2f9b5f] in libcuda.so.1
=========
========= Invalid __global__ write of size 4 bytes
=========     at gemm(const float *, const float *, float *, int, int, int)+0x1c0 in gemm.cu:41
=========     by thread (30,0,0) in block (2,0,0)
=========
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure"
=========     Saved host backtrace up to driver entry point at error
=========
the launch failed: unspecified launch failure
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""

RACECHECK = """\
========= COMPUTE-SANITIZER
gemmetry: launching
========= Error: Race reported between Write access at gemm(float *)+0x2e0 in gemm.cu:50
=========     and Read access at gemm(float *)+0x3b0 in gemm.cu:56 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""

RACECHECK_WARNING = """\
========= COMPUTE-SANITIZER
gemmetry: launching
========= Warning: Race reported between Read access at gemm(float *)+0x2e0 in gemm.cu:50
=========     and Write access at gemm(float *)+0x3b0 in gemm.cu:56 [8 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""

SYNCCHECK = """\
========= COMPUTE-SANITIZER
gemmetry: launching
========= Barrier error detected. Divergent thread(s) in block.
=========     at gemm(int *, int *)+0xe0 in gemm.cu:13
=========     by thread (32,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 16 errors
"""

INITCHECK = """\
========= COMPUTE-SANITIZER
gemmetry: launching
========= Uninitialized __global__ memory read of size 4 bytes
=========     at gemm(const float *)+0x70 in gemm.cu:7
=========     by thread (65,0,0) in block (0,0,0)
=========     Address 0x7f2c4ba00104
=========
========= ERROR SUMMARY: 63 errors
"""

REFUSED = """\
========= COMPUTE-SANITIZER
========= Error: Device not supported. Please refer to the "Supported Devices" section
=========
no device
========= ERROR SUMMARY: 1 error
"""

NO_LAUNCH = """\
========= COMPUTE-SANITIZER
========= Error: Target application terminated before first instrumented API call
=========
the provider triton cannot do it: tile_m 256 exceeds the shared memory
"""


def result(tool, output, status=0, launched=None):
    is_launched = "gemmetry: launching" in output if launched is None else launched
    return sanitizer_result(
        SanitizedRun(tool=tool, output=output, status=status, launched=is_launched, seconds=9)
    )


@pytest.mark.parametrize("tool", ["memcheck", "synccheck", "initcheck"])
def test_nothing_found_is_passed(tool):
    found = result(tool, CLEAN)
    assert (found.name, found.outcome) == (tool, CheckOutcome.PASSED)


@pytest.mark.parametrize(
    ("tool", "output", "parts"),
    [
        ("memcheck", MEMCHECK, ("2 found", "Invalid __global__ write of size 4", "gemm.cu:41",
                                "thread (31,0,0)", "out of bounds")),
        ("racecheck", RACECHECK, ("1 found", "Race reported between Write", "Read access",
                                  "[508 hazards]")),
        ("synccheck", SYNCCHECK, ("16 found", "Divergent thread(s)", "gemm.cu:13")),
        ("initcheck", INITCHECK, ("63 found", "Uninitialized", "gemm.cu:7")),
    ],
)  # fmt: skip
def test_a_finding_fails_and_says_what_and_where(tool, output, parts):
    found = result(tool, output, ERROR_EXIT_STATUS)
    assert (found.name, found.outcome) == (tool, CheckOutcome.FAILED)
    assert all(part in found.detail for part in parts), found.detail
    assert "backtrace" not in found.detail
    assert "\n" not in found.detail


def test_hazards_that_are_only_warnings_warn():
    found = result("racecheck", RACECHECK_WARNING)
    assert found.outcome is CheckOutcome.WARNED
    assert "8 hazards" in found.detail


@pytest.mark.parametrize(
    ("output", "status", "why"),
    [
        (REFUSED, ERROR_EXIT_STATUS, "failed: Error: Device not supported"),
        (NO_LAUNCH, 3, "terminated before first instrumented"),
        (CLEAN.replace("gemmetry: launching", "no configuration of that name"), 3,
         "no configuration of that name"),
        (CLEAN + "out of memory\n", 1, "the launch failed: out of memory"),
        ("", 1, "status 1"),
        (CLEAN, None, "did not end within 9 s"),
    ],
)  # fmt: skip
def test_a_tool_that_could_not_look_says_nothing_of_the_kernel(output, status, why):
    found = result("memcheck", output, status)
    assert found.outcome is CheckOutcome.NOT_APPLICABLE
    assert why in found.detail


def test_findings_before_the_launch_are_not_the_kernels():
    found = result("memcheck", MEMCHECK, ERROR_EXIT_STATUS, launched=False)
    assert found.outcome is CheckOutcome.NOT_APPLICABLE


def test_the_tool_is_found_on_path_then_in_the_toolkit(tmp_path):
    tool = tmp_path / "cuda" / "bin" / "compute-sanitizer"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    assert find_sanitizer({"PATH": str(tool.parent)}) is None  # not executable
    tool.chmod(0o755)
    assert find_sanitizer({"PATH": str(tool.parent)}) == tool
    assert find_sanitizer({"PATH": "/none", "CUDA_HOME": str(tmp_path / "cuda")}) == tool
    assert find_sanitizer({"PATH": "/none", "CUDA_PATH": str(tmp_path / "cuda")}) == tool
    assert find_sanitizer({"PATH": "/none"}) is None


def test_the_command_asks_for_an_exit_status_of_its_own():
    words = sanitizer_command(Path("/x/compute-sanitizer"), "racecheck", ["python", "-m", "y"])
    assert words[:3] == ["/x/compute-sanitizer", "--tool", "racecheck"]
    assert words[words.index("--error-exitcode") + 1] == str(ERROR_EXIT_STATUS)
    assert words[-3:] == ["python", "-m", "y"]
