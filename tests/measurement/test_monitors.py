"""Clocks, power, temperature, load and energy of devices; stand-ins replace vendors' libraries."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tests.vendors import amdsmi, nvml

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


@pytest.fixture(autouse=True)
def _no_visible_devices(monkeypatch):
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def readings(observer):
    observer.start()
    observer.sample()
    observer.sample()
    return dict(observer.stop())


def amd(library, index=0):
    return readings(AmdSmiObserver(index, library))


def nvidia(library, index=0, product=""):
    return readings(NvmlObserver(index, product, library))


def test_readings_are_in_si_units_and_what_is_not_reported_is_left_out():
    both = {"sm_clock_hz": 2100e6, "memory_clock_hz": 1300e6}
    assert amd(amdsmi()) == {**both, "power_w": 612.0, "temperature_c": 74.0}
    missing = ("gfx", "amdsmi_get_power_info", "amdsmi_get_temp_metric")
    assert amd(amdsmi(missing=missing)) == {"memory_clock_hz": 1300e6}
    older = {"current_socket_power": "N/A", "average_socket_power": 480}
    assert amd(amdsmi(amdsmi_get_power_info=older))["power_w"] == 480.0
    assert "power_w" not in amd(amdsmi(power="N/A"))
    clocks = {"sm_clock_hz": 1755e6, "memory_clock_hz": 2619e6}
    found = {**clocks, "power_w": 684.5, "temperature_c": 61.0}
    assert nvidia(nvml("NVIDIA H200")) == found
    del found["power_w"]
    missing = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetCurrentClocksEventReasons")
    assert nvidia(nvml("NVIDIA GB10", missing=missing)) == found
    # Without a driver or GPU nothing is reported.
    assert amd(amdsmi(missing=["amdsmi_init"])) == amd(amdsmi(1), index=1) == {}
    assert nvidia(nvml("NVIDIA H200", missing=["nvmlInit"])) == nvidia(nvml()) == {}


def test_medians_of_a_round():
    observer = monitors.ReadingObserver()
    for value in (1.0, 9.0, 2.0, None):
        observer.add("power_w", value)
    observer.add("temperature_c", None)
    assert observer.stop() == {"power_w": 2.0}
    observer.start()
    assert observer.stop() == {}


def test_reasons_are_decoded_and_idle_is_none():
    found = nvidia(nvml("NVIDIA H200", nvmlDeviceGetCurrentClocksEventReasons=1 | 4 | 64))
    assert found["throttle_reasons"] == ("hw_thermal_slowdown", "sw_power_cap")
    idle = nvidia(nvml("NVIDIA H200", nvmlDeviceGetCurrentClocksEventReasons=1))
    assert "throttle_reasons" not in idle


@pytest.mark.parametrize(("kind", "error"), [
    (TargetKind.CUDA, ImportError("x")), (TargetKind.HIP, ImportError("x")),
    (TargetKind.HIP, KeyError("libamd_smi.so")), (TargetKind.HIP, OSError("x")),
])  # fmt: skip
def test_a_library_that_does_not_import_reports_nothing(monkeypatch, kind, error):
    monkeypatch.setattr(monitors.importlib, "import_module", Mock(side_effect=error))
    (observer,) = make_observers(Target(kind))
    assert readings(observer) == {}


@pytest.mark.parametrize(("visible", "index", "expected"), [
    ("2,0", 0, {2}), ("2,0", 1, {0}), ("GPU-1", 0, {1}), ("", 1, {1}), ("0", 1, set()),
    ("MIG-1234,MIG-5678", 1, set()),
])  # fmt: skip
def test_index_counts_within_the_visible_devices(monkeypatch, visible, index, expected):
    """A GPU that is not certain is not watched."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    library = nvml("A", "B", "C")
    assert bool(nvidia(library, index)) is bool(expected)
    assert library.watched() == expected


def test_amds_variables_apply_one_within_the_other(monkeypatch):
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "4,5,6")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,0")
    library = amdsmi(8)
    amd(library)
    assert library.watched() == {6}
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "GPU-abc")
    assert amd(amdsmi(8)) == {}


def test_the_product_decides_where_cuda_and_nvml_count_differently():
    library = nvml("NVIDIA T400", "NVIDIA H200")
    nvidia(library, 0, "NVIDIA H200")
    assert library.watched() == {1}
    assert nvidia(nvml("NVIDIA T400", "X", "X"), 0, "X") == {}, "two candidates: not certain"


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
    assert NvmlObserver(0, nvml=nvml("A")).energy_j() == 2.5
    with pytest.raises(EnergyUnavailableError, match="Not Supported"):
        missing = nvml("A", missing=["nvmlDeviceGetTotalEnergyConsumption"])
        NvmlObserver(0, nvml=missing).energy_j()
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
