from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from gemmetry.hardware import monitors as scheduler
from gemmetry.hardware.monitors import RunDelay


def _task(root: Path, name: str, delay_ns: int) -> None:
    (root / name).mkdir(exist_ok=True)
    (root / name / "schedstat").write_text(f"123456 {delay_ns} 7\n")


def test_delays_of_all_threads_count_also_of_new_ones(monkeypatch, tmp_path: Path) -> None:
    now = [0.0]
    monkeypatch.setattr(scheduler.time, "perf_counter", lambda: now[0])
    _task(tmp_path, "1", 5_000_000)
    _task(tmp_path, "2", 70_000_000)
    delay = RunDelay(tmp_path)
    delay.start()
    now[0] = 0.1
    _task(tmp_path, "1", 15_000_000)
    _task(tmp_path, "3", 30_000_000)
    assert delay.share() == pytest.approx(0.4)


def test_a_system_that_does_not_count_gives_no_value(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "schedstat").write_text("?")
    for tasks in (tmp_path, tmp_path / "none"):
        delay = RunDelay(tasks)
        assert delay.share() is None, "not started"
        delay.start()
        assert delay.share() is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/task/*/schedstat")
def test_threads_that_share_a_processor_wait_for_it() -> None:
    """More computing threads than processors, whatever else runs."""
    import os

    import numpy as np

    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel counts no run-queue delay")
    stop = threading.Event()
    block = np.ones((400, 400), np.float32)

    def compute() -> None:
        while not stop.is_set():
            np.sort(block, axis=None)  # without the interpreter's lock

    threads = [threading.Thread(target=compute) for _ in range(2 * (os.cpu_count() or 1) + 2)]
    delay = RunDelay()
    for thread in threads:
        thread.start()
    try:
        delay.start()
        stop.wait(0.2)
        share = delay.share()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert share is not None
    assert share > 0.3
