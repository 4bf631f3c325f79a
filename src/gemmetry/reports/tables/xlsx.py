"""Results as an Excel workbook: records, failures and environment, one sheet each."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.outcome import Outcome
from gemmetry.domain.resultset import ResultSet
from gemmetry.domain.tables import Direction
from gemmetry.reports.extras import require
from gemmetry.reports.tables.columns import (
    TableColumn,
    cell_text,
    select_columns,
    table_rows,
    tag_names,
)
from gemmetry.reports.texts import cell_fit

_MAXIMUM_SHEET_NAME = 31
"""Characters of a sheet's name (Excel's published limits)."""

_FAILURES = ("target", "provider", "dispatch", "outcome", "stage", "reason", "reproduce")


def to_workbook(result_set: ResultSet, columns: Sequence[str] | None = None) -> bytes:
    """The workbook. Texts are stored as texts: nothing in it is a formula or a link.

    Raises:
        RequestError: XlsxWriter is not installed.
    """
    buffer = io.BytesIO()
    with _open(buffer) as book:
        styles = _Styles(book)
        tags = tag_names(result_set.records)
        _write_records(book, styles, "records", result_set.records, columns, tags)
        failed = [record for record in result_set.records if record.outcome is not Outcome.OK]
        _write_records(book, styles, "failures", failed, _FAILURES, ())
        _write_environment(book, styles, result_set)
        _write_columns(book, styles)
    return buffer.getvalue()


def plain_workbook(
    name: str, headings: Sequence[str], rows: Sequence[Sequence[int | float | str | None]]
) -> bytes:
    """A workbook of one sheet. Texts are stored as texts.

    Raises:
        RequestError: XlsxWriter is not installed.
    """
    buffer = io.BytesIO()
    with _open(buffer) as book:
        styles = _Styles(book)
        sheet = book.add_worksheet(name[:_MAXIMUM_SHEET_NAME])
        for index, heading in enumerate(headings):
            sheet.write_string(0, index, heading, styles.heading)
            sheet.set_column(index, index, _width(heading))
        for number, row in enumerate(rows, start=1):
            for index, value in enumerate(row):
                column = TableColumn(headings[index], lambda _record, _operation: None)
                _write_cell(sheet, number, index, value, styles, column)
        sheet.freeze_panes(1, 0)
    return buffer.getvalue()


def _open(buffer: io.BytesIO) -> Any:
    """A new workbook in which no text becomes a formula, a link or a number."""
    options = {
        "in_memory": True,
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "strings_to_numbers": False,
    }
    return require("xlsxwriter", extra="analysis").Workbook(buffer, options)


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

    def of(self, column: TableColumn, value: Any) -> Any:
        if isinstance(value, int):
            return self.integer
        name = column.heading
        if name.endswith(("_fraction", "_share")):
            return self.percent
        return self.small if value != 0 and abs(value) < 0.01 else self.decimal


def _write_records(
    book: Any,
    styles: _Styles,
    name: str,
    records: Sequence[Any],
    names: Sequence[str] | None,
    tags: Sequence[str],
) -> None:
    columns = select_columns(names, tags=tags)
    sheet = book.add_worksheet(name)
    for index, column in enumerate(columns):
        unit = f"\n[{column.column.unit}]" if column.column and column.column.unit else ""
        sheet.write_string(0, index, f"{column.heading}{unit}", styles.heading)
        sheet.set_column(index, index, _width(column.heading))
    count = 0
    for count, values in enumerate(table_rows(records, columns), start=1):
        for index, value in enumerate(values):
            _write_cell(sheet, count, index, cell_text(value), styles, columns[index])
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, max(count, 1), len(columns) - 1)
    _colour(sheet, styles, columns, count)


def _write_cell(
    sheet: Any, row: int, index: int, value: Any, styles: _Styles, column: TableColumn
) -> None:
    if value is None or value == "":
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        sheet.write_string(row, index, cell_fit(str(value)), styles.text)
    elif math.isfinite(value):
        sheet.write_number(row, index, value, styles.of(column, value))


def _colour(sheet: Any, styles: _Styles, columns: Sequence[TableColumn], rows: int) -> None:
    """Outcomes in colour, and a bar of its size in each speed cell."""
    if not rows:
        return
    for index, column in enumerate(columns):
        if column.heading == "outcome":
            for criterion, style in (("==", styles.good), ("!=", styles.bad)):
                sheet.conditional_format(1, index, rows, index, {
                    "type": "cell", "criteria": criterion, "value": '"ok"', "format": style,
                })  # fmt: skip
        elif column.heading == "gflops":
            sheet.conditional_format(1, index, rows, index, {
                "type": "data_bar", "bar_color": "#9DC3E6", "bar_solid": True,
            })  # fmt: skip


def _width(heading: str) -> int:
    wide = {"dispatch": 60, "operation": 40, "configuration": 34, "reason": 50, "reproduce": 50}
    return wide.get(heading, max(10, min(24, len(heading) + 3)))


def _write_environment(book: Any, styles: _Styles, result_set: ResultSet) -> None:
    sheet = book.add_worksheet("environment")
    sheet.set_column(0, 1, 30)
    sheet.set_column(2, 2, 80)
    for index, heading in enumerate(("environment_id", "field", "value")):
        sheet.write_string(0, index, heading, styles.heading)
    rows = [
        ("", "title", result_set.title),
        ("", "command", result_set.command),
        ("", "created", result_set.created),
    ]
    for key, environment in result_set.environments.items():
        rows.extend(
            (key, field, str(cell_text(value))) for field, value in asdict(environment).items()
        )
    for number, row in enumerate(rows, start=1):
        for index, text in enumerate(row):
            sheet.write_string(number, index, cell_fit(text), styles.text)
    sheet.freeze_panes(1, 0)


def _write_columns(book: Any, styles: _Styles) -> None:
    sheet = book.add_worksheet("columns")
    sheet.set_column(0, 0, 28)
    sheet.set_column(1, 2, 14)
    sheet.set_column(3, 3, 80)
    for index, heading in enumerate(("column", "unit", "better", "meaning")):
        sheet.write_string(0, index, heading, styles.heading)
    for number, column in enumerate(COLUMNS, start=1):
        better = "" if column.direction is Direction.NONE else str(column.direction)
        for index, text in enumerate((column.name, column.unit, better, column.description)):
            sheet.write_string(number, index, text, styles.text)
    sheet.freeze_panes(1, 0)
