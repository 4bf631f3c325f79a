"""Counters of the energy that a device has used: NVML's of a GPU, RAPL's of the processors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gemmetry.domain.errors import EnergyUnavailableError
from gemmetry.domain.target import Target, TargetKind
from gemmetry.observers.nvml import NvmlObserver

_POWERCAP = Path("/sys/class/powercap")
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

    def __init__(self, folder: Path = _POWERCAP) -> None:
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
