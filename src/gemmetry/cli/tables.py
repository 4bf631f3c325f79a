"""Tables that are not results (providers, dtypes ...): to the console, JSON or a file."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from gemmetry.cli.console import note, stdout_console
from gemmetry.domain.columns import SCHEMA_VERSION
from gemmetry.domain.errors import RequestError

Row = Mapping[str, Any]

SUFFIXES = (".csv", ".json", ".parquet", ".xlsx", ".md", ".html")


def emit(name: str, rows: Sequence[Row], *, as_json: bool, outputs: Sequence[Path] = ()) -> None:
    """Print `rows` (all with the same keys), and write them to `outputs`.

    Raises:
        RequestError: a suffix is unknown or a library is missing. StorageError: not writable.
    """
    if as_json:
        json.dump(_document(name, rows), sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        _print(rows)
    for path in outputs:
        write_rows(name, rows, path)
        note(f"wrote {path}")


def write_rows(name: str, rows: Sequence[Row], path: Path) -> None:
    """Write `rows` in the format of the file's suffix.

    Raises:
        RequestError: unknown suffix, or a library is missing. StorageError: not writable.
    """
    from gemmetry.reports.files import write_atomically

    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise RequestError(
            f"cannot tell the format of {path}: unknown suffix {suffix!r}",
            hint=f"Give a name that ends in one of {', '.join(SUFFIXES)}.",
        )
    if suffix == ".json":
        content = (json.dumps(_document(name, rows), indent=1, ensure_ascii=False) + "\n").encode()
    elif suffix in (".parquet", ".xlsx"):
        content = _frame_bytes(rows, suffix)
    else:
        text = {".csv": _csv, ".md": _markdown, ".html": _html}[suffix](rows)
        content = text.encode()
    write_atomically(path, content)


def _document(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, name: [dict(row) for row in rows]}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return str(value)


def _print(rows: Sequence[Row]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in rows[0] if rows else ():
        table.add_column(heading.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    stdout_console().print(table)


def _csv(rows: Sequence[Row]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(rows[0] if rows else ())
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return buffer.getvalue()


def _markdown(rows: Sequence[Row]) -> str:
    from gemmetry.reports.markdown_table import escape as escape_markdown

    headings = list(rows[0]) if rows else []
    lines = [f"| {' | '.join(headings)} |", f"|{' --- |' * len(headings)}"]
    lines += [f"| {' | '.join(escape_markdown(_cell(v)) for v in row.values())} |" for row in rows]
    return "\n".join(lines) + "\n"


def _html(rows: Sequence[Row]) -> str:
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in (rows[0] if rows else ()))
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_cell(value))}</td>' for value in row.values())}</tr>"
        for row in rows
    )
    return f'<!doctype html><meta charset="utf-8"><table><tr>{heads}</tr>{body}</table>\n'


def _frame_bytes(rows: Sequence[Row], suffix: str) -> bytes:
    from gemmetry.reports.extras import require

    polars = require("polars", extra="analysis")
    flat = [
        {k: v if isinstance(v, bool | int | float | None) else _cell(v) for k, v in row.items()}
        for row in rows
    ]
    frame = polars.DataFrame(flat, infer_schema_length=None)
    buffer = io.BytesIO()
    if suffix == ".parquet":
        frame.write_parquet(buffer)
    else:
        require("xlsxwriter", extra="analysis")
        frame.write_excel(buffer)
    return buffer.getvalue()
