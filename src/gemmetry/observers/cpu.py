"""Load, competing programs and clock of the host, for CPU targets."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from gemmetry.hardware.host import usable_cpus
from gemmetry.hardware.pinning import format_processors
from gemmetry.observers.readings import Readings
from gemmetry.observers.scheduler import RunDelay

_SYSFS_CPUS = Path("/sys/devices/system/cpu")
_STAT = Path("/proc/stat")

OTHERS_SHARE = "others_cpu_share"
"""The share of the usable processors' time that went to other programs or to the hypervisor over
the last :data:`WINDOW_S` of sampling."""

RUN_DELAY_SHARE = "run_delay_share"

WINDOW_S = 0.5
"""The kernel counts in ticks of 10 ms, so shorter windows carry no information."""

_BUSY_FIELDS = (1, 2, 3, 6, 7, 8)
"""user, nice, system, irq, softirq and steal of a line of /proc/stat (proc_stat(5))."""


class CpuObserver:
    """Reads the load average per usable core, the processor share of other programs, how long this
    process's threads wait for a processor, and the clock where cpufreq shows it.

    The clock of /proc/cpuinfo is not used: in virtual machines it is a constant.
    """

    def __init__(
        self, sysfs: Path = _SYSFS_CPUS, stat: Path = _STAT, tasks: Path | None = None
    ) -> None:
        cores = usable_cpus()
        self._cores = cores
        self._names = {f"cpu{core}" for core in cores}
        self._clock = sysfs / f"cpu{cores[0]}" / "cpufreq" / "scaling_cur_freq"
        self._has_clock = self._clock.exists()
        self._stat = stat
        self._readings = Readings()
        self._began: tuple[float, float, float] | None = None
        self._run_delay = RunDelay() if tasks is None else RunDelay(tasks)
        self._window: deque[tuple[float, float]] = deque()

    def start(self) -> None:
        self._readings.clear()
        self.sample()
        self._began = self._times()
        self._run_delay.start()

    def sample(self) -> None:
        if self._has_clock:
            self._readings.add("sm_clock_hz", self._clock_hz())

    def stop(self) -> Mapping[str, float | str | tuple[str, ...]]:
        self._readings.add(RUN_DELAY_SHARE, self._run_delay.share())
        self._readings.add(OTHERS_SHARE, self._others_share())
        try:
            self._readings.add("load_average", os.getloadavg()[0] / len(self._cores))
        except OSError:
            pass
        return {**self._readings.medians(), "processors": format_processors(self._cores)}

    def _others_share(self) -> float | None:
        """None until enough has been sampled, or where the kernel does not count."""
        now = self._times()
        if now is None or self._began is None:
            return None
        busy, own, wall = (end - start for end, start in zip(now, self._began, strict=True))
        self._window.append((busy - own, wall))
        sampled = sum(lasted for _, lasted in self._window)
        while sampled - self._window[0][1] >= WINDOW_S:
            sampled -= self._window.popleft()[1]
        if sampled < WINDOW_S:
            return None
        others = sum(taken for taken, _ in self._window)
        return min(1.0, max(0.0, others / (sampled * len(self._cores))))

    def _times(self) -> tuple[float, float, float] | None:
        """Seconds for which the usable processors were busy and this process ran, and the clock."""
        try:
            lines = self._stat.read_text().splitlines()
            ticks_per_s = os.sysconf("SC_CLK_TCK")
            ticks = sum(
                int(fields[index])
                for fields in map(str.split, lines)
                if fields and fields[0] in self._names
                for index in _BUSY_FIELDS
            )
        except (OSError, ValueError, IndexError):
            return None
        return ticks / ticks_per_s, time.process_time(), time.perf_counter()

    def _clock_hz(self) -> float | None:
        """cpufreq writes kHz (Linux Documentation/admin-guide/pm/cpufreq.rst)."""
        try:
            return float(self._clock.read_text()) * 1e3
        except (OSError, ValueError):
            return None
