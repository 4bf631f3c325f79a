"""Groups of commands, each of which is imported when it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand

from gemmetry.cli.help_text import PlainGroup


class LazyGroup(PlainGroup):
    """A group that makes a command when it is needed, so that none pays for the options of the
    others."""

    modules: ClassVar[Mapping[str, str]] = {}
    """Command -> its module below ``gemmetry.cli``. It has the command, or the group of commands,
    as ``app``, or else the command as a function of its name: hyphens as underscores, and one more
    at the end where Python or the module uses the name."""

    command_class: type[TyperCommand] | None = None
    """What the functions become; None: a command whose arguments may be written in the old ways."""

    summaries: ClassVar[Mapping[str, str]] = {}
    """Command -> one line of help. With it, listing the commands imports none of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.modules and cmd_name not in self.commands:
            if cmd_name in self.summaries:
                return TyperCommand(cmd_name, callback=None, help=self.summaries[cmd_name])
            self.commands[cmd_name] = self.load(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name in self.summaries and name not in self.commands:
            self.commands[name] = self.load(name)
        return super().resolve_command(ctx, args)

    @classmethod
    def load(cls, name: str) -> Any:
        """Import and make the command called `name`."""
        module = importlib.import_module(f"gemmetry.cli.{cls.modules[name]}")
        app = getattr(module, "app", None)
        if app is None:
            from gemmetry.cli.arguments import WorkbenchCommand

            called = name.replace("-", "_")
            function = getattr(module, called, None) or getattr(module, f"{called}_")
            app = typer.Typer(add_completion=False)
            app.command(name, cls=cls.command_class or WorkbenchCommand)(function)
        command = typer.main.get_command(app)
        command.name = name
        return command


def group_app(kind: type[LazyGroup], text: str) -> typer.Typer:
    """The application of a group below ``gemmetry``, with `text` as its help."""
    return typer.Typer(
        cls=kind, add_completion=False, no_args_is_help=True, help=text, callback=lambda: None
    )
