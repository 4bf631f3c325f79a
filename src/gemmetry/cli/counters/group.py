"""``gemmetry counters``: the group of commands about hardware counters."""

from __future__ import annotations

import importlib
from typing import Any

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.help_text import PlainGroup

COMMANDS: dict[str, str] = {
    "collect": "collect",
    "import": "import_command",
    "diagnose": "diagnose",
    "compare": "compare",
    "metrics": "metrics",
}
"""Command -> its module, which has a function of that name followed by an underscore if Python
uses the name."""


class _CountersGroup(PlainGroup):
    """Makes a command when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _make(cmd_name)
        return self.commands.get(cmd_name)


_HELP = "Collect, read and diagnose the hardware counters of kernels."

app = typer.Typer(cls=_CountersGroup, add_completion=False, no_args_is_help=True, help=_HELP)


@app.callback()
def _group() -> None:
    """Collect, read and diagnose the hardware counters of kernels."""


def _make(name: str) -> Any:
    module = importlib.import_module(f"gemmetry.cli.counters.{COMMANDS[name]}")
    function = getattr(module, name, None) or getattr(module, f"{name}_")
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=WorkbenchCommand)(function)
    return typer.main.get_command(alone)
