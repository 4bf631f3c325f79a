"""Results as a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gemmetry.analysis.baseline import fastest, group_by_problem, grouped_by_speed
from gemmetry.analysis.leader import find_leader
from gemmetry.analysis.marks import RunMarks, find_run_marks
from gemmetry.domain.record import Record
from gemmetry.domain.resultset import ResultSet
from gemmetry.reports.dispatches.verdict_line import run_state_lines, verdict_line
from gemmetry.reports.tables.columns import (
    TableColumn,
    cell_text,
    select_columns,
    table_rows,
    tag_names,
)
from gemmetry.reports.texts import printable


def to_markdown(result_set: ResultSet, columns: Sequence[str] | None = None) -> str:
    """A heading, who is fastest, the table with values formatted for people (`summary` columns by
    default), what the marks mean, and the command.

    The dispatches of an operation stand together, the fastest first and with its median in bold;
    ``!`` stands behind medians that are less trustworthy than the rest.

    Raises:
        UnknownNameError: no such column.
    """
    records = grouped_by_speed(result_set.records)
    marks = find_run_marks(records)
    bests = {id(fastest(group)) for group in group_by_problem(records).values()}
    chosen = select_columns(columns, default="summary", tags=tag_names(records))
    rows = (
        [
            _cell(column, value, record, id(record) in bests, marks)
            for column, value in zip(chosen, values, strict=True)
        ]
        for record, values in zip(records, table_rows(records, chosen), strict=True)
    )
    headings = [column.label for column in chosen]
    lines = _table_lines(headings, rows, [_is_number(column) for column in chosen])
    verdict = verdict_line(records, find_leader(result_set, marks), marks)
    parts = [f"# {escape(result_set.title)}", escape(verdict), "\n".join(lines)]
    parts += map(escape, _notes(records, marks))
    if result_set.command:
        parts.append(f"    {printable(result_set.command).replace(chr(10), ' ')}")
    return "\n\n".join(filter(None, parts)) + "\n"


def _notes(records: Sequence[Record], marks: RunMarks) -> list[str]:
    """What most rows have in common, and what ``!`` stands for."""
    notes = run_state_lines(marks)
    if kinds := marks.counts(records):
        count = sum(bool(marks.of(record)) for record in records)
        told = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        notes.append(f"! {count} less trustworthy: {told}")
    return notes


def _cell(column: TableColumn, value: Any, record: Record, is_best: bool, marks: RunMarks) -> str:
    text = escape(_text(column, value))
    if column.heading != "median_ns" or value is None:
        return text
    return (f"**{text}**" if is_best else text) + (" !" if marks.of(record) else "")


def markdown_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[bool] = ()
) -> list[str]:
    """The lines of a table; texts are escaped, columns that are `numbers` stand to the right."""
    escaped = ([escape(text) for text in row] for row in rows)
    return _table_lines(headings, escaped, numbers or [False] * len(headings))


def _table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[bool]
) -> list[str]:
    lines = [[escape(heading) for heading in headings]]
    lines.append(["---:" if is_number else "---" for is_number in numbers])
    lines += map(list, rows)
    return [f"| {' | '.join(line)} |" for line in lines]


def escape(text: str) -> str:
    """`text` as it is, whatever Markdown or HTML it looks like, on one line."""
    text = printable(text).replace("\n", " ").replace("&", "&amp;").replace("<", "&lt;")
    for character in "\\`*[]|":
        text = text.replace(character, f"\\{character}")
    return text


def _text(column: TableColumn, value: Any) -> str:
    if column.column is not None:
        return column.column.text(value)
    return "" if value is None else str(cell_text(value))


def _is_number(column: TableColumn) -> bool:
    return column.column is not None and column.column.format is not None
