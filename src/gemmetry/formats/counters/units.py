"""Units of hardware counters -> base units.

Nsight Compute scales a metric to a readable size (``--print-units auto``): ``Kbyte`` is 1000 bytes,
as ``byte`` in its reports divided by ``Kbyte`` in the CSV of the same report shows. Its base units,
which the readers return, are those of ``--print-units base``: ``byte``, ``hz``, ``ns``, and seconds
where a unit is a rate (``byte/s``).
"""

from __future__ import annotations

import re
from functools import cache

_SIZES = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12, "p": 15, "e": 18}
_TIMES = {
    "ns": -9, "nsecond": -9, "us": -6, "usecond": -6, "µs": -6, "μs": -6, "ms": -3, "msecond": -3,
    "s": 0, "second": 0,
}  # fmt: skip
"""Spelling -> power of ten, in seconds; versions before 2023 wrote ``nsecond``."""

_SCALED = re.compile(r"([kmgtpe]?)(byte|hz|bit)", re.IGNORECASE)
_FREQUENCY = "cycle/s"


@cache
def base_unit(unit: str) -> tuple[str, float]:
    """The base unit of `unit`, and the factor from a value in `unit` to one in the base unit.

    A unit that is not scaled, or that is unknown, is its own base unit: (`unit`, 1).
    """
    over, slash, under = unit.strip().partition("/")
    base, power = _part(over)
    if over in _TIMES:
        base, power = "ns", _TIMES[over] + 9
    if slash:
        divisor, divisor_power = _part(under)
        base = f"{base}/{divisor}"
        # Nsight Compute shortens 8190 %/byte to 8.19 %/Kbyte: only times divide.
        power += -divisor_power if divisor == "s" else divisor_power
    return ("hz" if base == _FREQUENCY else base), _factor(power)


def _part(name: str) -> tuple[str, int]:
    if name in _TIMES:
        return "s", _TIMES[name]
    scaled = _SCALED.fullmatch(name)
    if scaled is None:
        return name, 0
    return scaled[2].lower(), _SIZES[scaled[1].lower()]


def _factor(power: int) -> float:
    # Not 10.0**power, whose negative powers differ in the last digit.
    return float(f"1e{power}")
