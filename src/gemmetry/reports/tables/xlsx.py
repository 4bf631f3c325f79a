"""Tables as an Excel workbook, one sheet each, in which nothing is a formula or a link."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmetry.domain.errors import StorageError
from gemmetry.domain.tables import Column, Table
from gemmetry.reports.extras import require
from gemmetry.reports.tables.cells import cell_text
from gemmetry.reports.texts import cell_fit

MOST_ROWS = 1_048_575
"""Rows of a sheet below its heading (Excel's published limits)."""

_MAXIMUM_SHEET_NAME = 31
"""Characters of a sheet's name (Excel's published limits)."""

MOST_CELLS_IN_MEMORY = 1_000_000
"""Larger workbooks are written through temporary files, because each cell otherwise takes about
100 bytes of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a column looks where it differs from the default."""

    width: int = 0
    """Characters; 0 for the width of the heading."""
    good: str = ""
    """The text that is green; all others are red."""
    has_bar: bool = False
    """Whether each cell shows a bar whose length is proportional to its number."""


def workbook(tables: Sequence[Table], looks: Mapping[str, Look] | None = None) -> bytes:
    """The workbook; `looks` maps a column's name to its look.

    Texts are stored as text. Of a table with more than :data:`MOST_ROWS` rows, only the first are
    written; :func:`left_out` describes the rest.

    Raises:
        RequestError: XlsxWriter is not installed.
        StorageError: it is large, and the temporary files for it cannot be written.
    """
    xlsxwriter = require("xlsxwriter", extra="analysis")
    try:
        return _workbook(xlsxwriter, tables, looks or {})
    except (OSError, xlsxwriter.exceptions.XlsxFileError) as error:
        raise StorageError(
            f"this workbook is large and needs temporary files, which cannot be written: {error}",
            hint="Free some disk space, or set TMPDIR to a folder on another disk.",
        ) from error


def left_out(tables: Sequence[Table]) -> list[str]:
    """A line for each of `tables` that has more rows than fit on a sheet."""
    more = {table.name: len(table.rows) - MOST_ROWS for table in tables}
    return [
        f"{name}: rows left out because they do not fit on a sheet: {count}"
        for name, count in more.items()
        if count > 0
    ]


class _Buffer(io.BytesIO):
    """A buffer that stays open, so that closing an unfinished workbook raises no error."""

    def close(self) -> None:
        """Do nothing."""


def _workbook(xlsxwriter: Any, tables: Sequence[Table], looks: Mapping[str, Look]) -> bytes:
    buffer = _Buffer()
    is_large = sum(len(t.rows) * len(t.columns) for t in tables) > MOST_CELLS_IN_MEMORY
    options = {
        # A temporary file for each sheet would take most of the time for a small workbook.
        "constant_memory": is_large,
        "in_memory": not is_large,
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "strings_to_numbers": False,
    }
    with xlsxwriter.Workbook(buffer, options) as book:
        styles = _Styles(book)
        for table in tables:
            _write_sheet(book, styles, table, looks)
    return buffer.getvalue()


class _Styles:
    """The formats of one workbook."""

    def __init__(self, book: Any) -> None:
        self.heading = book.add_format({"bold": True, "bottom": 1, "text_wrap": True,
                                        "valign": "top", "bg_color": "#E8EEF4"})  # fmt: skip
        self.text = book.add_format({"num_format": "@"})
        self.integer = book.add_format({"num_format": "#,##0"})
        self.decimal = book.add_format({"num_format": "#,##0.00"})
        self.small = book.add_format({"num_format": "0.00E+00"})
        self.percent = book.add_format({"num_format": "0.0%"})
        self.good = book.add_format({"font_color": "#1B6E3C"})
        self.bad = book.add_format({"font_color": "#A61B1B"})

    def of_column(self, column: Column) -> tuple[Any, Any]:
        """The formats for the column's small floats and its other floats."""
        if column.name.endswith(("_fraction", "_share")):
            return self.percent, self.percent
        return self.small, self.decimal


def _write_sheet(book: Any, styles: _Styles, table: Table, looks: Mapping[str, Look]) -> None:
    sheet = book.add_worksheet(table.name[:_MAXIMUM_SHEET_NAME])
    sheet.freeze_panes(1, 0)
    for index, column in enumerate(table.columns):
        look = looks.get(column.name, Look())
        width = look.width or max(10, min(24, len(column.name) + 3))
        sheet.set_column(index, index, width)
        sheet.write_string(0, index, cell_fit(column.name), styles.heading)
        if column.meaning:
            sheet.write_comment(0, index, cell_fit(column.meaning), {"x_scale": 2})
    rows = table.rows[:MOST_ROWS]
    _write_rows(sheet, styles, table.columns, rows)
    sheet.autofilter(0, 0, max(len(rows), 1), len(table.columns) - 1)
    if rows:
        _colour(sheet, styles, table, looks)


def _write_rows(
    sheet: Any, styles: _Styles, columns: Sequence[Column], rows: Sequence[Sequence[Any]]
) -> None:
    """Write the rows, testing the commonest types first: traces have millions of cells."""
    write_string, write_number = sheet.write_string, sheet.write_number
    text_style, integer_style = styles.text, styles.integer
    float_styles = [styles.of_column(column) for column in columns]
    for number, row in enumerate(rows, start=1):
        for index, value in enumerate(row):
            if value is None or value == "":
                continue
            if isinstance(value, str):
                write_string(number, index, cell_fit(value), text_style)
            elif isinstance(value, bool):
                sheet.write_boolean(number, index, value)
            elif isinstance(value, int):
                write_number(number, index, value, integer_style)
            elif isinstance(value, float):
                if math.isfinite(value):
                    is_small = -0.01 < value < 0.01 and value != 0
                    write_number(number, index, value, float_styles[index][not is_small])
            elif text := str(cell_text(value)):
                write_string(number, index, cell_fit(text), text_style)


def _colour(sheet: Any, styles: _Styles, table: Table, looks: Mapping[str, Look]) -> None:
    last = len(table.rows[:MOST_ROWS])
    for index, column in enumerate(table.columns):
        look = looks.get(column.name, Look())
        if look.good:
            for criterion, style in (("==", styles.good), ("!=", styles.bad)):
                sheet.conditional_format(1, index, last, index, {
                    "type": "cell", "criteria": criterion, "value": f'"{look.good}"',
                    "format": style,
                })  # fmt: skip
        if look.has_bar:
            sheet.conditional_format(1, index, last, index, {
                "type": "data_bar", "bar_color": "#9DC3E6", "bar_solid": True,
            })  # fmt: skip
