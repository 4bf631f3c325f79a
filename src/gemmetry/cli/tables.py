"""Tables that are not results (providers, dtypes ...): to the console, JSON or a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmetry.cli.console import note, stdout_console

Row = Mapping[str, Any]


def emit(
    name: str,
    rows: Sequence[Row],
    *,
    as_json: bool,
    outputs: Sequence[Path] = (),
    show: Callable[[Sequence[Row]], None] | None = None,
) -> None:
    """Print `rows` (all with the same keys), and write them to `outputs`; `show` prints them in
    another way than as a table.

    Raises:
        RequestError: a suffix is unknown or a library is missing. StorageError: not writable.
    """
    from gemmetry.reports.tables.rows import rows_document, write_rows

    check_outputs(outputs)
    if as_json:
        json.dump(rows_document(name, rows), sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        (show or _print)(rows)
    for path in outputs:
        write_rows(name, rows, path)
        note(f"wrote {path}")


def check_outputs(outputs: Sequence[Path], suffixes: Sequence[str] = ()) -> None:
    """Refuse, before any work, files that could not be written after it. `suffixes` are those that
    there is a writer for (default: those of plain tables).

    Raises:
        RequestError: a suffix is unknown or a library is missing. StorageError: not writable.
    """
    from gemmetry.reports.dispatches.writers import check_libraries
    from gemmetry.reports.tables.files import check_writable
    from gemmetry.reports.tables.rows import SUFFIXES, check_suffix

    for path in outputs:
        suffix = check_suffix(path, suffixes or SUFFIXES)
        if suffix != ".html":  # a plain table has no plots
            check_libraries(suffix)
        check_writable(path)


def _print(rows: Sequence[Row]) -> None:
    from gemmetry.reports.dispatches.grouped import print_rows
    from gemmetry.reports.tables.rows import row_text

    texts = [[row_text(value) for value in row.values()] for row in rows]
    print_rows(list(rows[0]) if rows else [], texts, stdout_console())
