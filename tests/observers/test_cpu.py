from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemmetry.hardware.monitors import OTHERS_SHARE, CpuObserver


def test_load_is_per_usable_core(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (6.0, 1.0, 1.0))
    observer = CpuObserver(tmp_path, tmp_path / "none", tmp_path / "none")
    observer.start()
    observer.sample()
    assert observer.stop() == {"load_average": 1.5, "processors": "0-3"}


def _counts(path: Path, cpu0_ticks: int) -> Path:
    """/proc/stat with some ticks of user time on cpu0; cpu1 is not ours."""
    path.write_text(f"cpu 9 9 9 9\ncpu0 {cpu0_ticks} 0 0 77 0 0 0 0 0 0\ncpu1 999 0 0 0 0 0 0 0\n")
    return path


def test_what_others_take_of_the_processors_we_may_use(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0}, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda _name: 100)
    clock, own = [0.0], [0.0]
    monkeypatch.setattr("gemmetry.hardware.monitors.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("gemmetry.hardware.monitors.time.process_time", lambda: own[0])
    stat = _counts(tmp_path / "stat", 0)
    observer = CpuObserver(tmp_path, stat)

    def round_of(seconds: float, ours: float, ticks: int) -> float | None:
        observer.start()
        clock[0] += seconds
        own[0] += ours
        _counts(stat, ticks)
        return observer.stop().get(OTHERS_SHARE)

    assert round_of(0.3, 0.2, 30) is None, "too short to decide"
    assert round_of(0.3, 0.2, 60) == pytest.approx(0.2 / 0.6)
    assert round_of(0.5, 0.5, 110) == pytest.approx(0.0, abs=1e-9), "old rounds are forgotten"
    assert round_of(1.0, 1.5, 210) == 0.0, "ticks that lag behind are no negative share"


def test_clock_of_the_first_usable_core(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3, 5}, raising=False)
    folder = tmp_path / "cpu3" / "cpufreq"
    folder.mkdir(parents=True)
    clock = folder / "scaling_cur_freq"
    clock.write_text("3400000\n")
    observer = CpuObserver(tmp_path)
    observer.start()
    clock.write_text("not a number\n")
    observer.sample()
    assert observer.stop()["sm_clock_hz"] == 3.4e9


def test_a_system_without_load_average_reports_nothing(monkeypatch, tmp_path: Path) -> None:
    def unknown() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unknown)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {2, 4}, raising=False)
    observer = CpuObserver(tmp_path, tmp_path / "none", tmp_path / "none")
    observer.start()
    assert observer.stop() == {"processors": "2,4"}


@pytest.mark.skipif(not hasattr(os, "getloadavg"), reason="this system has no load average")
def test_this_machine_reports_its_load() -> None:
    observer = CpuObserver()
    observer.start()
    assert float(observer.stop()["load_average"]) >= 0.0
