"""Chakra execution traces, which are recognised but not read, as they have no GPU times."""

from __future__ import annotations

from gemmetry.formats.readers import TraceFormat

FORMAT = TraceFormat(
    name="Chakra execution trace",
    suffix=".json",
    json_key="nodes",
    counts=lambda before: b'"schema"' in before,
    problem="it is a Chakra execution trace, which has no times of a GPU",
    hint="Give the *.pt.trace.json file that was recorded with it.",
)
