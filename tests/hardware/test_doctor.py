from __future__ import annotations

import sys

from gemmetry.hardware import doctor
from gemmetry.hardware.detect import CpuFacts, GpuFacts, GpuList

NO_NVIDIA = GpuList((), "no driver", "install it")


def _rows(monkeypatch, which=lambda _name: None, nvidia=NO_NVIDIA):
    monkeypatch.setattr(doctor, "nvidia_gpus", lambda: nvidia)
    monkeypatch.setattr(doctor, "amd_gpus", lambda: GpuList((), "no ROCm", "install ROCm"))
    return {row.capability: row for row in doctor.doctor_rows(which)}


def test_what_is_missing_has_a_reason_and_a_next_step(monkeypatch) -> None:
    rows = _rows(monkeypatch)
    missing = ["NVIDIA GPU", "AMD GPU", "nvcc", "ncu", "compute-sanitizer", "rocprofv3",
               "iree-compile", "chromium"]  # fmt: skip
    for capability in missing:
        row = rows[capability]
        assert not row.available
        assert row.detail
        assert row.next_step
    assert rows["NVIDIA GPU"].detail == "no driver"
    assert rows["CPU"].available
    assert rows["memory"].available


def test_tools_are_found_under_any_of_their_names(monkeypatch) -> None:
    rows = _rows(monkeypatch, {"google-chrome": "/opt/chrome", "ncu": "/opt/ncu"}.get)
    assert rows["chromium"].available
    assert rows["chromium"].detail.startswith("/opt/chrome")
    assert rows["ncu"].available


def test_tools_next_to_the_interpreter_are_found(monkeypatch, tmp_path) -> None:
    tool = tmp_path / "iree-compile"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert doctor.find_tool("iree-compile") == str(tool)
    assert doctor.find_tool("ncu") is None


def test_each_gpu_is_a_row_and_unknown_ones_say_so(monkeypatch) -> None:
    def gpu(index: int, name: str) -> GpuFacts:
        return GpuFacts(
            kind="cuda", index=index, name=name, architecture="sm_90",
            memory_bytes=150_754_820_096, driver="575.57",
        )  # fmt: skip

    rows = _rows(monkeypatch, nvidia=GpuList((gpu(0, "NVIDIA H200"), gpu(1, "NVIDIA X1"))))
    known, unknown = rows["NVIDIA GPU 0"], rows["NVIDIA GPU 1"]
    assert known.detail == "NVIDIA H200, sm_90, 151 GB, driver 575.57"
    assert known.next_step == ""
    assert "not in the table of devices" in unknown.detail
    assert unknown.next_step


def test_a_cpu_of_unknown_peak_says_so(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "cpu_facts", lambda: CpuFacts(name="Odd"))
    row = _rows(monkeypatch)["CPU"]
    assert row.available
    assert "peak unknown" in row.detail
    assert row.next_step
