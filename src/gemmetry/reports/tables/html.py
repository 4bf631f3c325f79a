"""Tables as one plain HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gemmetry.domain.tables import Column, Table
from gemmetry.reports.texts import printable


def html_page(tables: Sequence[Table]) -> str:
    """The page of the tables, with values formatted for people, each under its name if there are
    several."""
    title = ", ".join(table.name for table in tables)
    parts = [_table(table) for table in tables]
    if len(tables) > 1:
        parts = [f"<h2>{escape(table.name)}</h2>\n{part}"
                 for table, part in zip(tables, parts, strict=True)]  # fmt: skip
    return f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title>\n{"".join(parts)}'


def _table(table: Table) -> str:
    heads = "".join(map(_head, table.columns))
    body = "\n".join(
        f"<tr>{_cells('td', (c.text(v) for c, v in zip(table.columns, row, strict=True)))}</tr>"
        for row in table.rows
    )
    return f"<table><tr>{heads}</tr>\n{body}</table>\n"


def _head(column: Column) -> str:
    title = f' title="{escape(column.meaning)}"' if column.meaning else ""
    return f"<th{title}>{escape(printable(column.label))}</th>"


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(printable(text))}</{tag}>" for text in texts)
