"""Formats SI values for display, and parses quantities that users type. Stored values stay in SI
units.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from gemmetry.domain.errors import RequestError

_TIME_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}  # fmt: skip


_USELESS = 4.0
"""Upper end over lower end: nothing is known from half to twice the time."""

_MOST_PERCENT = 11
"""Ratios from here on are not given in percent."""


def format_ns(value: float | None, *, even: bool = False) -> str:
    """A duration in ns formatted in the most readable unit: ``847 ns``, ``14.7 ms``.

    `even` keeps trailing zeros (``62.0 µs``), so that all cells of a column show three digits.
    """
    return _scaled(value, "ns", (("s", 1e9), ("ms", 1e6), ("µs", 1e3)), even)


def column_decimals(values: Iterable[float], most: int = 3) -> int:
    """Number of decimals, at most `most`, for all cells of a column: enough to show three digits of
    the smallest of `values`, but at most one more than the median needs."""
    sizes = sorted(abs(value) for value in values if value)
    if not sizes:
        return 0
    least, middle = (
        2 - math.floor(math.log10(size)) for size in (sizes[0], sizes[len(sizes) // 2])
    )
    return max(0, min(most, least, max(0, middle) + 1))


def noun_for(count: int, noun: str, many: str = "") -> str:
    """``kernel`` for 1, else ``kernels``; `many` where it is not `noun` with an s."""
    return noun if count == 1 else many or f"{noun}s"


def plural(count: int, noun: str, many: str = "") -> str:
    """``1 kernel``, ``1,200 kernels``; `many` as in :func:`noun_for`."""
    return f"{count:,} {noun_for(count, noun, many)}"


def format_numbers(numbers: Iterable[int], *, separator: str = ", ", fewest: int = 3) -> str:
    """``1, 2, 5-7``: at least `fewest` consecutive numbers as a range."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return separator.join(
        f"{run[0]}-{run[-1]}" if len(run) >= fewest else separator.join(map(str, run))
        for run in runs
    )


def format_bytes(value: float | None) -> str:
    """Bytes with a decimal prefix: ``33.6 MB``."""
    return _scaled(value, "B", (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)))


def format_memory(value: int | None) -> str:
    """The size of a memory or of a message with a binary prefix: ``31.4 GiB``."""
    steps = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))
    return _scaled(value, "B", steps)


def format_gflops(value: float | None, *, even: bool = False) -> str:
    """10⁹ FLOP/s as ``GFLOP/s`` or ``TFLOP/s``; `even` as in :func:`format_ns`."""
    return _scaled(value, "GFLOP/s", (("PFLOP/s", 1e6), ("TFLOP/s", 1e3)), even)


def format_joules(value: float | None) -> str:
    """An energy with a unit: 0.0123 -> ``12.3 mJ``."""
    steps = (("J", 1e9), ("mJ", 1e6), ("µJ", 1e3))
    return _scaled(None if value is None else value * 1e9, "nJ", steps)


def format_percent(value: float | None) -> str:
    """A fraction as a percentage: 0.123 -> ``12.3 %``."""
    return "–" if value is None else f"{_three_digits(value * 100)} %"


def format_half_width(value: float) -> str:
    """Relative half-width of an interval: ``±1.2 %``. Times are never negative, so larger ones are
    all ``over ±100 %``."""
    return f"±{format_percent(value)}" if value < 1 else "over ±100 %"


def format_interval(low: float | None, high: float | None) -> str:
    """The interval of a ratio as changes: ``+1.2 % to +4.3 %``; "" without one. One that includes
    1 and is wider than :data:`_USELESS` says nothing: ``too few runs, or too different ones``."""
    if low is None or high is None:
        return ""
    if low <= 1 <= high and high > _USELESS * low:
        return "too few runs, or too different ones"
    return f"{format_change(low)} to {format_change(high)}"


def format_change(ratio: float | None) -> str:
    """A ratio as a change: 1.031 -> ``+3.1 %``, 24 -> ``×24``; "?" of None."""
    if ratio is None:
        return "?"
    return f"×{ratio:,.0f}" if ratio >= _MOST_PERCENT else f"{100 * (ratio - 1):+z.1f} %"


def parse_duration_s(text: str) -> float:
    """``90``, ``90s``, ``1.5min``, ``200ms`` -> seconds.

    Raises:
        RequestError: the text is not a duration.
    """
    value, unit = _parsed(text, rf"([0-9.]+)\s*({'|'.join(_TIME_NS)})?", "a duration",
                          "Write 90s, 1.5min or 200ms.")  # fmt: skip
    return value * _TIME_NS[unit or "s"] / 1e9


def _parsed(text: str, pattern: str, what: str, hint: str) -> tuple[float, str]:
    """The number and the unit in `text`, the two groups of `pattern`."""
    match = re.fullmatch(rf"\s*{pattern}\s*", text)
    try:
        if match is None:
            raise ValueError(text)
        return float(match[1]), match[2] or ""
    except ValueError:
        raise RequestError(f"{text!r} is not {what}", hint=hint) from None


def parse_share(text: str) -> float:
    """``2%``, ``0.5 %``, ``0.02`` -> a fraction, 0.02 for 2 %.

    A number of 1 or more requires a unit: ``5`` can mean 5 % or five times as much.

    Raises:
        RequestError: the text is not a share, is negative, or lacks its unit.
    """
    value, unit = _parsed(text.lower(), r"([0-9.]+(?:e[-+]?[0-9]+)?)\s*(%?)",
                          "a relative difference", "Write 2% or 0.02.")  # fmt: skip
    if unit:
        return value / 100
    if value >= 1:
        raise RequestError(
            f"{text!r} has no unit: as a fraction it is {100 * value:g} %",
            hint=f"Write {value:g}% or {value / 100:g}, or {100 * value:g}% if that is meant.",
        )
    return value


def parse_bytes(text: str) -> int:
    """``2GiB``, ``500MB``, ``4096`` -> bytes.

    Raises:
        RequestError: the text is not a size.
    """
    value, unit = _parsed(text.lower(), r"([0-9.]{1,30})\s*((?:[kmgt]i?)?b?)", "a memory size",
                          "Write 2GiB, 500MB or a number of bytes.")  # fmt: skip
    return int(value * _BYTES[unit if unit in _BYTES else f"{unit}b"])


def _three_digits(value: float, even: bool = False) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    return f"{value:.{column_decimals([float(text)], 2)}f}" if even else text


def _scaled(
    value: float | None, unit: str, steps: tuple[tuple[str, float], ...], even: bool = False
) -> str:
    if value is None:
        return "–"
    for name, factor in steps:
        if abs(value) >= factor:
            return f"{_three_digits(value / factor, even)} {name}"
    return f"{_three_digits(value, even)} {unit}"
