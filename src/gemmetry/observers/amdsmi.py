"""Clocks, power and temperature of an AMD GPU, through ROCm's amdsmi."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from gemmetry.observers.readings import Readings

_POWER_FIELDS = ("current_socket_power", "average_socket_power")
"""MI300 reports the first, MI200 the second; the other one is "N/A" (amdsmi's documentation)."""


class AmdSmiObserver:
    """Observes one GPU; reports nothing where amdsmi or the GPU cannot be found.

    Args:
        index: HIP's index, i.e. within ``HIP_VISIBLE_DEVICES`` or ``ROCR_VISIBLE_DEVICES``.
        amdsmi: replaces the module in tests.
    """

    def __init__(self, index: int, amdsmi: Any | None = None) -> None:
        self._readings = Readings()
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

    def start(self) -> None:
        self._readings.clear()

    def sample(self) -> None:
        if self._handle is None:
            return
        smi, handle = self._amdsmi, self._handle
        for name, kind in (
            ("sm_clock_hz", smi.AmdSmiClkType.GFX),
            ("memory_clock_hz", smi.AmdSmiClkType.MEM),
        ):
            try:
                clock = _number(smi.amdsmi_get_clock_info(handle, kind).get("clk"))
            except smi.AmdSmiException:
                continue
            self._readings.add(name, None if clock is None else clock * 1e6)
        self._sample_power_and_temperature()

    def stop(self) -> Mapping[str, float | str | tuple[str, ...]]:
        return self._readings.medians()

    def _sample_power_and_temperature(self) -> None:
        smi, handle = self._amdsmi, self._handle
        try:
            power = smi.amdsmi_get_power_info(handle)
        except smi.AmdSmiException:
            power = {}
        readings = (_number(power.get(field)) for field in _POWER_FIELDS)
        self._readings.add("power_w", next((value for value in readings if value), None))
        try:
            temperature = smi.amdsmi_get_temp_metric(
                handle, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            )
        except smi.AmdSmiException:
            return
        self._readings.add("temperature_c", _number(temperature))


def _physical_index(index: int) -> int | None:
    """The GPU's number on the host; None if the variables identify it in another way."""
    for variable in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        parts = [part.strip() for part in os.environ.get(variable, "").split(",")]
        parts = [part for part in parts if part]
        if parts:
            if index >= len(parts) or not parts[index].isdigit():
                return None
            index = int(parts[index])
    return index


def _number(value: Any) -> float | None:
    """The number; None where amdsmi reports "N/A"."""
    return float(value) if isinstance(value, (int, float)) else None
