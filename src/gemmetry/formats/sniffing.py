"""Identifies a file's format by the beginning of its content, not by its name."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

from gemmetry.domain.opening import open_decompressed
from gemmetry.formats.json import key_pattern
from gemmetry.formats.readers import TraceFormat, trace_formats

FIRST_BYTES = 64 << 10
MOST_BYTES = 8 << 20
"""How many bytes are searched for the key that identifies a JSON document: metadata that users add
precede the events (32 KiB in one of the public traces)."""


class Content(Enum):
    """The content of a file that no format of traces recognises."""

    JSON = "other JSON document"
    CUT = "JSON document that ends early"
    """JSON before any key that identifies its format."""
    OTHER = "other file"


_CLOSING = {b"{": b"}", b"[": b"]"}


def format_of(path: Path) -> TraceFormat | Content:
    """The format of a file, which may be compressed.

    Raises:
        RequestError: the file does not exist or cannot be opened.
    """
    text = start = b""
    is_whole = True
    with open_decompressed(path) as file:
        try:
            text = file.read(FIRST_BYTES)
            start = text.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
            if start == b"{":
                keys = _keys()
                while not keys.search(text) and len(text) < MOST_BYTES:
                    more = file.read(len(text))
                    if not more:
                        break
                    text += more
                is_whole = not file.read(1)
            elif start == b"[" and _by_beginning(text) is None:
                text += file.read(MOST_BYTES - len(text))
                is_whole = not file.read(1)
        except OSError:
            # Damaged compression; the reader reports where.
            pass
    found = _by_key(text) if start == b"{" else _by_beginning(text)
    if found is not None:
        return found if found.confirmed(path) else Content.OTHER
    if start not in _CLOSING:
        return Content.OTHER
    ends_early = is_whole and not text.rstrip().endswith(_CLOSING[start])
    return Content.CUT if ends_early else Content.JSON


def _keys() -> re.Pattern[bytes]:
    return key_pattern([form.json_key for form in trace_formats() if form.json_key])


def _by_beginning(text: bytes) -> TraceFormat | None:
    return next((form for form in trace_formats() if form.begins(text)), None)


def _by_key(text: bytes) -> TraceFormat | None:
    forms = {form.json_key.encode(): form for form in trace_formats() if form.json_key}
    for match in _keys().finditer(text):
        if forms[match[1]].counts(text[: match.start()]):
            return forms[match[1]]
    return None
