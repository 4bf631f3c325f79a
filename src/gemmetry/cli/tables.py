"""Tables that are not results (providers, dtypes ...): to the console, JSON or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.cli.console import note, print_json, stdout_console

if TYPE_CHECKING:
    from gemmetry.domain.tables import Table


def emit(
    table: Table,
    *,
    as_json: bool,
    outputs: Sequence[Path] = (),
    show: Callable[[Table], None] | None = None,
) -> None:
    """Print `table`, and write it to `outputs`; `show` prints it in another way than as a table.

    Raises:
        RequestError: a suffix is unknown or a library is missing. StorageError: not writable.
    """
    from gemmetry.reports.tables.writing import tables_document

    check_outputs(outputs)
    if as_json:
        print_json(tables_document([table]))
    else:
        (show or _print)(table)
    write_outputs(table, outputs)


def write_outputs(table: Table, outputs: Sequence[Path]) -> None:
    """Write `table` to files, each in the format of its suffix."""
    from gemmetry.reports.tables.writing import write_tables

    for path in outputs:
        write_tables([table], path)
        note(f"wrote {path}")


def check_outputs(
    outputs: Sequence[Path], suffixes: Iterable[str] = (), *, draws: bool = False
) -> None:
    """Refuse, before any work, files that could not be written after it. `suffixes` are those that
    there is a writer for (default: those of tables); `draws`: pages and pictures have plots.

    Raises:
        RequestError: a suffix is unknown or a library is missing. StorageError: not writable.
    """
    from gemmetry.reports.extras import check_plots
    from gemmetry.reports.tables.files import check_writable
    from gemmetry.reports.tables.writing import FORMATS, check_library, check_suffix

    for path in outputs:
        suffix = check_suffix(path, suffixes or FORMATS)
        check_library(suffix)
        if draws:
            check_plots(suffix)
        check_writable(path)


def _print(table: Table) -> None:
    from gemmetry.reports.tables.terminal import print_table

    print_table(table, stdout_console())
