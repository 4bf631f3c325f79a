from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import EnergyUnavailableError
from gemmetry.hardware.monitors import NvmlObserver, RaplCounter, make_energy_counter


class Nvml:
    """Stands in for pynvml."""

    class NVMLError(Exception):
        pass

    def __init__(self, millijoules):
        self.millijoules = millijoules

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        if self.millijoules is None:
            raise self.NVMLError("Not Supported")
        return self.millijoules


@pytest.fixture(autouse=True)
def _all_devices(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_the_counter_of_a_gpu_is_in_joules() -> None:
    assert NvmlObserver(0, nvml=Nvml(2500)).energy_j() == 2.5


def test_a_gpu_without_a_counter_is_reported() -> None:
    with pytest.raises(EnergyUnavailableError, match="no counter of its energy: Not Supported"):
        NvmlObserver(0, nvml=Nvml(None)).energy_j()


def _zone(folder, name, microjoules, most=1000):
    zone = folder / name
    zone.mkdir(exist_ok=True)
    (zone / "energy_uj").write_text(f"{microjoules}\n")
    (zone / "max_energy_range_uj").write_text(f"{most}\n")


def test_packages_are_added_and_zones_within_them_are_not(tmp_path) -> None:
    _zone(tmp_path, "intel-rapl:0", 3_000_000)
    _zone(tmp_path, "intel-rapl:1", 4_000_000)
    _zone(tmp_path, "intel-rapl:0:0", 9_000_000)
    assert RaplCounter(tmp_path).energy_j() == 7.0


def test_an_overflow_is_added(tmp_path) -> None:
    _zone(tmp_path, "intel-rapl:0", 900)
    counter = RaplCounter(tmp_path)
    before = counter.energy_j()
    _zone(tmp_path, "intel-rapl:0", 100)
    assert counter.energy_j() - before == pytest.approx(200e-6)


def test_processors_without_readable_packages_are_reported(tmp_path) -> None:
    with pytest.raises(EnergyUnavailableError, match="no packages"):
        RaplCounter(tmp_path).energy_j()
    (tmp_path / "intel-rapl:0").mkdir()
    with pytest.raises(EnergyUnavailableError, match="which root may"):
        RaplCounter(tmp_path).energy_j()


def test_other_devices_have_no_counter() -> None:
    counter = make_energy_counter(Target(TargetKind.HIP, "gfx942", 0))
    with pytest.raises(EnergyUnavailableError, match="no counter of energy of hip-gfx942"):
        counter()
