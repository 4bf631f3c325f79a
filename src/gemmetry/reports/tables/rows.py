"""Plain tables (providers, dtypes, comparisons ...) as files; the suffix picks the format."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gemmetry.domain.columns import SCHEMA_VERSION
from gemmetry.domain.errors import RequestError
from gemmetry.formats.naming import encodable
from gemmetry.reports.extras import require
from gemmetry.reports.tables.columns import cell_text
from gemmetry.reports.tables.csv import csv_lines
from gemmetry.reports.tables.files import write_atomically
from gemmetry.reports.tables.json_document import to_json_text
from gemmetry.reports.tables.markdown import markdown_lines
from gemmetry.reports.tables.xlsx import plain_workbook
from gemmetry.reports.texts import printable

Row = Mapping[str, Any]

SUFFIXES = (".csv", ".json", ".parquet", ".xlsx", ".md", ".html")


def check_suffix(path: Path, suffixes: Sequence[str] = SUFFIXES) -> str:
    """The suffix of `path` in lower case.

    Raises:
        RequestError: it is none of `suffixes`.
    """
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise RequestError(
            f"unknown format of {path}: unknown suffix {path.suffix!r}",
            hint=f"Give a name that ends in one of {', '.join(suffixes)}.",
        )
    return suffix


def rows_document(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The rows as a JSON document: ``schema_version`` and `name`."""
    return {"schema_version": SCHEMA_VERSION, name: [dict(row) for row in rows]}


def row_text(value: Any) -> str:
    """A value as people read it: nothing, ``yes``/``no``, lists joined."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return encodable(str(cell_text(value)))


def write_rows(
    name: str,
    rows: Sequence[Row],
    path: Path,
    *,
    columns: Sequence[str] = (),
    document: Mapping[str, Any] | None = None,
) -> None:
    """Write `rows` (all with the same keys), whole or not at all.

    Args:
        columns: the keys, for the header of a table that may have no rows.
        document: what a json file holds (default: :func:`rows_document`).

    Raises:
        RequestError: unknown suffix, or a library is missing. StorageError: not writable.
    """
    suffix = check_suffix(path)
    headings = list(rows[0] if rows else columns)
    texts = [[row_text(value) for value in row.values()] for row in rows]
    match suffix:
        case ".json":
            content = to_json_text(document or rows_document(name, rows)).encode()
        case ".parquet":
            content = _parquet(headings, rows)
        case ".xlsx":
            content = plain_workbook(name, headings, [list(map(_flat, r.values())) for r in rows])
        case ".csv":
            content = csv_lines([headings, *(map(_flat, row.values()) for row in rows)]).encode()
        case ".md":
            content = ("\n".join(markdown_lines(headings, texts)) + "\n").encode()
        case _:
            content = _html(name, headings, texts).encode()
    write_atomically(path, content)


def _flat(value: Any) -> Any:
    """Numbers as they are, all else as text: what a cell of a file holds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if value is None or is_number else row_text(value)


def _html(name: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "\n".join(
        f"<tr>{''.join(f'<td>{escape(printable(text))}</td>' for text in row)}</tr>" for row in rows
    )
    return (
        f'<!doctype html><meta charset="utf-8"><title>{escape(name)}</title>\n'
        f"<table><tr>{heads}</tr>\n{body}</table>\n"
    )


def _parquet(headings: Sequence[str], rows: Sequence[Row]) -> bytes:
    polars = require("polars", extra="analysis")
    flat = [{key: v if isinstance(v, bool) else _flat(v) for key, v in row.items()} for row in rows]
    buffer = io.BytesIO()
    schema = None if flat else list(headings)
    frame = polars.DataFrame(flat, schema, infer_schema_length=None)
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
