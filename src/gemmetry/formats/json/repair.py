"""Repairs invalid JSON: numbers and strings that JSON or UTF-8 cannot represent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gemmetry.formats.naming import encodable

T = TypeVar("T")


def repaired(text: bytes, decode: Callable[[bytes], T]) -> T | str:
    """Decode `text` with NaN and infinity replaced by strings, and invalid UTF-8 and halves of
    surrogate pairs by replacement characters. Returns the reason where that is not enough."""
    try:
        found = json.loads(
            text.decode("utf-8", "replace"),
            parse_constant=lambda name: name,
            # The digits are kept: µs since 1970 in float64 are off by about 100 ns.
            parse_float=lambda digits: msgspec.Raw(digits.encode()),
        )
        return decode(msgspec.json.encode(_writable(found)))
    except (ValueError, RecursionError, OverflowError) as error:
        return str(error)


def _writable(value: Any) -> Any:
    """`value` with all strings made valid UTF-8."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_writable(one) for one in value]
    if isinstance(value, dict):
        return {encodable(key): _writable(one) for key, one in value.items()}
    return value


def record_decoders(kind: type) -> tuple[Callable[[bytes], list[Any]], Callable[[bytes], Any]]:
    """What decodes several records of `kind`, and what decodes one that may be damaged."""
    one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def rescue(text: bytes) -> Any:
        found = repaired(text, one.decode)
        return f"left out, as it is no record: {found}" if isinstance(found, str) else found

    return msgspec.json.Decoder(list[kind]).decode, rescue  # type: ignore[valid-type]
