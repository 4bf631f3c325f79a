"""Load, waiting threads and clock of the host, for CPU targets."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from gemmetry.observers.readings import Readings

_SYSFS_CPUS = Path("/sys/devices/system/cpu")
_TASKS = Path("/proc/self/task")


WAIT_SHARE = "cpu_wait_share"
"""Beside the fields of ``Telemetry``: the share of a round that the thread that waited longest
spent ready to run, but without a processor."""


class CpuObserver:
    """Reads the load average per usable core, how long this process's threads waited for a
    processor, and the clock where cpufreq shows it.

    The clock of /proc/cpuinfo is not used: in virtual machines it is a constant.
    """

    def __init__(self, sysfs: Path = _SYSFS_CPUS, tasks: Path = _TASKS) -> None:
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
        self._cores = len(cores) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._clock = sysfs / f"cpu{cores[0]}" / "cpufreq" / "scaling_cur_freq"
        self._has_clock = self._clock.exists()
        self._tasks = tasks
        self._readings = Readings()
        self._waited_ns: dict[str, int] = {}
        self._started_ns = 0

    def start(self) -> None:
        self._readings.clear()
        self.sample()
        self._waited_ns = self._waited()
        self._started_ns = time.perf_counter_ns()

    def sample(self) -> None:
        if self._has_clock:
            self._readings.add("sm_clock_hz", self._clock_hz())

    def stop(self) -> Mapping[str, float | str | tuple[str, ...]]:
        lasted_ns = max(1, time.perf_counter_ns() - self._started_ns)
        waits = [now - self._waited_ns.get(task, now) for task, now in self._waited().items()]
        if waits:
            self._readings.add(WAIT_SHARE, min(1.0, max(waits) / lasted_ns))
        try:
            self._readings.add("load_average", os.getloadavg()[0] / self._cores)
        except OSError:
            pass
        return self._readings.medians()

    def _waited(self) -> dict[str, int]:
        """Thread -> ns that it waited on a run queue so far, the second number of its schedstat
        (Linux Documentation/scheduler/sched-stats.rst); empty where the kernel keeps none."""
        waited = {}
        try:
            for task in os.scandir(self._tasks):
                fields = Path(task.path, "schedstat").read_text().split()
                waited[task.name] = int(fields[1])
        except (OSError, ValueError, IndexError):  # also a thread that ended meanwhile
            return waited
        return waited

    def _clock_hz(self) -> float | None:
        """cpufreq writes kHz (Linux Documentation/admin-guide/pm/cpufreq.rst)."""
        try:
            return float(self._clock.read_text()) * 1e3
        except (OSError, ValueError):
            return None
