"""Kineto traces of PyTorch: a JSON document with ``traceEvents``, or the array alone."""

from __future__ import annotations

import re

from gemmetry.formats.readers import TraceFormat, later, of_stream

_BARE_EVENTS = re.compile(rb'\s*\[\s*(?:\{.{0,2000}?"ph"\s*:|\]|\Z)', re.DOTALL)

FORMATS = (
    TraceFormat(
        name="Kineto trace",
        suffix=".json",
        summary="Kineto traces (JSON)",
        json_key="traceEvents",
        begins=_BARE_EVENTS.match,
        read=of_stream(later("gemmetry.formats.kineto:read_kineto")),
        reads_unrecognised=True,
        own_name=re.compile(r"\.pt\.trace\.json(?:\.gz|\.zst)?\Z"),
    ),
)
