"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmetry.domain.tables import Table
from gemmetry.reports.texts import printable


def markdown_text(tables: Sequence[Table]) -> str:
    """The tables with values formatted for people, each under its name if there are several."""
    texts = ["\n".join(markdown_table(table)) for table in tables]
    if len(tables) > 1:
        texts = [f"## {escape(table.name)}\n\n{text}"
                 for table, text in zip(tables, texts, strict=True)]  # fmt: skip
    return "\n\n".join(texts) + "\n"


def markdown_table(table: Table) -> list[str]:
    """The lines of one table; columns of numbers are right-aligned."""
    columns = table.columns
    return markdown_lines(
        [column.label for column in columns],
        ([c.text(value) for c, value in zip(columns, row, strict=True)] for row in table.rows),
        numbers=[column.type.is_numeric for column in columns],
    )


def markdown_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[bool] = ()
) -> list[str]:
    """The lines of a table; texts are escaped, and columns in `numbers` are right-aligned."""
    escaped = ([escape(text) for text in row] for row in rows)
    return table_lines(headings, escaped, numbers or [False] * len(headings))


def table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[bool]
) -> list[str]:
    """Like :func:`markdown_lines`, for cells that are Markdown already."""
    lines = [[escape(heading) for heading in headings]]
    lines.append(["---:" if is_number else "---" for is_number in numbers])
    lines += map(list, rows)
    return [f"| {' | '.join(line)} |" for line in lines]


def escape(text: str) -> str:
    """`text` on one line, escaped so that neither Markdown nor HTML changes it."""
    text = printable(text).replace("\n", " ").replace("&", "&amp;").replace("<", "&lt;")
    for character in "\\`*[]|":
        text = text.replace(character, f"\\{character}")
    return text
