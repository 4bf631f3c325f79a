"""Identifies a file's format by the beginning of its content, not by its name."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

from gemmetry.formats.json.array import key_pattern
from gemmetry.formats.opening import SQLITE_MAGIC, XLSX_MAGIC, open_decompressed

FIRST_BYTES = 64 << 10
MOST_BYTES = 8 << 20
"""How many bytes are searched for the key that identifies a JSON document: metadata that users add
precede the events (32 KiB in one of the public traces)."""

ROCPROFV3_KEY = "rocprofiler-sdk-tool"
"""The only key in the outermost object of a rocprofv3 ``results.json``."""


class Kind(Enum):
    """Of a file."""

    KINETO = "Kineto trace"
    ROCPROFV3_JSON = "rocprofv3 results (JSON)"
    ROCPROFV3_CSV = "rocprofv3 table (CSV)"
    ROCPD = "rocpd database (SQLite)"
    CHAKRA = "Chakra execution trace"
    WORKBOOK = "workbook (xlsx)"
    JSON = "other JSON document"
    CUT = "JSON document that ends early"
    """JSON before any key that identifies its format."""
    OTHER = "other file"


TRACES = (Kind.KINETO, Kind.ROCPROFV3_JSON, Kind.ROCPROFV3_CSV, Kind.ROCPD)

_KEYS = key_pattern(["traceEvents", ROCPROFV3_KEY, "nodes"])
_CLOSING = {b"{": b"}", b"[": b"]"}
_BARE_EVENTS = re.compile(rb'\s*\[\s*(?:\{.{0,2000}?"ph"\s*:|\]|\Z)', re.DOTALL)
_CSV = re.compile(
    rb"(?=[^\r\n]*\b(?:Start_Timestamp|Counter_Name)\b)"
    rb"[^\r\n]*\b(?:Kernel_Name|Correlation_Id)\b[^\r\n]*\r?\n"
    rb"|[^\r\n]*\b(?:TotalDurationNs|Logical_Node_Id)\b[^\r\n]*\r?\n"
)
"""Columns of the tables of kernels and calls with times, counters, statistics and agents."""


def kind_of(path: Path) -> Kind:
    """The format of a file, which may be compressed.

    Raises:
        RequestError: the file does not exist or cannot be opened.
    """
    text = start = b""
    is_whole = True
    with open_decompressed(path) as file:
        try:
            text = file.read(FIRST_BYTES)
            if text.startswith(SQLITE_MAGIC):
                from gemmetry.formats.rocm import rocpd

                return Kind.ROCPD if rocpd.is_rocpd(path) else Kind.OTHER
            if text.startswith(XLSX_MAGIC):
                return Kind.WORKBOOK
            start = text.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
            if start == b"{":
                while not _KEYS.search(text) and len(text) < MOST_BYTES:
                    more = file.read(len(text))
                    if not more:
                        break
                    text += more
                is_whole = not file.read(1)
            elif start == b"[" and not _BARE_EVENTS.match(text):
                text += file.read(MOST_BYTES - len(text))
                is_whole = not file.read(1)
        except OSError:
            # Damaged compression; the reader reports where.
            pass
    if start in _CLOSING:
        kind = _of_document(text) if start == b"{" else _of_array(text)
        ends_early = is_whole and not text.rstrip().endswith(_CLOSING[start])
        return Kind.CUT if kind is Kind.JSON and ends_early else kind
    return Kind.ROCPROFV3_CSV if _CSV.match(text) else Kind.OTHER


def _of_array(text: bytes) -> Kind:
    return Kind.KINETO if _BARE_EVENTS.match(text) else Kind.JSON


def _of_document(text: bytes) -> Kind:
    for match in _KEYS.finditer(text):
        if match[1] == b"traceEvents":
            return Kind.KINETO
        if match[1] == ROCPROFV3_KEY.encode():
            return Kind.ROCPROFV3_JSON
        if b'"schema"' in text[: match.start()]:
            return Kind.CHAKRA
    return Kind.JSON
