from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gemmetry.hardware.monitors import AmdSmiObserver


class FakeAmdSmi:
    """The functions of amdsmi that the observer calls."""

    class AmdSmiException(Exception):  # amdsmi's name
        pass

    AmdSmiClkType = SimpleNamespace(GFX="gfx", MEM="mem")
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")

    def __init__(self, count: int = 1, power: Any = None, missing: tuple[str, ...] = ()) -> None:
        self.count, self.missing = count, missing
        self.power = {"current_socket_power": 612} if power is None else power
        self.requests: list[int] = []

    def _check(self, name: str) -> None:
        if name in self.missing:
            raise self.AmdSmiException(name)

    def amdsmi_init(self) -> None:
        self._check("init")

    def amdsmi_get_processor_handles(self) -> list[int]:
        return list(range(self.count))

    def amdsmi_get_clock_info(self, handle: int, kind: str) -> dict[str, Any]:
        self.requests.append(handle)
        self._check(kind)
        return {"clk": 2100 if kind == "gfx" else 1300}

    def amdsmi_get_power_info(self, handle: int) -> dict[str, Any]:
        self._check("power")
        return self.power

    def amdsmi_get_temp_metric(self, handle: int, sensor: str, metric: str) -> int:
        self._check("temperature")
        return 74


@pytest.fixture(autouse=True)
def _no_visible_devices(monkeypatch) -> None:
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("ROCR_VISIBLE_DEVICES", raising=False)


def _watch(amdsmi: Any, index: int = 0) -> dict[str, Any]:
    observer = AmdSmiObserver(index, amdsmi)
    observer.start()
    observer.sample()
    return dict(observer.stop())


def test_readings_are_in_si_units() -> None:
    assert _watch(FakeAmdSmi()) == {
        "sm_clock_hz": 2100e6,
        "memory_clock_hz": 1300e6,
        "power_w": 612.0,
        "temperature_c": 74.0,
    }


def test_the_power_field_of_older_gpus_and_unknown_values() -> None:
    older = {"current_socket_power": "N/A", "average_socket_power": 480}
    assert _watch(FakeAmdSmi(power=older))["power_w"] == 480.0
    assert "power_w" not in _watch(FakeAmdSmi(power={"current_socket_power": "N/A"}))


def test_what_the_gpu_does_not_report_is_left_out() -> None:
    found = _watch(FakeAmdSmi(missing=("gfx", "power", "temperature")))
    assert found == {"memory_clock_hz": 1300e6}


@pytest.mark.parametrize("error", [ImportError("x"), KeyError("libamd_smi.so"), OSError("x")])
def test_an_amdsmi_that_does_not_import_reports_nothing(monkeypatch, error) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr("gemmetry.hardware.monitors.importlib.import_module", fail)
    assert _watch(None) == {}


def test_without_a_driver_or_gpu_nothing_is_reported() -> None:
    assert _watch(FakeAmdSmi(missing=("init",))) == {}
    assert _watch(FakeAmdSmi(count=1), index=1) == {}


def test_index_counts_within_the_visible_devices(monkeypatch) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "4,5,6")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,0")
    smi = FakeAmdSmi(count=8)
    _watch(smi, 0)
    assert set(smi.requests) == {6}
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "GPU-abc")
    assert _watch(FakeAmdSmi(count=8), 0) == {}
