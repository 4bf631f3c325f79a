"""``gemmetry merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.console import say
from gemmetry.cli.options import Json

app = typer.Typer(add_completion=False)


@app.command(cls=WorkbenchCommand)
def merge(
    experiments: Annotated[
        list[Path],
        typer.Argument(metavar="EXPERIMENT...", help="Folders of two or more experiments."),
    ],
    into: Annotated[
        Path,
        typer.Option(
            "--into",
            "-o",
            metavar="DIR",
            help="Folder to create; it must not contain an experiment yet.",
        ),
    ],
    json: Json = False,
) -> None:
    """Merge experiments into one folder; the newest record of each dispatch is kept."""
    from gemmetry.cli.console import command_line, print_facts
    from gemmetry.store.merge import merge as merge_experiments

    summary = merge_experiments(experiments, into, command=command_line())
    if json:
        print_facts(experiment=str(into), records=summary.kept, replaced=summary.replaced)
        return
    replaced = f", {summary.replaced} older replaced" if summary.replaced else ""
    say(f"{into}: {summary.kept} records{replaced}")
