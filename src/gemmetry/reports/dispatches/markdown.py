"""Results as a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmetry.analysis.baseline import fastest, group_by_problem, grouped_by_speed
from gemmetry.analysis.leader import find_leader
from gemmetry.analysis.marks import RunMarks, find_run_marks
from gemmetry.domain.record import Record
from gemmetry.domain.resultset import ResultSet
from gemmetry.domain.tables import Column
from gemmetry.reports.dispatches.records import record_table
from gemmetry.reports.dispatches.verdict_line import run_state_lines, verdict_line
from gemmetry.reports.tables.markdown import escape, table_lines
from gemmetry.reports.texts import printable


def to_markdown(result_set: ResultSet, columns: Sequence[str] | None = None) -> str:
    """A heading, who is fastest, the table with values formatted for people (`summary` columns by
    default), what the marks mean, and the command.

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
    parts += map(escape, _notes(records, marks))
    if result_set.command:
        parts.append(f"    {printable(result_set.command).replace(chr(10), ' ')}")
    return "\n\n".join(filter(None, parts)) + "\n"


def _notes(records: Sequence[Record], marks: RunMarks) -> list[str]:
    """What most rows have in common, and what ``!`` stands for."""
    notes = run_state_lines(marks)
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
