"""Numbers as Nsight Compute writes them into CSV files."""

from __future__ import annotations

import math
import re

_SEPARATED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_MISSING = frozenset(("", "n/a", "no data", "nan", "-nan", "inf", "-inf"))


def is_missing(text: str) -> bool:
    """Whether a cell states that there is no value; infinite ratios (0 as the divisor) count."""
    return text.strip().removeprefix("(!)").strip().lower() in _MISSING


def number(text: str) -> float | None:
    """The number in a cell, which may have thousands separators; None if it is none."""
    try:
        value = float(text)
    except ValueError:
        if not _SEPARATED.fullmatch(text.strip()):
            return None
        value = float(text.replace(",", ""))
    return value if math.isfinite(value) else None


def triple(text: str) -> tuple[int, int, int] | None:
    """The sizes in ``(384, 1, 1)``; None if there are no three."""
    found = re.findall(r"\d+", text)
    return (int(found[0]), int(found[1]), int(found[2])) if len(found) == 3 else None


def integer(text: str) -> int | None:
    """The whole number in a cell; None if it is none."""
    value = number(text)
    return int(value) if value is not None and value == int(value) else None
