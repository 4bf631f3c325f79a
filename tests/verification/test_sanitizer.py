"""The output texts have the form of compute-sanitizer's manual and of version 2025.x."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.verification.checks import CheckOutcome
from gemmetry.verification.protocol import (
    ERROR_EXIT_STATUS,
    find_sanitizer,
    sanitizer_command,
    sanitizer_result,
)

OUTPUTS = dict(
    part.split("\n", 1)
    for part in (Path(__file__).parents[1] / "data" / "sanitizer.txt").read_text().split("# ")[1:]
)
CLEAN = OUTPUTS["clean"]


def result(tool, output, status=0, launched=None):
    is_launched = "gemmetry: launching" in output if launched is None else launched
    return sanitizer_result(tool, output, status, launched=is_launched, seconds=9)


def test_nothing_found_is_passed_and_hazards_that_are_only_warnings_warn():
    found = result("synccheck", CLEAN)
    assert (found.name, found.outcome) == ("synccheck", CheckOutcome.PASSED)
    found = result("racecheck", OUTPUTS["racecheck_warning"])
    assert found.outcome is CheckOutcome.WARNED
    assert "8 hazards" in found.detail
    before = result("memcheck", OUTPUTS["memcheck"], ERROR_EXIT_STATUS, launched=False)
    assert before.outcome is CheckOutcome.NOT_APPLICABLE, "it is not the kernel's"


@pytest.mark.parametrize(("tool", "parts"), [
    ("memcheck", ("2 found", "Invalid __global__ write of size 4", "gemm.cu:41",
                  "thread (31,0,0)", "out of bounds")),
    ("racecheck", ("1 found", "Race reported between Write", "Read access", "[508 hazards]")),
    ("synccheck", ("16 found", "Divergent thread(s)", "gemm.cu:13")),
    ("initcheck", ("63 found", "Uninitialized", "gemm.cu:7")),
])  # fmt: skip
def test_a_finding_fails_and_says_what_and_where(tool, parts):
    found = result(tool, OUTPUTS[tool], ERROR_EXIT_STATUS)
    assert (found.name, found.outcome) == (tool, CheckOutcome.FAILED)
    assert all(part in found.detail for part in parts), found.detail
    assert "backtrace" not in found.detail
    assert "\n" not in found.detail


@pytest.mark.parametrize(("output", "status", "why"), [
    (OUTPUTS["refused"], ERROR_EXIT_STATUS, "failed: Error: Device not supported"),
    (OUTPUTS["no_launch"], 3, "terminated before first instrumented"),
    (CLEAN.replace("gemmetry: launching", "no configuration of that name"), 3,
     "no configuration of that name"),
    (CLEAN + "out of memory\n", 1, "the launch failed: out of memory"),
    ("", 1, "status 1"),
    (CLEAN, None, "did not end within 9 s"),
])  # fmt: skip
def test_a_tool_that_could_not_look_says_nothing_of_the_kernel(output, status, why):
    found = result("memcheck", output, status)
    assert found.outcome is CheckOutcome.NOT_APPLICABLE
    assert why in found.detail


def test_the_tool_is_found_on_path_then_in_the_toolkit(tmp_path):
    tool, toolkit = tmp_path / "cuda" / "bin" / "compute-sanitizer", str(tmp_path / "cuda")
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    assert find_sanitizer({"PATH": str(tool.parent)}) is None  # not executable
    tool.chmod(0o755)
    for where in ({"PATH": str(tool.parent)}, {"CUDA_HOME": toolkit}, {"CUDA_PATH": toolkit}):
        assert find_sanitizer({"PATH": "/none", **where}) == tool
    assert find_sanitizer({"PATH": "/none"}) is None


def test_the_command_asks_for_an_exit_status_of_its_own():
    words = sanitizer_command(Path("/x/compute-sanitizer"), "racecheck", ["python", "-m", "y"])
    assert words[:3] == ["/x/compute-sanitizer", "--tool", "racecheck"]
    assert words[words.index("--error-exitcode") + 1] == str(ERROR_EXIT_STATUS)
    assert words[-3:] == ["python", "-m", "y"]
