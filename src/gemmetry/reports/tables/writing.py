"""Tables as files; the suffix picks the format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gemmetry.domain.columns import SCHEMA_VERSION
from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import Table
from gemmetry.reports.extras import check_installed
from gemmetry.reports.tables.csv import csv_text
from gemmetry.reports.tables.files import write_atomically, written_together
from gemmetry.reports.tables.frames import parquet
from gemmetry.reports.tables.html import html_page
from gemmetry.reports.tables.json import json_file
from gemmetry.reports.tables.markdown import markdown_text
from gemmetry.reports.tables.xlsx import workbook


def tables_document(tables: Sequence[Table]) -> dict[str, Any]:
    """``schema_version``, and each table under its name as a list of objects."""
    return {
        "schema_version": SCHEMA_VERSION,
        **{table.name: table.records() for table in tables},
    }


def _only(tables: Sequence[Table]) -> Table:
    if len(tables) != 1:
        raise RequestError(
            f"a CSV or Parquet file holds one table, not {len(tables)}",
            hint="Give a folder, which gets one CSV file per table, or another suffix.",
        )
    return tables[0]


class Format(NamedTuple):
    """A format of files."""

    content: Callable[[Sequence[Table]], bytes]
    library: str = ""
    """The module that it needs, of the extra ``analysis``."""


FORMATS = {
    ".csv": Format(lambda tables: csv_text(_only(tables)).encode()),
    ".json": Format(lambda tables: json_file(tables_document(tables))),
    ".parquet": Format(lambda tables: parquet(_only(tables)), "polars"),
    ".xlsx": Format(workbook, "xlsxwriter"),
    ".md": Format(lambda tables: markdown_text(tables).encode()),
    ".html": Format(lambda tables: html_page(tables).encode()),
}
"""Suffix -> format. A new one needs an entry here and its file in this folder; whatever writes
tables can then write it."""


def check_suffix(path: Path, suffixes: Iterable[str] = FORMATS) -> str:
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


def check_library(suffix: str) -> None:
    """Check that the library that the format `suffix` needs is installed.

    Raises:
        RequestError: it is not.
    """
    if suffix in FORMATS and FORMATS[suffix].library:
        check_installed(FORMATS[suffix].library, extra="analysis")


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder that exists, or a name without a suffix."""
    try:
        return path.is_dir() or not path.suffix
    except OSError:
        # Writing there will report the reason.
        return not path.suffix


@written_together()
def write_tables(tables: Sequence[Table], path: Path) -> None:
    """Write the tables to `path`, whole or not at all, in the format of its suffix. A workbook
    gets a sheet for each table, and a folder (see :func:`is_folder`) a CSV file for each.

    Raises:
        RequestError: unknown suffix, a library is missing, or the format holds one table and
            there are several.
        StorageError: not writable.
    """
    if is_folder(path):
        for table in tables:
            write_atomically(path / f"{table.name}.csv", csv_text(table).encode())
        return
    write_atomically(path, FORMATS[check_suffix(path)].content(tables))
