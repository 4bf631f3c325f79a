"""Results as a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gemmetry.domain.resultset import ResultSet
from gemmetry.reports.tables import TableColumn, cell_text, select_columns, table_rows, tag_names
from gemmetry.reports.texts import printable


def to_markdown(result_set: ResultSet, columns: Sequence[str] | None = None) -> str:
    """A heading, the table with values formatted for people (`summary` columns by default), and
    the command.

    Raises:
        UnknownNameError: no such column.
    """
    chosen = select_columns(columns, default="summary", tags=tag_names(result_set.records))
    rows = (
        [_text(column, value) for column, value in zip(chosen, values, strict=True)]
        for values in table_rows(result_set.records, chosen)
    )
    headings = [column.label for column in chosen]
    lines = markdown_lines(headings, rows, numbers=[_is_number(column) for column in chosen])
    parts = [f"# {escape(result_set.title)}", "\n".join(lines)]
    if result_set.command:
        parts.append(f"    {printable(result_set.command).replace(chr(10), ' ')}")
    return "\n\n".join(parts) + "\n"


def markdown_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[bool] = ()
) -> list[str]:
    """The lines of a table; texts are escaped, columns that are `numbers` stand to the right."""
    numbers = numbers or [False] * len(headings)
    lines = [[escape(heading) for heading in headings]]
    lines.append(["---:" if is_number else "---" for is_number in numbers])
    lines += [[escape(text) for text in row] for row in rows]
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
