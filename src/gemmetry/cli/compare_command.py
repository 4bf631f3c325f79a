"""``gemmetry compare``."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.options import Json, Outputs

app = typer.Typer(add_completion=False)


@app.command(cls=WorkbenchCommand)
def compare(
    experiments: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B [C...]", help="Folders; A is what the others are held against."
        ),
    ],
    json: Json = False,
    output: Outputs = None,
    threshold: Annotated[
        float, typer.Option(help="A slowdown shown but smaller than this is no regression.", min=0)
    ] = 0.02,
    across_distributions: Annotated[
        bool,
        typer.Option(
            "--across-distributions",
            help="Compare although inputs were drawn from different distributions.",
        ),
    ] = False,
) -> None:
    """Compare experiments dispatch by dispatch, with intervals and a verdict.

    Exit status 1 if a dispatch of B (or C ...) became slower by more than the threshold, or is no
    longer ok.
    """
    from gemmetry.analysis.comparison import compare as compare_all
    from gemmetry.cli.console import note, stdout_console
    from gemmetry.cli.tables import check_outputs
    from gemmetry.domain.errors import RequestError
    from gemmetry.reports.compare import comparison_document, print_comparison, write_comparison
    from gemmetry.store.experiment import Experiment

    check_outputs(output or ())
    if len(experiments) < 2:
        raise RequestError("a comparison needs two experiments", hint="gemmetry compare A B")
    opened = [Experiment.open(path) for path in experiments]
    try:
        comparison = compare_all(
            [experiment.result_set() for experiment in opened],
            threshold=threshold,
            allow_different_inputs=across_distributions,
        )
    finally:
        for experiment in opened:
            experiment.close()
    if json:
        typer.echo(json_module.dumps(comparison_document(comparison), ensure_ascii=False))
    else:
        print_comparison(comparison, stdout_console())
    for path in output or ():
        write_comparison(comparison, path)
        note(f"wrote {path}")
    raise typer.Exit(1 if comparison.has_regression else 0)
