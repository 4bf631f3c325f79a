# ruff: noqa: N802, N815  # the fake has the names of pynvml
from __future__ import annotations

from typing import Any

import pytest

from gemmetry.hardware.monitors import NvmlObserver


class FakeNvml:
    """The functions of pynvml that the observer calls, over a list of (name, uuid)."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    nvmlClocksEventReasonSwPowerCap = 4
    nvmlClocksEventReasonGpuIdle = 1
    nvmlClocksEventReasonHwThermalSlowdown = 64

    def __init__(self, *gpus: str, mask: int = 0, missing: tuple[str, ...] = ()) -> None:
        self.gpus, self.mask, self.missing = gpus, mask, missing
        self.requests: list[int] = []

    def _check(self, name: str) -> None:
        if name in self.missing:
            raise self.NVMLError("Not Supported")

    def nvmlInit(self) -> None:
        self._check("init")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= len(self.gpus):
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return int(uuid.removeprefix("GPU-"))

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self.gpus[handle]

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        self.requests.append(handle)
        return 1755 if kind == self.NVML_CLOCK_SM else 2619

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._check("power")
        return 684_500

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 61

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        self._check("reasons")
        return self.mask


@pytest.fixture(autouse=True)
def _no_visible_devices(monkeypatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def _watch(nvml: Any, index: int = 0, product: str = "") -> dict[str, Any]:
    observer = NvmlObserver(index, product, nvml)
    observer.start()
    observer.sample()
    observer.sample()
    return dict(observer.stop())


def test_readings_are_in_si_units() -> None:
    assert _watch(FakeNvml("NVIDIA H200")) == {
        "sm_clock_hz": 1755e6,
        "memory_clock_hz": 2619e6,
        "power_w": 684.5,
        "temperature_c": 61.0,
    }


def test_reasons_are_decoded_and_idle_is_none() -> None:
    found = _watch(FakeNvml("NVIDIA H200", mask=1 | 4 | 64))
    assert found["throttle_reasons"] == ("hw_thermal_slowdown", "sw_power_cap")
    assert "throttle_reasons" not in _watch(FakeNvml("NVIDIA H200", mask=1))


def test_what_the_gpu_does_not_report_is_left_out() -> None:
    found = _watch(FakeNvml("NVIDIA GB10", missing=("power", "reasons")))
    assert "power_w" not in found
    assert found["temperature_c"] == 61.0


def test_without_a_driver_nothing_is_reported() -> None:
    assert _watch(FakeNvml("NVIDIA H200", missing=("init",))) == {}
    assert _watch(FakeNvml(), index=0) == {}


def test_without_the_bindings_nothing_is_reported(monkeypatch) -> None:
    def no_module(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("gemmetry.hardware.monitors.importlib.import_module", no_module)
    assert _watch(None) == {}


@pytest.mark.parametrize(
    ("visible", "index", "expected"),
    [("2,0", 0, 2), ("2,0", 1, 0), ("GPU-1", 0, 1), ("", 1, 1)],
)
def test_index_counts_within_the_visible_devices(monkeypatch, visible, index, expected) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvml = FakeNvml("A", "B", "C")
    _watch(nvml, index)
    assert set(nvml.requests) == {expected}


@pytest.mark.parametrize("visible", ["0", "MIG-1234,MIG-5678"])
def test_a_gpu_that_is_not_certain_is_not_watched(monkeypatch, visible) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _watch(FakeNvml("A", "B"), index=1) == {}


def test_the_product_decides_where_cuda_and_nvml_count_differently() -> None:
    nvml = FakeNvml("NVIDIA T400", "NVIDIA H200")
    _watch(nvml, 0, "NVIDIA H200")
    assert set(nvml.requests) == {1}
    assert _watch(FakeNvml("NVIDIA T400", "X", "X"), 0, "X") == {}, "two candidates: not certain"
