"""``gemmetry trace``: the group of commands about traces."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.help_text import PlainGroup

COMMANDS: dict[str, str] = {
    "record": "record",
    "summary": "tables",
    "gemms": "tables",
    "shapes": "tables",
    "collectives": "collectives",
    "report": "report",
}
"""Command -> its module, which has a function of that name."""

_THREADS = "OPENBLAS_NUM_THREADS"


class _TraceGroup(PlainGroup):
    """Makes a command when it is needed: the options of ``record`` alone cost the others a
    tenth of a second."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _make(cmd_name)
        return self.commands.get(cmd_name)


app = typer.Typer(
    cls=_TraceGroup,
    add_completion=False,
    no_args_is_help=True,
    help="Record and read traces.",
)


@app.callback()
def _group() -> None:
    """Record and read traces."""


def _make(name: str) -> Any:
    if name != "record":
        _import_numpy_alone()
    module = importlib.import_module(f"gemmetry.cli.trace.{COMMANDS[name]}")
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=WorkbenchCommand)(getattr(module, name))
    return typer.main.get_command(alone)


def _import_numpy_alone() -> None:
    """Import numpy without the threads that OpenBLAS starts at its import, which take as long as
    half of it: reading a trace multiplies no matrices."""
    if "numpy" in sys.modules:
        return
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        # Processes started from here must have the given variables.
        del os.environ[_THREADS]
        if before is not None:
            os.environ[_THREADS] = before
