"""``gemmetry help``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.options import Json

app = typer.Typer(add_completion=False)


@app.command("help", cls=WorkbenchCommand)
def help_(
    topic: Annotated[
        str, typer.Argument(metavar="[TOPIC]", help="A page. Default: the list of all.")
    ] = "",
    json: Json = False,
) -> None:
    """Print a page of the documentation, or the list of all pages.

    The pages are those of the installed version. The options of a command are in its --help.
    """
    from gemmetry.cli.tables import emit
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.domain.tables import Column, Table

    found = pages()
    if not topic:
        columns = (Column("topic"), Column("title"))
        rows = [[name, _title(path)] for name, path in found.items()]
        emit(Table("topics", columns, rows), as_json=json)
        return
    if topic not in found:
        raise UnknownNameError("topic", topic, found, where="gemmetry help")
    text = found[topic].read_text(encoding="utf-8")
    if json:
        from gemmetry.cli.console import print_json

        print_json({"topic": topic, "text": text})
    else:
        typer.echo(text.rstrip())


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
