"""Converts decimal microseconds, as written in trace files, to whole nanoseconds without rounding.

Times in current traces are near 4.4e12 µs with three decimals: more digits than a float64 holds
(2⁴² µs have a spacing of 0.001 µs), so the decimal digits themselves are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
from msgspec import Raw

from gemmetry.formats.events import Int64

EXACT_US = 2.0**42
"""Below it, neighbouring float64 numbers are at most 2⁻¹¹ µs apart, so that the nearest one to a
decimal with three places is within 0.25 ns of it and rounds to the right nanosecond."""

LARGEST_NS = 2**62
"""Times beyond this (146 years) are treated as damage; sums of two still fit 64 bits."""

_POINT, _SPACE = b". "
_MOST_DIGITS = 15
_UP_TO_THREE_DECIMALS = re.compile(rb"(?:-?\d{1,13}(?:\.\d{1,3})? )*")
_WHOLE = re.compile(rb"(?:-?\d{1,15} )*")


def texts(raws: Sequence[Raw]) -> list[bytes]:
    """Convert each to ``bytes``, all at once, which is several times faster."""
    found = b"\0".join(raws).split(b"\0")
    return found if len(found) == len(raws) else [bytes(raw) for raw in raws]


def nanoseconds(raws: Sequence[Raw | bytes]) -> tuple[Int64, list[int]]:
    """Convert JSON numbers from µs to ns. Also returns the indices of those that are not times,
    whose ns are 0.

    Args:
        raws: as written in the file; an empty text is not a time. Quoted numbers are accepted.
    """
    joined = b" ".join(raws) + b" "
    if _have_three_decimals(joined, len(raws)):
        return np.fromstring(joined.replace(b".", b""), np.int64, sep=" "), []
    if raws and _WHOLE.fullmatch(joined):
        return np.fromstring(joined, np.int64, sep=" ") * 1000, []
    if raws and _UP_TO_THREE_DECIMALS.fullmatch(joined):
        microseconds = np.fromstring(joined, np.float64, sep=" ")
        if np.abs(microseconds).max() < EXACT_US:
            return np.rint(microseconds * 1000).astype(np.int64), []
    values = np.zeros(len(raws), np.int64)
    bad = []
    for index, text in enumerate(raws):
        found = _one(bytes(text))
        if found is None:
            bad.append(index)
        else:
            values[index] = found
    return values, bad


def _have_three_decimals(joined: bytes, count: int) -> bool:
    """Whether all numbers have 1 to 15 digits, a point and three decimals, and are not negative;
    five times faster than a regular expression."""
    if joined.translate(None, b"0123456789. ") or not count:
        return False
    characters = np.frombuffer(joined, np.uint8)
    points, ends = np.flatnonzero(characters == _POINT), np.flatnonzero(characters == _SPACE)
    if len(points) != count or len(ends) != count or (ends - points != 4).any():
        return False
    begins = np.append(0, ends[:-1] + 1)
    digits = points - begins
    return bool(digits.min() >= 1 and digits.max() <= _MOST_DIGITS)


def _one(text: bytes) -> int | None:
    try:
        number = Decimal(text.strip(b'" ').decode("ascii")) * 1000
        if not number.is_finite() or abs(number) > LARGEST_NS:
            return None
        return round(number)
    except (InvalidOperation, UnicodeDecodeError, ValueError):
        return None
