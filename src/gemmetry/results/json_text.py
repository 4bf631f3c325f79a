"""Documents as JSON: the one encoder of files, of what commands print, and of data in pages."""

from __future__ import annotations

from typing import Any

import msgspec

from gemmetry.domain.files import encodable
from gemmetry.results.texts import cut

BRIEF_BYTES = 4095
"""The most that a brief document takes as JSON; with the end of its line 4 KB."""

_STEPS = ((20, 400), (10, 300), (5, 200), (3, 120), (2, 80), (1, 60))
"""Items of a list and characters of a text that a brief document keeps, until it fits."""

_MOST_KEYS = 40


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


def brief(document: dict[str, Any]) -> dict[str, Any]:
    """A document in at most :data:`BRIEF_BYTES` of JSON, as :func:`encoded` without spaces.

    It has the first items of each list, and shorter texts. ``left_out`` counts the items that are
    missing by the keys that lead to their list.
    """
    for items, characters in _STEPS:
        left_out: dict[str, int] = {}
        found = _shortened(document, "", items, characters, left_out)
        if left_out:
            found["left_out"] = left_out
        if len(encoded(found)) <= BRIEF_BYTES:
            return dict(found)
    plain = [(cut(key, 60), value) for key, value in document.items()
             if not isinstance(value, (dict, list, tuple))]  # fmt: skip
    kept = {key: _shortened(value, "", 1, 60, {}) for key, value in plain[:8]}
    return {**kept, "left_out": {"": len(document) - len(kept)}}


def _shortened(value: Any, path: str, items: int, characters: int, left_out: dict[str, int]) -> Any:
    if isinstance(value, str):
        return cut(encodable(value), characters)
    if not isinstance(value, (dict, list, tuple)):
        return value
    most = _MOST_KEYS if isinstance(value, dict) else items
    if len(value) > most:
        left_out[path] = left_out.get(path, 0) + len(value) - most
    if isinstance(value, dict):
        return {
            (name := cut(encodable(str(key)), characters)): _shortened(
                item, f"{path}.{name}".lstrip("."), items, characters, left_out
            )
            for key, item in list(value.items())[:most]
        }
    return [_shortened(item, path, items, characters, left_out) for item in value[:most]]


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
