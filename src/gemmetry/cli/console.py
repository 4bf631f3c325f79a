"""Where text goes: results to stdout, everything else to stderr.

Tables that are not results (providers, dtypes ...): to the console, JSON or a file.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from gemmetry.domain.tables import Table


_INDENT = 4
"""Columns by which the continuation of a line that exceeds the terminal's width is indented."""


def stdout_console() -> Console:
    """The console of results. If it is not a terminal, it is as wide as COLUMNS specifies, or else
    160 columns, so that each row of a piped table stays on one line."""
    from gemmetry.results.lines import safe_console

    is_given = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return safe_console(width=None if is_given else 160)


def stderr_console() -> Console:
    """The console of progress."""
    from gemmetry.results.lines import safe_console

    return safe_console(stderr=True)


def say(text: str) -> None:
    """Print a line of a result on stdout as it is, however wide the terminal; control characters
    are replaced."""
    from gemmetry.results.texts import printable

    typer.echo(printable(text))


def note(text: str, *, command: str = "") -> None:
    """Print a line for the user on stderr; a terminal breaks it between words. Control characters,
    which names of files may contain, are replaced.

    Args:
        command: a command after `text` that can be copied: it gets lines of its own if the terminal
            is too narrow.
    """
    from gemmetry.results.texts import printable

    text, command = printable(text), printable(command)
    if not sys.stderr.isatty():
        typer.echo(f"{text} {command}" if command else text, err=True)
        return
    from rich.text import Text

    from gemmetry.results.lines import print_line, print_pointer

    if command:
        print_pointer(text, command, stderr_console())
    else:
        print_line(Text(text), stderr_console(), indent=_INDENT)


def print_json(document: Any, *, indent: int = 0) -> None:
    """One JSON document on stdout; `indent` as in :func:`gemmetry.results.json_text.encoded`."""
    from gemmetry.results.json_text import encoded

    typer.echo(encoded(document, indent=indent).decode())


def print_facts(**facts: Any) -> None:
    """One JSON document of what a command did, with the version of its schema."""
    print_json({"schema_version": 1, **facts})


def command_line() -> str:
    """The command as it was typed, without passwords, for the experiment's manifest."""
    from gemmetry.hardware.detect import masked_words

    return shlex.join(["gemmetry", *masked_words(sys.argv[1:])])


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
    from gemmetry.results.emit import tables_document

    check_outputs(outputs)
    if as_json:
        print_json(tables_document([table]))
    else:
        (show or _print)(table)
    write_outputs(table, outputs)


def write_outputs(table: Table, outputs: Sequence[Path]) -> None:
    """Write `table` to files, each in the format of its suffix."""
    from gemmetry.results.emit import write_tables

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
    from gemmetry.results.emit import FORMATS, check_library, check_suffix, check_writable
    from gemmetry.results.tables import check_plots

    for path in outputs:
        suffix = check_suffix(path, suffixes or FORMATS)
        check_library(suffix)
        if draws:
            check_plots(suffix)
        check_writable(path)


def _print(table: Table) -> None:
    from gemmetry.dispatches.terminal import print_table

    print_table(table, stdout_console())
