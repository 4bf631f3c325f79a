"""Help as plain text, for commands and for groups of them.

Typer's own tables cut names that are wider than their column, so that they cannot be typed, and
loading the library that draws them takes longer than everything else in ``gemmetry --help``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from gemmetry.cli.examples import Example, examples_of
from gemmetry.domain.errors import RequestError, UnknownNameError

_WIDEST_NAME = 30
"""The widest column of names in a help text, in characters; longer names get their own line."""


class PlainHelp:
    """The plain ``--help`` of a command; it precedes typer's class among the bases."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """Write usage, examples, description, options and epilog."""
        self.format_usage(ctx, formatter)
        _write_examples(examples_of(ctx.command_path), formatter)
        self.format_help_text(ctx, formatter)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options under the headings of their panels."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            is_argument = parameter.param_type_name == "argument"
            heading = getattr(parameter, "rich_help_panel", None)
            heading = heading or ("Arguments" if is_argument else "Options")
            panels.setdefault(heading, []).append(record)
        for heading, records in panels.items():
            with formatter.section(heading):
                _write_records(records, formatter)


class PlainGroup(PlainHelp, TyperGroup):
    """A group of commands; its help lists them with the first paragraph of what each does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; without any, show the help and an error that names the commands.

        Raises:
            RequestError: there are no arguments.
        """
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise RequestError(
                f"{ctx.command_path} needs a command: {', '.join(self.list_commands(ctx))}",
                hint=f"`{ctx.command_path} COMMAND --help` shows the options of each.",
            )
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names.

        Raises:
            UnknownNameError: there is none of that name; the nearest are suggested.
        """
        known = self.list_commands(ctx)
        is_known = args[0] in known or args[0].startswith("-")
        if not is_known and not ctx.resilient_parsing:
            raise UnknownNameError("command", args[0], known, where=ctx.command_path)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write options, then commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command with its description, uncut."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        records = [
            (name, " ".join((command.help or "").split("\n\n")[0].split()))
            for name, command in found
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            _write_records(records, formatter)


def _write_examples(examples: Sequence[Example], formatter: Any) -> None:
    if not examples:
        return
    with formatter.section("Examples"):
        for text, line in examples:
            formatter.write(f"{'':{formatter.current_indent}}{text}\n")
            formatter.write(textwrap.indent(line, " " * (formatter.current_indent + 2)) + "\n")


def _write_records(records: Sequence[tuple[str, str]], formatter: Any) -> None:
    """Write names with their meanings next to them. Unlike in the formatter's own lists, hyphenated
    names in the text are not broken."""
    indent = formatter.current_indent
    column = min(max(len(name) for name, _ in records), _WIDEST_NAME) + 2
    room = formatter.width - indent - column
    for name, text in records:
        lines = textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False)
        if len(name) + 2 > column:
            lines.insert(0, "")
        names = [name, *[""] * (len(lines) - 1)]
        for left, right in zip(names, lines or [""], strict=True):
            formatter.write(f"{'':{indent}}{left:<{column}}{right}".rstrip() + "\n")
