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


def test_what_is_missing_has_a_reason_and_a_next_step(monkeypatch):
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


def test_tools_next_to_the_interpreter_are_found(monkeypatch, tmp_path):
    tool = tmp_path / "iree-compile"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert doctor.find_tool("iree-compile") == str(tool)
    assert doctor.find_tool("ncu") is None


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


def test_without_a_gpu_counters_of_other_machines_can_be_read(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda _name: None)
    row = _rows(monkeypatch)["hardware counters"]
    assert not row.available and "reports of other machines" in row.detail
    assert ".ncu-rep files only as CSV" in row.detail and "gemmetry[counters]" in row.next_step
    row = _rows(monkeypatch, {"ncu": "/opt/ncu"}.get)["hardware counters"]
    assert ".ncu-rep" not in row.detail + row.next_step


def test_counters_need_a_profiler_that_supports_the_gpu(monkeypatch, tmp_path, ncu):
    gpus = GpuList((H200,))
    row = _rows(monkeypatch, nvidia=gpus)["hardware counters"]
    assert not row.available and "Nsight Compute" in row.next_step
    row = _rows(monkeypatch, amd=GpuList((MI300X,)))["hardware counters"]
    assert not row.available and "rocprofv3 is not installed" in row.detail
    monkeypatch.setenv("FAKE_NCU", "old")
    which = {"ncu": str(ncu.install(tmp_path))}.get
    row = _rows(monkeypatch, which, nvidia=gpus)["hardware counters"]
    assert not row.available and "2022.3" in row.next_step


def test_counters_need_permission(monkeypatch, tmp_path, ncu, host_tree):
    which = {"ncu": str(ncu.install(tmp_path))}.get

    def counters():
        rows = _rows(monkeypatch, which, GpuList((H200,)), root=host_tree.root)
        return rows["hardware counters"]

    host_tree.write("proc/driver/nvidia/params", "RmProfilingAdminOnly: 1")
    host_tree.write("proc/self/status", "CapEff:\t0000000000000000")
    row = counters()
    assert not row.available and "SYS_ADMIN" in row.next_step
    host_tree.write("proc/driver/nvidia/params", "RmProfilingAdminOnly: 0")
    row = counters()
    assert (row.available, row.detail, row.next_step) == (True, "Nsight Compute 2025.3.1.0", "")
    host_tree.write("proc/20/comm", "nv-hostengine")
    row = counters()
    assert row.available and "nv-hostengine" in row.detail and "dcgmi" in row.next_step


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


def test_other_profilers_are_found_among_the_processes(host_tree):
    for pid, name in ((1, "init"), (20, "nv-hostengine"), (21, "nsys")):
        host_tree.write(f"proc/{pid}/comm", name)
    assert running_profilers(host_tree.root) == ["nsys", "nv-hostengine"]


def test_versions_that_are_too_old_for_a_gpu():
    assert too_old("2022.1.0", "sm_90") == "2022.3"
    assert too_old("2025.3.1", "sm_100") == ""
    assert too_old("2024.3", "sm_120") == "2025.1"
    assert too_old("", "sm_90") == too_old("2020.1", "sm_75") == ""
