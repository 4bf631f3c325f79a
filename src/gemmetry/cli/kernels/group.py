"""``gemmetry kernels``: the group of commands about our own kernels."""

from __future__ import annotations

import importlib
from typing import Any

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.help_text import PlainGroup

COMMANDS: dict[str, str] = {"list": "list_command", "check": "check"}
"""Command -> its module, which has a function of that name followed by an underscore if Python
uses the name."""

_HELP = "List, check and measure this project's own CUDA kernels."


class _KernelsGroup(PlainGroup):
    """Makes a command when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _make(cmd_name)
        return self.commands.get(cmd_name)


app = typer.Typer(cls=_KernelsGroup, add_completion=False, no_args_is_help=True, help=_HELP)


@app.callback()
def _group() -> None:
    """List, check and measure this project's own CUDA kernels."""


def _make(name: str) -> Any:
    module = importlib.import_module(f"gemmetry.cli.kernels.{COMMANDS[name]}")
    function = getattr(module, name, None) or getattr(module, f"{name}_")
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=WorkbenchCommand)(function)
    return typer.main.get_command(alone)
