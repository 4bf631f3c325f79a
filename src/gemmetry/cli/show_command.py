"""``gemmetry show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.options import Experiment, Json, Outputs

app = typer.Typer(add_completion=False)


@app.command(cls=WorkbenchCommand)
def show(
    experiment: Experiment,
    dispatch: Annotated[
        str,
        typer.Argument(
            metavar="DISPATCH",
            help="A dispatch's name, provider:name, a part of it, or a pattern.",
        ),
    ] = "*",
    json: Json = False,
    output: Outputs = None,
) -> None:
    """Show everything about one dispatch: verdict, samples, facts of its build, source, command."""
    import dataclasses

    from gemmetry.cli.console import stdout_console
    from gemmetry.cli.results import Rendering, check_rendering, render
    from gemmetry.reports.dispatches.show import matching_records, show_dispatch
    from gemmetry.store.experiment import Experiment as StoredExperiment

    outputs: tuple[Path, ...] = tuple(output or ())
    rendering = Rendering(outputs=outputs, json=json, format="none")
    check_rendering(rendering)
    with StoredExperiment.open(experiment) as stored:
        results = stored.result_set()
        if not json:
            show_dispatch(results, dispatch, stdout_console())
        chosen = matching_records(results.records, dispatch)
        render(dataclasses.replace(results, records=chosen), rendering)
