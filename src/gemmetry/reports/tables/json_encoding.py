"""Fast JSON of plain values. It is a module of its own because commands that print nothing else
start faster without the columns of results."""

from __future__ import annotations

from typing import Any

import msgspec

from gemmetry.formats.naming import encodable


def encoded(document: Any) -> bytes:
    """A document of plain values as JSON, many times faster than the standard library; Decimals
    become numbers with all of their digits."""
    encode = msgspec.json.Encoder(decimal_format="number").encode
    try:
        return encode(document)
    except UnicodeEncodeError:
        # Names of files need not be valid text.
        return encode(_encodable(document))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, (list, tuple)) else value
