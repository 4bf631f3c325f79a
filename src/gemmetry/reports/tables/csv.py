"""Tables as CSV, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.tables import Column, Table
from gemmetry.formats.opening import why_unreadable
from gemmetry.reports.tables.cells import cell_text
from gemmetry.reports.texts import printable

_FORMULA = re.compile("[\\s\x00-\x1f\ufeff\u200b-\u200f]*[-=+@\uff0d\uff1d\uff0b\uff20]|[\t\r\n]")
"""Beginnings with which a spreadsheet evaluates a cell (OWASP, "CSV Injection"): signs, including
full-width ones, also after characters that a spreadsheet may drop."""


def csv_text(table: Table) -> str:
    """The table as CSV: one header line, lines end in ``\\n``.

    A text that a spreadsheet would evaluate (it starts with ``=``, ``+``, ``-``, ``@``, tab or
    line break) gets a leading apostrophe, and control characters are replaced; numbers are never
    changed.
    """
    return csv_lines([table.names, *table.rows])


def append_csv(table: Table, path: Path) -> str:
    """The text of the file at `path` followed by the rows of `table`.

    Raises:
        RequestError: the file has another header than `table`.
        StorageError: the file cannot be read.
    """
    old = check_append(path, table.columns)
    if not old.strip():
        return csv_text(table)
    joint = "" if old.endswith("\n") else "\n"
    return f"{old}{joint}{csv_lines(table.rows)}"


def check_append(path: Path, columns: Sequence[Column]) -> str:
    """The text of the file at `path`, to which rows with these columns can be appended.

    Raises:
        RequestError: the file has another header. StorageError: the file cannot be read.
    """
    try:
        old = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(
            f"cannot read {path} to append to it: {why_unreadable(error)}",
            hint="Write to a new file instead.",
        ) from error
    if old.strip():
        _check_header(path, old, [str(_guard(column.name)) for column in columns])
    return old


def _check_header(path: Path, old: str, wanted: list[str]) -> None:
    header = next(csv.reader(io.StringIO(old, newline="")))
    if header == wanted:
        return
    missing = [name for name in wanted if name not in header]
    extra = [name for name in header if name not in wanted]
    what = "; ".join(
        f"{text} {', '.join(names[:6])}"
        for text, names in (("it lacks", missing), ("it also has", extra))
        if names
    )
    raise RequestError(
        f"cannot append to {path}: its columns differ ({what or 'their order'})",
        hint="Use the same --columns and --tags as for the first rows, or another file.",
    )


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    """Rows of values as CSV; :func:`csv_text` describes how texts are changed."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([_guard(cell_text(value)) for value in row] for row in rows)
    return buffer.getvalue()


def _guard(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    lead = "'" if _FORMULA.match(value) else ""
    # Readers treat a bare carriage return as the end of a row.
    return lead + printable(value.replace("\r\n", "\n").replace("\r", "\n"))
