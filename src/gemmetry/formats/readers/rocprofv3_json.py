"""``results.json`` of rocprofv3."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.formats.readers import TraceFormat, read_stream

if TYPE_CHECKING:
    from gemmetry.formats.events import TraceRows


KEY = "rocprofiler-sdk-tool"
"""The only key in the outermost object of a rocprofv3 ``results.json``."""


def _read(path: Path) -> TraceRows | None:
    from gemmetry.formats.rocm.rocprofv3 import read_rocprofv3_json

    return read_stream(path, read_rocprofv3_json)


FORMAT = TraceFormat(
    name="rocprofv3 results (JSON)",
    suffix=".json",
    summary="rocprofv3's results.json",
    json_key=KEY,
    read=_read,
)
