from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemmetry.observers.cpu import WAIT_SHARE, CpuObserver


def test_load_is_per_usable_core(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (6.0, 1.0, 1.0))
    observer = CpuObserver(tmp_path, tmp_path)
    observer.start()
    observer.sample()
    assert observer.stop() == {"load_average": 1.5}


def test_the_thread_that_waited_longest_counts(monkeypatch, tmp_path: Path) -> None:
    now = iter([1_000_000, 2_000_000])
    monkeypatch.setattr("gemmetry.observers.cpu.time.perf_counter_ns", lambda: next(now))
    for task, text in (("10", "5 100 1"), ("11", "5 700 1")):
        (tmp_path / task).mkdir()
        (tmp_path / task / "schedstat").write_text(text)
    observer = CpuObserver(tmp_path, tmp_path)
    observer.start()
    (tmp_path / "10" / "schedstat").write_text("9 250100 2")
    (tmp_path / "11" / "schedstat").write_text("9 100700 2")
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "schedstat").write_text("9 900000 2")  # began after the round did
    assert observer.stop()[WAIT_SHARE] == 0.25


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
    observer = CpuObserver(tmp_path, tmp_path / "none")
    observer.start()
    assert observer.stop() == {}


@pytest.mark.skipif(not hasattr(os, "getloadavg"), reason="this system has no load average")
def test_this_machine_tells_its_load() -> None:
    observer = CpuObserver()
    observer.start()
    assert float(observer.stop()["load_average"]) >= 0.0
