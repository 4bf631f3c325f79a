"""Workbooks, which are recognised but are not traces."""

from __future__ import annotations

from gemmetry.domain.opening import XLSX_MAGIC
from gemmetry.formats.readers import TraceFormat

FORMAT = TraceFormat(
    name="workbook (xlsx)",
    suffix=".xlsx",
    begins=lambda text: text.startswith(XLSX_MAGIC),
    problem="it is a workbook",
    hint="Only gemmetry trace summary, gemms and shapes read workbooks, those of TraceLens; give "
    "the trace itself.",
)
