"""Where text goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


_INDENT = 4
"""Columns by which the continuation of a line that exceeds the terminal's width is indented."""


def stdout_console() -> Console:
    """The console of results. If it is not a terminal, it is as wide as COLUMNS specifies, or else
    160 columns, so that each row of a piped table stays on one line."""
    from gemmetry.reports.lines import safe_console

    is_given = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return safe_console(width=None if is_given else 160)


def stderr_console() -> Console:
    """The console of progress."""
    from gemmetry.reports.lines import safe_console

    return safe_console(stderr=True)


def say(text: str) -> None:
    """Print a line of a result on stdout as it is, however wide the terminal; control characters
    are replaced."""
    from gemmetry.reports.texts import printable

    typer.echo(printable(text))


def note(text: str, *, command: str = "") -> None:
    """Print a line for the user on stderr; a terminal breaks it between words. Control characters,
    which names of files may contain, are replaced.

    Args:
        command: a command after `text` that can be copied: it gets lines of its own if the terminal
            is too narrow.
    """
    from gemmetry.reports.texts import printable

    text, command = printable(text), printable(command)
    if not sys.stderr.isatty():
        typer.echo(f"{text} {command}" if command else text, err=True)
        return
    from rich.text import Text

    from gemmetry.reports.lines import print_line, print_pointer

    if command:
        print_pointer(text, command, stderr_console())
    else:
        print_line(Text(text), stderr_console(), indent=_INDENT)


def print_json(document: Any, *, indent: int = 0) -> None:
    """One JSON document on stdout; `indent` as in :func:`gemmetry.reports.tables.json.encoded`."""
    from gemmetry.reports.tables.json import encoded

    typer.echo(encoded(document, indent=indent).decode())


def print_facts(**facts: Any) -> None:
    """One JSON document of what a command did, with the version of its schema."""
    print_json({"schema_version": 1, **facts})


def command_line() -> str:
    """The command as it was typed, without passwords, for the experiment's manifest."""
    from gemmetry.hardware.environment import masked_words

    return shlex.join(["gemmetry", *masked_words(sys.argv[1:])])
