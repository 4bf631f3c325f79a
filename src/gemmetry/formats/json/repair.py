"""JSON that is not quite: numbers and texts that JSON or UTF-8 have no place for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gemmetry.formats.naming import encodable

T = TypeVar("T")


def repaired(text: bytes, decode: Callable[[bytes], T]) -> T | str:
    """What `decode` makes of `text` with NaN and infinity as texts, and bytes that are no UTF-8 and
    halves of surrogate pairs as replacement characters; the reason where that is not enough."""
    try:
        found = json.loads(
            text.decode("utf-8", "replace"),
            parse_constant=lambda name: name,
            # Digits as they are: float64 µs since 1970 are some 100 ns off.
            parse_float=lambda digits: msgspec.Raw(digits.encode()),
        )
        return decode(msgspec.json.encode(_writable(found)))
    except (ValueError, RecursionError, OverflowError) as error:
        return str(error)


def _writable(value: Any) -> Any:
    """`value` with texts that UTF-8 has bytes for."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_writable(one) for one in value]
    if isinstance(value, dict):
        return {encodable(key): _writable(one) for key, one in value.items()}
    return value
