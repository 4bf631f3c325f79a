"""``gemmetry help``."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.options import Json

app = typer.Typer(add_completion=False)


@app.command("help", cls=WorkbenchCommand)
def help_(
    context: typer.Context,
    topic: Annotated[
        str,
        typer.Argument(metavar="[TOPIC]", help="A page, or a command. Default: all pages."),
    ] = "",
    json: Json = False,
) -> None:
    """Print a page of the documentation, or the list of all pages.

    The pages are those of the installed version. For the name of a command that has no page of its
    own it prints the command's --help.
    """
    from gemmetry.cli.tables import emit
    from gemmetry.domain.tables import Column, Table

    found = pages()
    if not topic:
        columns = (Column("topic"), Column("title"))
        rows = [[name, _title(path)] for name, path in found.items()]
        emit(Table("topics", columns, rows), as_json=json)
        return
    if topic in found:
        text = found[topic].read_text(encoding="utf-8")
    else:
        text = _help_of(context, topic, found)
    if json:
        from gemmetry.cli.console import print_json

        print_json({"topic": topic, "text": text})
    else:
        typer.echo(text.rstrip())


def _help_of(context: typer.Context, name: str, topics: Iterable[str]) -> str:
    """What the command `name` prints with ``--help``."""
    from gemmetry.domain.errors import UnknownNameError

    group = cast(Any, context.find_root().command)
    commands = group.list_commands(context)
    if name not in commands:
        known = (*topics, *commands)
        raise UnknownNameError("topic or command", name, known, where="gemmetry help")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        group.main(args=[name, "--help"], prog_name="gemmetry", standalone_mode=False)
    return shown.getvalue()


def pages() -> dict[str, Path]:
    """Topic -> its page: of an installed package next to its modules, else of the checkout."""
    import gemmetry

    package = Path(gemmetry.__file__).parent
    folder = package / "pages"
    if not folder.is_dir():
        folder = package.parents[1] / "docs"
    return {path.stem: path for path in sorted(folder.glob("*.md"))}


def _title(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("# ")), path.stem)
