"""Measures how long runnable threads of this process waited for a processor."""

from __future__ import annotations

import time
from pathlib import Path

from gemmetry.hardware.pinning import waiting_times

_TASKS = Path("/proc/self/task")


class RunDelay:
    """Differences of the run-queue delay that Linux counts for each thread, in ns
    (``/proc/<pid>/schedstat``: Linux Documentation/scheduler/sched-stats.rst).

    Unlike ticks of 10 ms it resolves milliseconds, and it measures what matters: a thread that
    waits for a processor keeps the others waiting at the next barrier. Two threads of a small
    product on two processors, one of them taken by another program, wait for a whole time slice at
    nearly every barrier: a product of 25 µs then takes 1.05 ms, sample after sample (torch 2.13 on
    two processors of an AMD EPYC 9575F, Linux 6.18; the delay was 97 % of the time).
    """

    def __init__(self, tasks: Path = _TASKS) -> None:
        self._tasks = tasks
        self._began: tuple[dict[int, int], float] | None = None

    def start(self) -> None:
        self._began = (waiting_times(self._tasks), time.perf_counter())

    def share(self) -> float | None:
        """Delay of all threads since ``start``, divided by the time since then; None where it is
        not reported."""
        if self._began is None:
            return None
        (before, began), now = self._began, waiting_times(self._tasks)
        if not now:
            return None
        waited = sum(delay - before.get(task, 0) for task, delay in now.items())
        return max(0.0, waited / 1e9 / max(time.perf_counter() - began, 1e-9))
