"""Collects an observer's readings during a round and computes their medians.

Clocks, power and temperature of an AMD GPU, through ROCm's amdsmi.

Clocks, power, temperature and throttle reasons of an NVIDIA GPU, through NVML (pynvml).

Counters of the energy that a device has used: NVML's of a GPU, RAPL's of the processors.

Measures how long runnable threads of this process waited for a processor.

Load, competing programs and clock of the host, for CPU targets.

Observers attached to a sampling round, one file each; they observe the device, not the kernel.

An observer that cannot read its device reports nothing: telemetry never fails a run.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gemmetry.domain.contracts import Observer
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import EnergyUnavailableError
from gemmetry.hardware.host import format_processors, usable_cpus, waiting_times


class ReadingObserver:
    """Collects readings from :meth:`start` to :meth:`stop`, which returns their medians: numbers by
    name of a ``Telemetry`` field, and the throttle reasons that were observed."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, list[float]] = defaultdict(list)
        self._reasons: set[str] = set()

    def start(self) -> None:
        self._numbers.clear()
        self._reasons.clear()

    def add(self, name: str, value: float | None) -> None:
        """Add a reading; None (not reported by the device) is skipped."""
        if value is not None:
            self._numbers[name].append(value)

    def stop(self) -> Mapping[str, float | str | tuple[str, ...]]:
        found: dict[str, float | str | tuple[str, ...]] = {
            name: statistics.median(values) for name, values in self._numbers.items()
        }
        if self._reasons:
            found["throttle_reasons"] = tuple(sorted(self._reasons))
        return found


_POWER_FIELDS = ("current_socket_power", "average_socket_power")
"""MI300 reports the first, MI200 the second; the other one is "N/A" (amdsmi's documentation)."""


class AmdSmiObserver(ReadingObserver):
    """Observes one GPU; reports nothing where amdsmi or the GPU cannot be found.

    Args:
        index: HIP's index, i.e. within ``HIP_VISIBLE_DEVICES`` or ``ROCR_VISIBLE_DEVICES``.
        amdsmi: replaces the module in tests.
    """

    def __init__(self, index: int, amdsmi: Any | None = None) -> None:
        super().__init__()
        self._amdsmi: Any = amdsmi
        self._handle: Any = None
        if amdsmi is None:
            try:
                self._amdsmi = importlib.import_module("amdsmi")
            except (ImportError, KeyError, OSError):  # it raises KeyError without ROCm's library
                return
        physical = _physical_index(index)
        try:
            self._amdsmi.amdsmi_init()
            handles = self._amdsmi.amdsmi_get_processor_handles()
        except self._amdsmi.AmdSmiException:
            return
        if physical is not None and physical < len(handles):
            self._handle = handles[physical]

    def sample(self) -> None:
        if self._handle is None:
            return
        smi, handle, failure = self._amdsmi, self._handle, self._amdsmi.AmdSmiException
        for name, kind in (
            ("sm_clock_hz", smi.AmdSmiClkType.GFX),
            ("memory_clock_hz", smi.AmdSmiClkType.MEM),
        ):
            with contextlib.suppress(failure):
                clock = _number(smi.amdsmi_get_clock_info(handle, kind).get("clk"))
                self.add(name, None if clock is None else clock * 1e6)
        with contextlib.suppress(failure):
            power = smi.amdsmi_get_power_info(handle)
            readings = (_number(power.get(field)) for field in _POWER_FIELDS)
            self.add("power_w", next((value for value in readings if value), None))
        with contextlib.suppress(failure):
            where, when = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            self.add("temperature_c", _number(smi.amdsmi_get_temp_metric(handle, where, when)))


def _physical_index(index: int) -> int | None:
    """The GPU's number on the host; None if the variables identify it in another way."""
    for variable in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if parts := _listed(variable):
            if index >= len(parts) or not parts[index].isdigit():
                return None
            index = int(parts[index])
    return index


def _listed(variable: str) -> list[str]:
    """The parts of a variable of the environment, separated by commas."""
    return [part for one in os.environ.get(variable, "").split(",") if (part := one.strip())]


def _number(value: Any) -> float | None:
    """The number; None where amdsmi reports "N/A"."""
    return float(value) if isinstance(value, (int, float)) else None


_REASONS = {
    "nvmlClocksEventReasonApplicationsClocksSetting": "applications_clocks_setting",
    "nvmlClocksEventReasonSwPowerCap": "sw_power_cap",
    "nvmlClocksEventReasonHwSlowdown": "hw_slowdown",
    "nvmlClocksEventReasonSyncBoost": "sync_boost",
    "nvmlClocksEventReasonSwThermalSlowdown": "sw_thermal_slowdown",
    "nvmlClocksEventReasonHwThermalSlowdown": "hw_thermal_slowdown",
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": "hw_power_brake_slowdown",
    "nvmlClocksEventReasonDisplayClockSetting": "display_clock_setting",
}
"""Maps NVML's bits (its API reference, group nvmlClocksEventReasons) to gemmetry's names. "GPU
idle" is left out: it only states that nothing ran at the moment of the query."""


class NvmlObserver(ReadingObserver):
    """Observes one GPU; reports nothing where NVML or the GPU cannot be found.

    Args:
        index: CUDA's index, i.e. within ``CUDA_VISIBLE_DEVICES``.
        product: the product name reported by CUDA, to make sure that it is the same GPU; CUDA may
            list the fastest GPU first, while NVML orders by PCI bus.
        nvml: replaces the module pynvml in tests.
    """

    def __init__(self, index: int, product: str = "", nvml: Any | None = None) -> None:
        super().__init__()
        self._nvml: Any = nvml
        self._handle: Any = None
        self._bits: dict[int, str] = {}
        if nvml is None:
            try:
                self._nvml = importlib.import_module("pynvml")
            except ImportError:
                return
        try:
            self._nvml.nvmlInit()
            self._handle = self._find(index, product)
        except self._nvml.NVMLError:
            return
        self._bits = {int(getattr(self._nvml, bit)): name
                      for bit, name in _REASONS.items() if hasattr(self._nvml, bit)}  # fmt: skip

    def sample(self) -> None:
        if self._handle is None:
            return
        nvml, handle = self._nvml, self._handle
        clock, temperature = nvml.nvmlDeviceGetClockInfo, nvml.nvmlDeviceGetTemperature
        for name, factor, question, *which in (
            ("sm_clock_hz", 1e6, clock, nvml.NVML_CLOCK_SM),
            ("memory_clock_hz", 1e6, clock, nvml.NVML_CLOCK_MEM),
            ("power_w", 1e-3, nvml.nvmlDeviceGetPowerUsage),
            ("temperature_c", 1.0, temperature, nvml.NVML_TEMPERATURE_GPU),
        ):
            with contextlib.suppress(nvml.NVMLError):  # NVML reports MHz and mW.
                self.add(name, float(question(handle, *which)) * factor)
        with contextlib.suppress(nvml.NVMLError):
            mask = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
            self._reasons.update(name for bit, name in self._bits.items() if mask & bit)

    def energy_j(self) -> float:
        """The energy that the GPU has used since its driver was loaded, in J (NVML API reference,
        nvmlDeviceGetTotalEnergyConsumption).

        Raises:
            EnergyUnavailableError: NVML or the GPU cannot be found, or it has no such counter.
        """
        if self._handle is None:
            raise EnergyUnavailableError("NVML does not find the GPU, or pynvml is not installed")
        try:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3
        except self._nvml.NVMLError as error:
            raise EnergyUnavailableError(f"the GPU has no counter of its energy: {error}") from None

    def _find(self, index: int, product: str) -> Any:
        """The GPU's handle, or None if it cannot be identified with certainty."""
        nvml = self._nvml
        visible = _listed("CUDA_VISIBLE_DEVICES")
        if visible and index >= len(visible):
            return None
        chosen = visible[index] if visible else str(index)
        if chosen.isdigit():
            handle = nvml.nvmlDeviceGetHandleByIndex(int(chosen))
        elif chosen.startswith("GPU-"):
            handle = nvml.nvmlDeviceGetHandleByUUID(chosen)
        else:
            return None  # a MIG slice has no separate clock and power
        if product and str(nvml.nvmlDeviceGetName(handle)) != product:
            handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
            same = [one for one in handles if str(nvml.nvmlDeviceGetName(one)) == product]
            return same[0] if len(same) == 1 else None
        return handle


_PACKAGES = "intel-rapl:?"
"""The zone of each package, of AMD's processors too; zones within have another colon (Linux,
Documentation/power/powercap/powercap.rst)."""

_NOT_READABLE = "the processors' energy cannot be read below {}: {}"


def make_energy_counter(target: Target) -> Callable[[], float]:
    """A function that returns the energy of `target` in J since some moment in the past, or raises
    EnergyUnavailableError."""
    if target.kind is TargetKind.CUDA and target.index is not None:
        return NvmlObserver(target.index, target.product).energy_j
    if target.kind is TargetKind.CPU:
        return RaplCounter().energy_j

    def none() -> float:
        raise EnergyUnavailableError(f"gemmetry reads no counter of energy of {target}")

    return none


class RaplCounter:
    """The energy of all packages, whatever runs on them. Its counters overflow every few minutes;
    :meth:`energy_j` continues."""

    def __init__(self, folder: Path = Path("/sys/class/powercap")) -> None:
        self._folder = folder
        self._zones = sorted(folder.glob(_PACKAGES))
        self._last = dict.fromkeys(self._zones, 0)
        self._overflowed = dict.fromkeys(self._zones, 0)

    def energy_j(self) -> float:
        """Raises:
        EnergyUnavailableError: there are no zones, or they may not be read.
        """
        if not self._zones:
            raise EnergyUnavailableError(_NOT_READABLE.format(self._folder, "no packages"))
        total = 0
        for zone in self._zones:
            microjoules = self._read(zone / "energy_uj")
            if microjoules < self._last[zone]:
                self._overflowed[zone] += self._read(zone / "max_energy_range_uj")
            self._last[zone] = microjoules
            total += microjoules + self._overflowed[zone]
        return total / 1e6

    def _read(self, file: Path) -> int:
        try:
            return int(file.read_text())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise EnergyUnavailableError(
                _NOT_READABLE.format(self._folder, f"{why}, which root may")
            ) from None


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


OTHERS_SHARE = "others_cpu_share"
"""The share of the usable processors' time that went to other programs or to the hypervisor over
the last :data:`WINDOW_S` of sampling."""

RUN_DELAY_SHARE = "run_delay_share"

WINDOW_S = 0.5
"""The kernel counts in ticks of 10 ms, so shorter windows carry no information."""

_BUSY_FIELDS = (1, 2, 3, 6, 7, 8)
"""user, nice, system, irq, softirq and steal of a line of /proc/stat (proc_stat(5))."""


class CpuObserver(ReadingObserver):
    """Reads the load average per usable core, the processor share of other programs, how long this
    process's threads wait for a processor, and the clock where cpufreq shows it.

    The clock of /proc/cpuinfo is not used: in virtual machines it is a constant.
    """

    def __init__(
        self, sysfs: Path = Path("/sys/devices/system/cpu"), stat: Path = Path("/proc/stat"),
        tasks: Path = _TASKS,
    ) -> None:  # fmt: skip
        self._cores = usable_cpus()
        self._names = {f"cpu{core}" for core in self._cores}
        self._clock = sysfs / f"cpu{self._cores[0]}" / "cpufreq" / "scaling_cur_freq"
        self._has_clock = self._clock.exists()
        super().__init__()
        self._stat = stat
        self._began: tuple[float, float, float] | None = None
        self._run_delay = RunDelay(tasks)
        self._window: deque[tuple[float, float]] = deque()

    def start(self) -> None:
        super().start()
        self.sample()
        self._began = self._times()
        self._run_delay.start()

    def sample(self) -> None:
        if self._has_clock:
            # cpufreq writes kHz (Linux Documentation/admin-guide/pm/cpufreq.rst).
            with contextlib.suppress(OSError, ValueError):
                self.add("sm_clock_hz", float(self._clock.read_text()) * 1e3)

    def stop(self) -> Mapping[str, float | str | tuple[str, ...]]:
        self.add(RUN_DELAY_SHARE, self._run_delay.share())
        self.add(OTHERS_SHARE, self._others_share())
        with contextlib.suppress(OSError):
            self.add("load_average", os.getloadavg()[0] / len(self._cores))
        return {**super().stop(), "processors": format_processors(self._cores)}

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
            fields = [
                found for line in lines if (found := line.split())[:1] and found[0] in self._names
            ]
            ticks = sum(int(found[index]) for found in fields for index in _BUSY_FIELDS)
        except (OSError, ValueError, IndexError):
            return None
        return ticks / ticks_per_s, time.process_time(), time.perf_counter()


def make_observers(target: Target) -> list[Observer]:
    """The observers for a device; none for the simulated device and compile-only targets."""
    match target.index, target.kind:
        case int(), TargetKind.CPU:
            return [CpuObserver()]
        case int(index), TargetKind.CUDA:
            return [NvmlObserver(index, target.product)]
        case int(index), TargetKind.HIP:
            return [AmdSmiObserver(index)]
    return []
