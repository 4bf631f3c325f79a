"""Numbers as Nsight Compute writes them into CSV files."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from gemmetry.domain.errors import RequestError

_SEPARATED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_DECIMAL_COMMA = re.compile(r"[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+),\d+")
_MISSING = frozenset(("", "n/a", "no data", "nan", "-nan", "inf", "-inf"))


@lru_cache(maxsize=4096)
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


@lru_cache(maxsize=4096)
def triple(text: str) -> tuple[int, int, int] | None:
    """The sizes in ``(384, 1, 1)``; None if there are no three."""
    found = re.findall(r"\d{1,18}", text)
    return (int(found[0]), int(found[1]), int(found[2])) if len(found) == 3 else None


@lru_cache(maxsize=4096)
def integer(text: str) -> int | None:
    """The whole number in a cell; None if it is none."""
    value = number(text)
    return int(value) if value is not None and value == int(value) else None


def check_decimal_point(text: str, unit: str) -> None:
    """Reject a number that a locale with a decimal comma wrote: the points in other numbers would
    be misread.

    Args:
        text: a cell that is no number.
        unit: that of the cell; without a unit it may be a list, such as that of TPCs.

    Raises:
        RequestError: it is such a number.
    """
    if unit and _DECIMAL_COMMA.fullmatch(text.strip()):
        raise RequestError(
            f"the numbers have a decimal comma, as in {text!r}",
            hint="Export the report again with LC_ALL=C ncu --import FILE --page raw --csv.",
        )
