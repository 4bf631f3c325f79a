"""Units of hardware counters -> base units.

Nsight Compute scales a metric to a readable size (``--print-units auto``): ``Kbyte`` is 1000 bytes,
as ``byte`` in its reports divided by ``Kbyte`` in the CSV of the same report shows. Its base units,
which the readers return, are those of ``--print-units base``: ``byte``, ``hz``, ``ns``, and seconds
where a unit is a rate (``byte/s``). A value in a unit that is none of these is left out: as a
plain number it would be off by an unknown factor.
"""

from __future__ import annotations

import re
from functools import cache

from gemmetry.domain.units import counted, noun_for

_SIZES = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12, "p": 15, "e": 18}
_TIMES = {
    "ns": -9, "nsecond": -9, "us": -6, "usecond": -6, "µs": -6, "μs": -6, "ms": -3, "msecond": -3,
    "s": 0, "second": 0,
}  # fmt: skip
"""Spelling -> power of ten, in seconds; versions before 2023 wrote ``nsecond``."""

_COUNTED = frozenset((
    "", "%", "access", "attribute", "batch", "block", "branch", "cluster", "conflict", "cta",
    "cycle", "gpc", "inst", "instruction", "interrupt", "launch", "operation", "packet", "pass",
    "pixel", "primitive", "process", "quad", "register", "request", "sample", "sector", "sm",
    "texel", "thread", "tpc", "transaction", "vertex", "vertice", "warp", "wave",
    "wavefront", "workload",
))  # fmt: skip
"""What is counted, in the singular: units that are not scaled. From reports of compute
capabilities 7.5 to 10.0, and the dimensions of CUPTI's metrics."""
_PLURAL = re.compile(r"(?<=ss)es$|(?<=ch)es$|(?<=[^s])s$")

_SCALED = re.compile(r"([kmgtpe]?)(byte|hz|bit)", re.IGNORECASE)
_FREQUENCY = "cycle/s"


@cache
def base_unit(unit: str) -> tuple[str, float] | None:
    """The base unit of `unit`, and the factor from a value in `unit` to one in the base unit; None
    if `unit` is unknown. A unit that is not scaled is its own base unit: (`unit`, 1)."""
    over, slash, under = unit.strip().partition("/")
    found, divisor = _part(over), _part(under)
    if found is None or divisor is None:
        return None
    base, power = found
    if over in _TIMES:
        base, power = "ns", power + 9
    if slash:
        base = f"{base}/{divisor[0]}"
        # Nsight Compute shortens 8190 %/byte to 8.19 %/Kbyte: only times divide.
        power += -divisor[1] if divisor[0] == "s" else divisor[1]
    return ("hz" if base == _FREQUENCY else base), _factor(power)


class UnknownUnits:
    """The metrics of a report that are in unknown units, by unit."""

    def __init__(self) -> None:
        self._metrics: dict[str, dict[str, None]] = {}

    def add(self, metric: str, unit: str) -> None:
        """Note a metric whose value is left out."""
        self._metrics.setdefault(unit, {})[metric] = None

    def problems(self) -> list[str]:
        """A sentence for each unit."""
        return [
            f"the unit {unit!r} is unknown: {next(iter(metrics))}"
            + (f" and {counted(len(metrics) - 1, 'other metric')}" if len(metrics) > 1 else "")
            + f" {noun_for(len(metrics), 'is', 'are')} left out"
            for unit, metrics in self._metrics.items()
        ]


def _part(name: str) -> tuple[str, int] | None:
    """The base unit and the power of ten of what is over or under the line; None: unknown."""
    if name in _TIMES:
        return "s", _TIMES[name]
    if scaled := _SCALED.fullmatch(name):
        return scaled[2].lower(), _SIZES[scaled[1].lower()]
    return (name, 0) if _PLURAL.sub("", name.lower()) in _COUNTED else None


def _factor(power: int) -> float:
    # Not 10.0**power, whose negative powers differ in the last digit.
    return float(f"1e{power}")
