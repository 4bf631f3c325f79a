"""Results as files; the suffix picks the format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmetry.analysis.dispatches.baseline import fastest, group_by_problem, grouped_by_speed
from gemmetry.analysis.dispatches.leader import find_leader
from gemmetry.analysis.dispatches.marks import RunMarks, find_run_marks
from gemmetry.domain.errors import RequestError
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.tables import Column
from gemmetry.reports.dispatches.junit import to_junit
from gemmetry.reports.dispatches.records import record_table, to_json_document
from gemmetry.reports.dispatches.verdict_line import run_state_lines, verdict_line
from gemmetry.reports.extras import check_plots
from gemmetry.reports.tables.csv import append_csv, csv_text
from gemmetry.reports.tables.files import write_atomically
from gemmetry.reports.tables.json import json_file
from gemmetry.reports.tables.markdown import escape, table_lines
from gemmetry.reports.tables.writing import FORMATS, check_library, check_suffix
from gemmetry.reports.texts import printable


@dataclass(frozen=True, slots=True)
class _Options:
    columns: Sequence[str] | None
    baseline: str | None


def write(
    result_set: ResultSet,
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    append: bool = False,
    baseline: str | None = None,
) -> None:
    """Write the results to `path` in the format of its suffix (:func:`suffixes`).

    The file appears whole or not at all. `columns` (names of docs/columns.md or presets) applies
    to csv, parquet, xlsx and md; `append` to csv; `baseline` to html and the pictures.

    Raises:
        RequestError: unknown suffix, an option that the format does not have, a missing library, or
            a file to append to that has other columns.
        UnknownNameError: no such column.
        StorageError: the file cannot be written; an older one is unchanged.
    """
    suffix = check_suffix(path, suffixes())
    if append and suffix != ".csv":
        raise RequestError(f"cannot append to {path}", hint="Only csv files can be appended to.")
    if columns and suffix not in with_columns():
        raise RequestError(
            f"columns cannot be chosen for {path}",
            hint=f"Only {', '.join(with_columns())} can have chosen columns; leave --columns out.",
        )
    if append:
        content = append_csv(record_table(result_set.records, columns), path).encode()
    else:
        content = _content(suffix, result_set, _Options(columns, baseline))
    write_atomically(path, content)


def _content(suffix: str, result_set: ResultSet, options: _Options) -> bytes:
    if suffix in _OWN:
        return _OWN[suffix](result_set, options)
    return FORMATS[suffix].content([record_table(result_set.records, options.columns)])


def check_libraries(suffix: str) -> None:
    """Check that the libraries that the format `suffix` needs are installed.

    Raises:
        RequestError: one is not installed.
    """
    check_library(suffix)
    check_plots(suffix)


def to_csv(result_set: ResultSet, columns: Sequence[str] | None = None) -> str:
    """The results as CSV; see :func:`csv_text`.

    Raises:
        UnknownNameError: no such column.
    """
    return csv_text(record_table(result_set.records, columns))


def to_markdown(result_set: ResultSet, columns: Sequence[str] | None = None) -> str:
    """A heading, a sentence with the fastest, the table with values formatted for people (`summary`
    columns by default), what the marks mean, and the command.

    The dispatches of an operation are grouped, the fastest first and with its median in bold;
    ``!`` follows medians that are less trustworthy than the rest.

    Raises:
        UnknownNameError: no such column.
    """
    records = grouped_by_speed(result_set.records)
    marks = find_run_marks(records)
    bests = {id(fastest(group)) for group in group_by_problem(records).values()}
    table = record_table(records, columns or ("summary",))
    rows = (
        [
            _cell(column, value, record, id(record) in bests, marks)
            for column, value in zip(table.columns, values, strict=True)
        ]
        for record, values in zip(records, table.rows, strict=True)
    )
    headings = [column.label for column in table.columns]
    lines = table_lines(headings, rows, [column.type.is_numeric for column in table.columns])
    verdict = verdict_line(records, find_leader(result_set, marks), marks)
    parts = [f"# {escape(result_set.title)}", escape(verdict), "\n".join(lines)]
    parts += map(escape, _notes(records, marks, result_set.remarks))
    if result_set.command:
        parts.append(f"    {printable(result_set.command).replace(chr(10), ' ')}")
    return "\n\n".join(filter(None, parts)) + "\n"


def _notes(records: Sequence[Record], marks: RunMarks, remarks: Sequence[str]) -> list[str]:
    """The marks that most rows share, and what ``!`` means."""
    notes = run_state_lines(marks, remarks)
    if kinds := marks.counts(records):
        count = sum(bool(marks.of(record)) for record in records)
        kinds_shown = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        notes.append(f"! {count} less trustworthy: {kinds_shown}")
    return notes


def _cell(column: Column, value: Any, record: Record, is_best: bool, marks: RunMarks) -> str:
    text = escape(column.text(value))
    if column.name != "median_ns" or value is None:
        return text
    return (f"**{text}**" if is_best else text) + (" !" if marks.of(record) else "")


def _json(result_set: ResultSet, options: _Options) -> bytes:
    return json_file(to_json_document(result_set))


def _xlsx(result_set: ResultSet, options: _Options) -> bytes:
    from gemmetry.reports.dispatches.workbook import to_workbook

    return to_workbook(result_set, options.columns)


def _markdown(result_set: ResultSet, options: _Options) -> bytes:
    return to_markdown(result_set, options.columns).encode()


def _html(result_set: ResultSet, options: _Options) -> bytes:
    from gemmetry.reports.dispatches.html import render_html

    return render_html(result_set, baseline=options.baseline).encode()


def _junit(result_set: ResultSet, options: _Options) -> bytes:
    return to_junit(result_set)


def _png(result_set: ResultSet, options: _Options) -> bytes:
    from gemmetry.reports.dispatches.plots import render_picture

    return render_picture(result_set, "png", baseline=options.baseline)


def _svg(result_set: ResultSet, options: _Options) -> bytes:
    from gemmetry.reports.dispatches.plots import render_picture

    return render_picture(result_set, "svg", baseline=options.baseline)


_OWN: dict[str, Callable[[ResultSet, _Options], bytes]] = {
    ".json": _json,
    ".xlsx": _xlsx,
    ".md": _markdown,
    ".html": _html,
    ".xml": _junit,
    ".png": _png,
    ".svg": _svg,
}
"""Suffix -> writer, of the formats that show results in a way of their own; the other formats of
tables have one row per record."""


def suffixes() -> tuple[str, ...]:
    """The suffixes of all formats of results."""
    return tuple(dict.fromkeys((*FORMATS, *_OWN)))


def with_columns() -> tuple[str, ...]:
    """The suffixes of the formats whose columns can be chosen."""
    return tuple(suffix for suffix in FORMATS if suffix not in (".json", ".html"))
