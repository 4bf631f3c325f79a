"""``gemmetry cache``: the caches that make reading a trace, or checking a kernel, again fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.help_text import PlainGroup
from gemmetry.cli.options import Json
from gemmetry.domain.units import counted

app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    help="Manage the caches that make reading a trace again fast.",
)


@app.callback()
def _group() -> None:
    """Manage the caches that make reading a trace again fast."""


@app.command("clear", cls=WorkbenchCommand)
def clear(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Traces, or folders to search, whose caches are removed too, even if another "
            "user wrote them.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Remove the caches of traces: those that your runs wrote, and those of the given paths. Remove
    what `gemmetry kernels check` keeps.

    The traces themselves stay. A cache is written again when its trace is next read.
    """
    from gemmetry.cli.console import print_facts
    from gemmetry.domain.errors import RequestError
    from gemmetry.formats.files import clear_user_cache
    from gemmetry.traces.cache import clear_cache

    hint = "Give the path of a trace, or of a folder."
    for path in paths or ():
        try:
            if not path.exists():
                raise RequestError(f"{path} does not exist", hint=hint)
        except OSError as error:
            what = f"{path} cannot be read: {error.strerror}"
            raise RequestError(what, hint=hint) from error
    count, size = map(sum, zip(clear_cache(paths or ()), clear_user_cache("kernels"), strict=True))
    if json:
        print_facts(caches=count, bytes=size)
        return
    typer.echo(f"removed {counted(count, 'cache')}, {size / 1e6:,.1f} MB")
