"""``gemmetry sweep``: the group of commands about training sweeps."""

from __future__ import annotations

import importlib
from typing import Any

import typer

from gemmetry.cli.help_text import PlainGroup
from gemmetry.cli.sweep.arguments import SweepCommand

COMMANDS: dict[str, str] = {
    "run": "run",
    "analyze": "analyze",
    "compare": "compare",
    "tuner-config": "tuner_config",
    "rocprof-input": "rocprof_input",
}
"""Command -> its module, which has a function of that name (hyphens as underscores)."""


class _SweepGroup(PlainGroup):
    """Makes a command when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _make(cmd_name)
        return self.commands.get(cmd_name)


_HELP = "Run, analyse and compare sweeps of training runs over settings of communication."

app = typer.Typer(cls=_SweepGroup, add_completion=False, no_args_is_help=True, help=_HELP)


@app.callback()
def _group() -> None:
    """Run, analyse and compare sweeps of training runs over settings of communication."""


def _make(name: str) -> Any:
    module = importlib.import_module(f"gemmetry.cli.sweep.{COMMANDS[name]}")
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=SweepCommand)(getattr(module, name.replace("-", "_")))
    return typer.main.get_command(alone)
