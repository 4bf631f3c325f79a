"""Documents as JSON: the one encoder of files, of what commands print, and of data in pages."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from gemmetry.domain.files import encodable


def encoded(document: Any, *, indent: int = -1) -> bytes:
    """A document of plain values as JSON. Decimals are numbers with all of their places, and NaN
    and infinities, which JSON lacks, are null.

    Args:
        indent: spaces that each level is indented by; 0: one line, with a space after each comma
            and colon; negative: no spaces.
    """
    encode = msgspec.json.Encoder(decimal_format="number", enc_hook=_base_value).encode
    try:
        text = encode(document)
    except UnicodeEncodeError:
        # Names of files need not be text.
        text = encode(_encodable(document))
    return text if indent < 0 else msgspec.json.format(text, indent=indent)


def json_file(document: Any) -> bytes:
    """The content of a JSON file that people read too."""
    return encoded(document, indent=1) + b"\n"


def json_value(value: Any) -> Any:
    """`value` with tuples as lists, mappings as dicts, NaN and infinities as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return value


def _base_value(value: Any) -> Any:
    """The plain number or text of an instance of a derived class, such as numpy's."""
    for base in (float, int, str):
        if isinstance(value, base):
            return base(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, (list, tuple)) else value
