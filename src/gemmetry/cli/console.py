"""Where text goes: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console


def stdout_console() -> Console:
    """The console of results. Not a terminal: as wide as COLUMNS says, else 160 columns, so that
    piped tables keep their rows on one line each."""
    from rich.console import Console

    is_told = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(highlight=False, width=None if is_told else 160)


def stderr_console() -> Console:
    """The console of progress."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def note(text: str) -> None:
    """One line for the person who typed the command, on stderr. Names of files that are found in
    folders may hold anything."""
    from gemmetry.reports.texts import printable

    typer.echo(printable(text), err=True)


def command_line() -> str:
    """The command as it was typed, for the experiment's manifest."""
    return shlex.join(["gemmetry", *sys.argv[1:]])
