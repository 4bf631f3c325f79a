"""A report of traces as an Excel workbook, in which nothing is a formula or a link."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from gemmetry.domain.errors import StorageError
from gemmetry.reports.extras import require
from gemmetry.reports.texts import cell_fit
from gemmetry.reports.traces.report import NOTES, OUR_SHEETS, TraceReport
from gemmetry.traces.tracelens.columns import Table
from gemmetry.traces.tracelens.sheets import SHEETS

MOST_ROWS = 1_048_575
"""Rows of a sheet below its heading (Excel's published limits)."""

MOST_CELLS_IN_MEMORY = 1_000_000
"""Larger workbooks go through temporary files: some 100 bytes a cell are kept otherwise."""

_WIDE = {"file": 30, "job": 30, "name": 26, "kernel": 50, "Kernel name": 50, "Parent cpu_op": 26,
         "type": 22, "what": 80, "note": 110, "meaning": 80}  # fmt: skip


def trace_workbook(report: TraceReport) -> bytes:
    """The workbook.

    Raises:
        RequestError: XlsxWriter is not installed.
        StorageError: it is large, and the temporary files for it cannot be written.
    """
    failures = (OSError, require("xlsxwriter", extra="analysis").exceptions.XlsxFileError)
    try:
        return _workbook(report)
    except failures as error:
        raise StorageError(
            f"a workbook as large as this one goes through temporary files, which cannot be "
            f"written: {error}",
            hint="Free some disk, or set TMPDIR to a folder on another one.",
        ) from error


class _Buffer(io.BytesIO):
    """Stays open, so that a workbook that could not be finished goes without a complaint."""

    def close(self) -> None:
        """Does nothing."""


def _workbook(report: TraceReport) -> bytes:
    buffer = _Buffer()
    cells = sum(len(table.rows) * len(table.headings) for table in report.tables)
    is_large = cells > MOST_CELLS_IN_MEMORY
    options = {
        # A temporary file for each sheet takes longer than all the rest of a small workbook.
        "constant_memory": is_large,
        "in_memory": not is_large,
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "strings_to_numbers": False,
    }
    with require("xlsxwriter", extra="analysis").Workbook(buffer, options) as book:
        heading = book.add_format({"bold": True, "bottom": 1, "bg_color": "#E8EEF4"})
        left_out = [_write(book, heading, table) for table in report.tables]
        _write(book, heading, _notes(report, [text for text in left_out if text]))
        _write(book, heading, _columns(report))
    return buffer.getvalue()


def _write(book: Any, heading: Any, table: Table) -> str:
    """One sheet; what of it had to be left out, "" where nothing had."""
    sheet = book.add_worksheet(table.name)
    sheet.freeze_panes(1, 0)
    for column, name in enumerate(table.headings):
        sheet.set_column(column, column, _WIDE.get(name, max(9, min(24, len(name) + 1))))
        sheet.write_string(0, column, name, heading)
    rows = table.rows[:MOST_ROWS]
    write_number, write_string = sheet.write_number, sheet.write_string
    for number, row in enumerate(rows, start=1):
        for column, value in enumerate(row):
            if value is None:
                continue
            if isinstance(value, str):
                write_string(number, column, cell_fit(value))
            elif isinstance(value, bool):
                sheet.write_boolean(number, column, value)
            elif math.isfinite(value):
                write_number(number, column, value)
    sheet.autofilter(0, 0, max(len(rows), 1), len(table.headings) - 1)
    more = len(table.rows) - len(rows)
    return f"{table.name}: {more} rows more than a sheet takes are left out" if more else ""


def _notes(report: TraceReport, left_out: Sequence[str]) -> Table:
    rows = [("this report", note) for note in (*report.notes, *left_out)]
    return Table("notes", ("about", "note"), [*rows, *NOTES])


def _columns(report: TraceReport) -> Table:
    """What the columns of TraceLens' sheets mean, of the sheets that are there."""
    present = {table.name for table in report.tables}
    rows: list[tuple[Any, ...]] = [
        (sheet.name, column.name, column.unit, column.meaning)
        for sheet in SHEETS
        if sheet.name in present
        for column in sheet.columns
    ]
    rows += [(name, "", "", what) for name, what in OUR_SHEETS.items() if name in present]
    return Table("columns", ("sheet", "column", "unit", "meaning"), rows)
