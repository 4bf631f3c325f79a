# ruff: noqa: N802, N815  # the stand-ins have the names of pynvml
"""Clocks, power, temperature, load and energy of devices; stand-ins replace vendors' libraries."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gemmetry.domain.contracts import Observer
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import EnergyUnavailableError
from gemmetry.hardware import monitors
from gemmetry.hardware.monitors import (
    OTHERS_SHARE,
    AmdSmiObserver,
    CpuObserver,
    NvmlObserver,
    RaplCounter,
    RunDelay,
    make_energy_counter,
    make_observers,
)


class FakeAmdSmi:
    """The functions of amdsmi that the observer calls."""

    class AmdSmiException(Exception):  # amdsmi's name
        pass

    AmdSmiClkType = SimpleNamespace(GFX="gfx", MEM="mem")
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")

    def __init__(self, count=1, power=None, missing=()):
        self.count, self.missing = count, missing
        self.power = {"current_socket_power": 612} if power is None else power
        self.requests: list[int] = []

    def _check(self, name):
        if name in self.missing:
            raise self.AmdSmiException(name)

    def amdsmi_init(self):
        self._check("init")

    def amdsmi_get_processor_handles(self):
        return list(range(self.count))

    def amdsmi_get_clock_info(self, handle, kind):
        self.requests.append(handle)
        self._check(kind)
        return {"clk": 2100 if kind == "gfx" else 1300}

    def amdsmi_get_power_info(self, handle):
        self._check("power")
        return self.power

    def amdsmi_get_temp_metric(self, handle, sensor, metric):
        self._check("temperature")
        return 74


class FakeNvml:
    """The functions of pynvml that the observer calls, over a list of (name, uuid)."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    nvmlClocksEventReasonSwPowerCap = 4
    nvmlClocksEventReasonGpuIdle = 1
    nvmlClocksEventReasonHwThermalSlowdown = 64

    def __init__(self, *gpus, mask=0, missing=()):
        self.gpus, self.mask, self.missing = gpus, mask, missing
        self.requests: list[int] = []

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        self._check("energy")
        return 2500

    def _check(self, name):
        if name in self.missing:
            raise self.NVMLError("Not Supported")

    def nvmlInit(self):
        self._check("init")

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        if index >= len(self.gpus):
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return int(uuid.removeprefix("GPU-"))

    def nvmlDeviceGetName(self, handle):
        return self.gpus[handle]

    def nvmlDeviceGetClockInfo(self, handle, kind):
        self.requests.append(handle)
        return 1755 if kind == self.NVML_CLOCK_SM else 2619

    def nvmlDeviceGetPowerUsage(self, handle):
        self._check("power")
        return 684_500

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return 61

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        self._check("reasons")
        return self.mask


@pytest.fixture(autouse=True)
def _no_visible_devices(monkeypatch):
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def readings(observer):
    observer.start()
    observer.sample()
    observer.sample()
    return dict(observer.stop())


def amd(smi, index=0):
    return readings(AmdSmiObserver(index, smi))


def nvidia(nvml, index=0, product=""):
    return readings(NvmlObserver(index, product, nvml))


def test_readings_are_in_si_units_and_what_is_not_reported_is_left_out():
    both = {"sm_clock_hz": 2100e6, "memory_clock_hz": 1300e6}
    assert amd(FakeAmdSmi()) == {**both, "power_w": 612.0, "temperature_c": 74.0}
    assert amd(FakeAmdSmi(missing=("gfx", "power", "temperature"))) == {"memory_clock_hz": 1300e6}
    clocks = {"sm_clock_hz": 1755e6, "memory_clock_hz": 2619e6}
    found = {**clocks, "power_w": 684.5, "temperature_c": 61.0}
    assert nvidia(FakeNvml("NVIDIA H200")) == found
    del found["power_w"]
    assert nvidia(FakeNvml("NVIDIA GB10", missing=("power", "reasons"))) == found


def test_medians_of_a_round():
    observer = monitors.ReadingObserver()
    for value in (1.0, 9.0, 2.0, None):
        observer.add("power_w", value)
    observer.add("temperature_c", None)
    assert observer.stop() == {"power_w": 2.0}
    observer.start()
    assert observer.stop() == {}


def test_reasons_are_decoded_and_idle_is_none():
    found = nvidia(FakeNvml("NVIDIA H200", mask=1 | 4 | 64))
    assert found["throttle_reasons"] == ("hw_thermal_slowdown", "sw_power_cap")
    assert "throttle_reasons" not in nvidia(FakeNvml("NVIDIA H200", mask=1))


def test_the_power_field_of_older_gpus_and_unknown_values():
    older = {"current_socket_power": "N/A", "average_socket_power": 480}
    assert amd(FakeAmdSmi(power=older))["power_w"] == 480.0
    assert "power_w" not in amd(FakeAmdSmi(power={"current_socket_power": "N/A"}))


def test_without_a_driver_or_gpu_nothing_is_reported():
    assert amd(FakeAmdSmi(missing=("init",))) == amd(FakeAmdSmi(count=1), index=1) == {}
    assert nvidia(FakeNvml("NVIDIA H200", missing=("init",))) == nvidia(FakeNvml()) == {}


@pytest.mark.parametrize(("error", "kind"), [
    (ImportError("x"), TargetKind.HIP),
    (ImportError("x"), TargetKind.CUDA),
    (KeyError("libamd_smi.so"), TargetKind.HIP),
    (OSError("x"), TargetKind.HIP),
])  # fmt: skip
def test_a_library_that_does_not_import_reports_nothing(monkeypatch, error, kind):
    def fail(name):
        raise error

    monkeypatch.setattr(monitors.importlib, "import_module", fail)
    (observer,) = make_observers(Target(kind))
    assert readings(observer) == {}


@pytest.mark.parametrize(("visible", "index", "expected"), [
    ("2,0", 0, {2}), ("2,0", 1, {0}), ("GPU-1", 0, {1}), ("", 1, {1}), ("0", 1, set()),
    ("MIG-1234,MIG-5678", 1, set()),
])  # fmt: skip
def test_index_counts_within_the_visible_devices(monkeypatch, visible, index, expected):
    """A GPU that is not certain is not watched."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvml = FakeNvml("A", "B", "C")
    assert bool(nvidia(nvml, index)) is bool(expected)
    assert set(nvml.requests) == expected


def test_amds_variables_apply_one_within_the_other(monkeypatch):
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "4,5,6")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,0")
    smi = FakeAmdSmi(count=8)
    amd(smi)
    assert set(smi.requests) == {6}
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "GPU-abc")
    assert amd(FakeAmdSmi(count=8)) == {}


def test_the_product_decides_where_cuda_and_nvml_count_differently():
    nvml = FakeNvml("NVIDIA T400", "NVIDIA H200")
    nvidia(nvml, 0, "NVIDIA H200")
    assert set(nvml.requests) == {1}
    assert nvidia(FakeNvml("NVIDIA T400", "X", "X"), 0, "X") == {}, "two candidates: not certain"


@pytest.mark.parametrize(("target", "expected"), [
    (Target(TargetKind.CPU), [CpuObserver]),
    (Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H200"), [NvmlObserver]),
    (Target(TargetKind.HIP, "gfx942"), [AmdSmiObserver]),
    (Target(TargetKind.NULL), []),
    (Target(TargetKind.CUDA, "sm_80", None), []),
])  # fmt: skip
def test_each_device_has_its_observer(target, expected):
    observers = make_observers(target)
    assert [type(observer) for observer in observers] == expected
    assert all(isinstance(observer, Observer) for observer in observers)


def test_the_counter_of_a_gpu_is_in_joules_where_there_is_one():
    assert NvmlObserver(0, nvml=FakeNvml("A")).energy_j() == 2.5
    with pytest.raises(EnergyUnavailableError, match="Not Supported"):
        NvmlObserver(0, nvml=FakeNvml("A", missing=("energy",))).energy_j()
    with pytest.raises(EnergyUnavailableError, match="hip-gfx942"):
        make_energy_counter(Target(TargetKind.HIP, "gfx942", 0))()


def _zone(folder, name, microjoules):
    zone = folder / name
    zone.mkdir(exist_ok=True)
    (zone / "energy_uj").write_text(f"{microjoules}\n")
    (zone / "max_energy_range_uj").write_text("4000000\n")


def test_packages_are_added_and_so_is_an_overflow_but_no_zones_within_them(tmp_path):
    with pytest.raises(EnergyUnavailableError):
        RaplCounter(tmp_path).energy_j()
    _zone(tmp_path, "intel-rapl:0", 3_000_000)
    _zone(tmp_path, "intel-rapl:1", 4_000_000)
    _zone(tmp_path, "intel-rapl:0:0", 9_000_000)
    counter = RaplCounter(tmp_path)
    assert counter.energy_j() == 7.0
    _zone(tmp_path, "intel-rapl:0", 1_000_000)
    assert counter.energy_j() == pytest.approx(9.0), "the counter's range is 4 J"
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    with pytest.raises(EnergyUnavailableError, match="root"):
        RaplCounter(tmp_path).energy_j()


@pytest.mark.parametrize(("averages", "usable", "expected"), [
    ((6.0, 1.0, 1.0), {0, 1, 2, 3}, {"load_average": 1.5, "processors": "0-3"}),
    (None, {2, 4}, {"processors": "2,4"}),  # a system without them
])  # fmt: skip
def test_load_is_per_usable_core(monkeypatch, tmp_path, averages, usable, expected):
    def load():
        if averages is None:
            raise OSError
        return averages

    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: usable, raising=False)
    monkeypatch.setattr(os, "getloadavg", load)
    observer = CpuObserver(tmp_path, tmp_path / "none", tmp_path / "none")
    observer.start()
    observer.sample()
    assert observer.stop() == expected


def _counts(path, cpu0_ticks):
    """/proc/stat with some ticks of user time on cpu0; cpu1 is not ours."""
    path.write_text(f"cpu 9 9 9 9\ncpu0 {cpu0_ticks} 0 0 77 0 0 0 0 0 0\ncpu1 999 0 0 0 0 0 0 0\n")
    return path


def test_what_others_take_of_the_processors_we_may_use(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0}, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda _name: 100)
    clock, own = [0.0], [0.0]
    monkeypatch.setattr("gemmetry.hardware.monitors.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("gemmetry.hardware.monitors.time.process_time", lambda: own[0])
    stat = _counts(tmp_path / "stat", 0)
    observer = CpuObserver(tmp_path, stat)

    def round_of(seconds, ours, ticks):
        observer.start()
        clock[0] += seconds
        own[0] += ours
        _counts(stat, ticks)
        return observer.stop().get(OTHERS_SHARE)

    assert round_of(0.3, 0.2, 30) is None, "too short to decide"
    assert round_of(0.3, 0.2, 60) == pytest.approx(0.2 / 0.6)
    assert round_of(0.5, 0.5, 110) == pytest.approx(0.0, abs=1e-9), "old rounds are forgotten"
    assert round_of(1.0, 1.5, 210) == 0.0, "ticks that lag behind are no negative share"


def test_clock_of_the_first_usable_core(monkeypatch, tmp_path):
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


def _task(root, name, delay_ns):
    (root / name).mkdir(exist_ok=True)
    (root / name / "schedstat").write_text(f"123456 {delay_ns} 7\n")


def test_delays_of_all_threads_count_also_of_new_ones(monkeypatch, tmp_path):
    now = [0.0]
    monkeypatch.setattr(monitors.time, "perf_counter", lambda: now[0])
    _task(tmp_path, "1", 5_000_000)
    _task(tmp_path, "2", 70_000_000)
    delay = RunDelay(tmp_path)
    delay.start()
    now[0] = 0.1
    _task(tmp_path, "1", 15_000_000)
    _task(tmp_path, "3", 30_000_000)
    assert delay.share() == pytest.approx(0.4)


def test_a_system_that_does_not_count_gives_no_value(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "schedstat").write_text("?")
    for tasks in (tmp_path, tmp_path / "none"):
        delay = RunDelay(tasks)
        assert delay.share() is None, "not started"
        delay.start()
        assert delay.share() is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/task/*/schedstat")
def test_threads_that_share_a_processor_wait_for_it():
    """More computing threads than processors, whatever else runs."""
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel counts no run-queue delay")
    stop = threading.Event()
    block = np.ones((400, 400), np.float32)

    def compute():
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
