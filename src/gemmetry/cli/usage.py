"""Mistakes that the parser of the command line finds, as errors of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from gemmetry.domain.errors import RequestError, did_you_mean, nearest

PARSER_ERROR: Any = typer.BadParameter.__mro__[2]
"""What the parser raises (``ClickException``); typer gives it no name of its own."""

_ALIKE = 0.6
"""Names of options are suggested from this similarity on: a typing error keeps more of a name
(one letter of six: 0.83), and names that only share letters have less ("undecided" and "device":
0.53)."""

_MOST_NAMED = 3
_HAS = ("has", "have")


def parser_mistake(error: Any) -> RequestError:
    """The mistake with its command, the cause and what to do, in the form of our own errors."""
    context = error.ctx if hasattr(error, "ctx") else None
    command = "gemmetry" if context is None else context.command_path
    hint = f"`{command} --help` shows its options and examples."
    unknown = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and unknown is not None:
        suggestion = "" if context is None else _suggestion(unknown, context)
        return RequestError(f"unknown option {unknown!r} of {command}", hint=f"{suggestion}{hint}")
    text = error.format_message().rstrip(".")
    return RequestError(f"{command}: {text[:1].lower()}{text[1:]}", hint=hint)


def _suggestion(unknown: str, context: Any) -> str:
    """The commands that have the option, else options of this command that are spelled alike."""
    having = [name for name, command in _commands() if unknown in _options(command)]
    if having:
        more = f" and {len(having) - _MOST_NAMED} more" if len(having) > _MOST_NAMED else ""
        return f"{', '.join(having[:_MOST_NAMED])}{more} {_HAS[len(having) > 1]} {unknown}. "
    known = {name.removeprefix("--"): name for name in _options(context.command)}
    near = nearest(unknown.lstrip("-"), known, cutoff=_ALIKE)
    return f"{did_you_mean([known[name] for name in near])} ".lstrip()


def _commands() -> Iterator[tuple[str, Any]]:
    """Every command with the words that call it; their modules are imported only here."""
    from gemmetry.cli.main import COMMANDS, load_command

    for name in COMMANDS:
        command = load_command(name)
        yield f"gemmetry {name}", command
        if hasattr(command, "list_commands"):
            context: Any = None  # gemmetry's groups do not use it
            for below in command.list_commands(context):
                yield f"gemmetry {name} {below}", command.get_command(context, below)


def _options(command: Any) -> list[str]:
    """Names of the command's options that its help shows."""
    return [
        name
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    ]
