from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gemmetry.hardware import doctor
from gemmetry.hardware.detect import CpuFacts, GpuFacts, GpuList
from gemmetry.hardware.doctor import (
    find_profiler,
    is_restricted,
    running_profilers,
    too_old,
    tool_path,
)

NO_NVIDIA = GpuList((), "no driver", "install it")


NO_AMD = GpuList((), "no ROCm", "install ROCm")
H200 = GpuFacts(kind="cuda", index=0, name="NVIDIA H200", architecture="sm_90")
MI300X = GpuFacts(kind="hip", index=0, name="AMD Instinct MI300X", architecture="gfx942")


def _rows(
    monkeypatch, which=lambda _name: None, nvidia=NO_NVIDIA, amd=NO_AMD, root=Path("/nowhere")
):
    monkeypatch.setattr(doctor, "nvidia_gpus", lambda: nvidia)
    monkeypatch.setattr(doctor, "amd_gpus", lambda: amd)
    return {row.capability: row for row in doctor.doctor_rows(which, root)}


def test_what_is_missing_has_a_reason_and_a_next_step(monkeypatch, tmp_path):
    rows = _rows(monkeypatch)
    missing = ["NVIDIA GPU", "AMD GPU", "nvcc", "ncu", "compute-sanitizer", "rocprofv3",
               "iree-compile", "chromium"]  # fmt: skip
    for capability in missing:
        row = rows[capability]
        assert not row.available and row.detail and row.next_step
    assert rows["NVIDIA GPU"].detail == "no driver"
    assert rows["CPU"].available and rows["memory"].available
    rows = _rows(monkeypatch, {"google-chrome": "/opt/chrome", "ncu": "/opt/ncu"}.get)
    assert rows["chromium"].available and rows["ncu"].available
    assert rows["chromium"].detail.startswith("/opt/chrome")
    # Tools in the interpreter's folder are found.
    tool = tmp_path / "iree-compile"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert doctor.find_tool("iree-compile") == str(tool)
    assert doctor.find_tool("ncu") is None


@pytest.fixture
def counters(monkeypatch):
    """Whether counters can be read, its detail and its next step."""

    def row(*arguments, **given):
        found = _rows(monkeypatch, *arguments, **given)["hardware counters"]
        return found.available, found.detail, found.next_step

    return row


def test_each_device_is_a_row_and_unknown_ones_say_so(monkeypatch):
    gpus = [
        GpuFacts(kind="cuda", index=index, name=name, architecture="sm_90",
                 memory_bytes=150_754_820_096, driver="575.57")
        for index, name in enumerate(("NVIDIA H200", "NVIDIA X1"))
    ]  # fmt: skip
    monkeypatch.setattr(doctor, "cpu_facts", lambda: CpuFacts(name="Odd"))
    rows = _rows(monkeypatch, nvidia=GpuList(tuple(gpus)))
    known = rows["NVIDIA GPU 0"]
    assert (known.detail, known.next_step) == ("NVIDIA H200, sm_90, 151 GB, driver 575.57", "")
    for name, missing in (("NVIDIA GPU 1", "not in the table"), ("CPU", "peak unknown")):
        assert rows[name].available and rows[name].next_step
        assert missing in rows[name].detail


def test_without_a_gpu_counters_of_other_machines_can_be_read(monkeypatch, counters):
    monkeypatch.setattr(doctor, "find_spec", lambda _name: None)
    available, detail, next_step = counters()
    assert not available and "reports of other machines" in detail
    assert ".ncu-rep files only as CSV" in detail and "gemmetry[counters]" in next_step
    assert ".ncu-rep" not in str(counters({"ncu": "/opt/ncu"}.get))


def test_counters_need_a_profiler_that_supports_the_gpu(monkeypatch, counters, tmp_path, ncu):
    gpus = GpuList((H200,))
    available, _, next_step = counters(nvidia=gpus)
    assert not available and "Nsight Compute" in next_step
    available, detail, _ = counters(amd=GpuList((MI300X,)))
    assert not available and "rocprofv3 is not installed" in detail
    monkeypatch.setenv("FAKE_NCU", "old")
    available, _, next_step = counters({"ncu": str(ncu.install(tmp_path))}.get, nvidia=gpus)
    assert not available and "2022.3" in next_step


def test_counters_need_permission_and_no_other_profiler(counters, tmp_path, ncu, host_tree):
    which = {"ncu": str(ncu.install(tmp_path))}.get
    given = (which, GpuList((H200,)), NO_AMD, host_tree.root)
    host_tree.write("proc/driver/nvidia/params", "RmProfilingAdminOnly: 1")
    host_tree.write("proc/self/status", "CapEff:\t0000000000000000")
    available, _, next_step = counters(*given)
    assert not available and "SYS_ADMIN" in next_step
    host_tree.write("proc/driver/nvidia/params", "RmProfilingAdminOnly: 0")
    assert counters(*given) == (True, "Nsight Compute 2025.3.1.0", "")
    for pid, name in ((1, "init"), (20, "nv-hostengine"), (21, "nsys")):
        host_tree.write(f"proc/{pid}/comm", name)
    assert running_profilers(host_tree.root) == ["nsys", "nv-hostengine"]
    available, detail, next_step = counters(*given)
    assert available and "nv-hostengine" in detail and "dcgmi" in next_step


def test_a_profiler_is_found_on_path_or_its_newest_installation_is(tmp_path, ncu):
    program = str(ncu.install(tmp_path))
    found = find_profiler("ncu", which=lambda name: program)
    assert (found.path, found.version) == (program, "2025.3.1.0")
    for version in ("2024.3.2", "2025.10.0", "2025.3.1"):
        ncu.install(tmp_path / "opt/nvidia/nsight-compute" / version)
    newest = tool_path("ncu", which=lambda name: None, root=tmp_path)
    assert Path(newest).parent.name == "2025.10.0"
    assert find_profiler("rocprofv3", which=lambda name: None, root=tmp_path) is None


@pytest.mark.parametrize(("parameter", "capabilities", "restricted"), [
    ("RmProfilingAdminOnly: 1", "0", True),
    ("RmProfilingAdminOnly: 0", "0", False),
    ("RmProfilingAdminOnly: 1", "0000000000200000", False),
    ("RmProfilingAdminOnly: 1", "0000004000000000", False),
    ("Other: 1", "0", None),
])  # fmt: skip
def test_whether_counters_may_be_read(host_tree, parameter, capabilities, restricted):
    assert is_restricted(host_tree.root) is None, "without a driver"
    host_tree.write("proc/driver/nvidia/params", parameter)
    host_tree.write("proc/self/status", f"CapEff:\t{capabilities}")
    assert is_restricted(host_tree.root) is restricted


def test_versions_that_are_too_old_for_a_gpu():
    assert too_old("2022.1.0", "sm_90") == "2022.3"
    assert too_old("2025.3.1", "sm_100") == ""
    assert too_old("2024.3", "sm_120") == "2025.1"
    assert too_old("", "sm_90") == too_old("2020.1", "sm_75") == ""
