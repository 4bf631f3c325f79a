"""Kineto traces of PyTorch: a JSON document with ``traceEvents``, or the array alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.formats.readers import TraceFormat, read_stream

if TYPE_CHECKING:
    from gemmetry.formats.events import TraceRows


_BARE_EVENTS = re.compile(rb'\s*\[\s*(?:\{.{0,2000}?"ph"\s*:|\]|\Z)', re.DOTALL)


def _read(path: Path) -> TraceRows | None:
    from gemmetry.formats.kineto import read_kineto

    return read_stream(path, read_kineto)


FORMAT = TraceFormat(
    name="Kineto trace",
    suffix=".json",
    summary="Kineto traces (JSON)",
    json_key="traceEvents",
    begins=_BARE_EVENTS.match,
    read=_read,
    reads_unrecognised=True,
    own_name=re.compile(r"\.pt\.trace\.json(?:\.gz|\.zst)?\Z"),
)
