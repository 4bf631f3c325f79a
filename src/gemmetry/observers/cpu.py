"""Load and clock of the host, for CPU targets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gemmetry.observers.readings import Readings

_SYSFS_CPUS = Path("/sys/devices/system/cpu")


class CpuObserver:
    """Reads the load average per usable core, and the clock where cpufreq shows it.

    The clock of /proc/cpuinfo is not used: in virtual machines it is a constant.
    """

    def __init__(self, sysfs: Path = _SYSFS_CPUS) -> None:
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
        self._cores = len(cores) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._clock = sysfs / f"cpu{cores[0]}" / "cpufreq" / "scaling_cur_freq"
        self._has_clock = self._clock.exists()
        self._readings = Readings()

    def start(self) -> None:
        self._readings.clear()
        self.sample()

    def sample(self) -> None:
        if self._has_clock:
            self._readings.add("sm_clock_hz", self._clock_hz())

    def stop(self) -> Mapping[str, float | str | tuple[str, ...]]:
        try:
            self._readings.add("load_average", os.getloadavg()[0] / self._cores)
        except OSError:
            pass
        return self._readings.medians()

    def _clock_hz(self) -> float | None:
        """cpufreq writes kHz (Linux Documentation/admin-guide/pm/cpufreq.rst)."""
        try:
            return float(self._clock.read_text()) * 1e3
        except (OSError, ValueError):
            return None
