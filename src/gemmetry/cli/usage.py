"""Mistakes that the parser of the command line finds, as errors of ours."""

from __future__ import annotations

from typing import Any

import typer

from gemmetry.domain.errors import RequestError, nearest

PARSER_ERROR: Any = typer.BadParameter.__mro__[2]
"""What the parser raises (``ClickException``); typer gives it no name of its own."""


def parser_mistake(error: Any) -> RequestError:
    """The mistake with its command, the cause and what to do, in the form of our own errors."""
    context = error.ctx if hasattr(error, "ctx") else None
    command = "gemmetry" if context is None else context.command_path
    hint = f"`{command} --help` shows its options and examples."
    unknown = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and unknown is not None:
        known = [] if context is None else _options(context.command)
        near = [name for name in nearest(unknown, known) if name != unknown]
        suggestion = f"Did you mean {' or '.join(near)}? " if near else ""
        return RequestError(f"unknown option {unknown!r} of {command}", hint=f"{suggestion}{hint}")
    text = error.format_message().rstrip(".")
    return RequestError(f"{command}: {text[:1].lower()}{text[1:]}", hint=hint)


def _options(command: Any) -> list[str]:
    """Names of the command's options that its help shows."""
    return [
        name
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    ]
