"""Clocks, power, temperature and throttle reasons of an NVIDIA GPU, through NVML (pynvml)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from gemmetry.domain.errors import EnergyUnavailableError
from gemmetry.observers.readings import Readings

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


class NvmlObserver:
    """Observes one GPU; reports nothing where NVML or the GPU cannot be found.

    Args:
        index: CUDA's index, i.e. within ``CUDA_VISIBLE_DEVICES``.
        product: the product name reported by CUDA, to make sure that it is the same GPU; CUDA may
            list the fastest GPU first, while NVML orders by PCI bus.
        nvml: replaces the module pynvml in tests.
    """

    def __init__(self, index: int, product: str = "", nvml: Any | None = None) -> None:
        self._readings = Readings()
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
        self._bits = {
            int(getattr(self._nvml, bit)): name
            for bit, name in _REASONS.items()
            if hasattr(self._nvml, bit)
        }

    def start(self) -> None:
        self._readings.clear()

    def sample(self) -> None:
        if self._handle is None:
            return
        nvml, handle, readings = self._nvml, self._handle, self._readings
        readings.add("sm_clock_hz", self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM, 1e6))
        readings.add(
            "memory_clock_hz", self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM, 1e6)
        )
        readings.add("power_w", self._ask(nvml.nvmlDeviceGetPowerUsage, None, 1e-3))
        readings.add(
            "temperature_c",
            self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU, 1.0),
        )
        try:
            mask = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        except nvml.NVMLError:
            return
        readings.add_reasons(name for bit, name in self._bits.items() if mask & bit)

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

    def stop(self) -> Mapping[str, float | str | tuple[str, ...]]:
        return self._readings.medians()

    def _ask(self, question: Callable[..., Any], argument: Any, factor: float) -> float | None:
        """One reading in SI units (NVML reports MHz and mW); None where the GPU does not report
        it."""
        arguments = (self._handle,) if argument is None else (self._handle, argument)
        try:
            return float(question(*arguments)) * factor
        except self._nvml.NVMLError:
            return None

    def _find(self, index: int, product: str) -> Any:
        """The GPU's handle, or None if it cannot be identified with certainty."""
        nvml = self._nvml
        visible = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        visible = [part for part in visible if part]
        chosen = visible[index] if index < len(visible) else str(index)
        if visible and index >= len(visible):
            return None
        if chosen.isdigit():
            handle = nvml.nvmlDeviceGetHandleByIndex(int(chosen))
        elif chosen.startswith("GPU-"):
            handle = nvml.nvmlDeviceGetHandleByUUID(chosen)
        else:
            return None  # a MIG slice has no separate clock and power
        if product and str(nvml.nvmlDeviceGetName(handle)) != product:
            return self._only_one_called(product)
        return handle

    def _only_one_called(self, product: str) -> Any:
        nvml = self._nvml
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        same = [handle for handle in handles if str(nvml.nvmlDeviceGetName(handle)) == product]
        return same[0] if len(same) == 1 else None
