"""Workbooks, which are recognised but are not traces."""

from __future__ import annotations

from gemmetry.domain.opening import XLSX_MAGIC
from gemmetry.formats.readers import TraceFormat


def _begins(text: bytes) -> bool:
    return text.startswith(XLSX_MAGIC)


FORMAT = TraceFormat(
    name="workbook (xlsx)",
    suffix=".xlsx",
    begins=_begins,
    problem="it is a workbook",
    hint="Only gemmetry trace summary, gemms and shapes read workbooks, those of TraceLens; give "
    "the trace itself.",
)
