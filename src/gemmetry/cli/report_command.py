"""``gemmetry report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.completion import COMPLETERS
from gemmetry.cli.options import Baseline, Columns, Experiment, Json, Outputs
from gemmetry.specs.keys import KEYS

app = typer.Typer(add_completion=False)


@app.command(cls=WorkbenchCommand)
def report(
    experiment: Experiment,
    json: Json = False,
    output: Outputs = None,
    append: Annotated[bool, typer.Option("--append", help=KEYS["append"].text)] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the HTML report.")
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            autocompletion=COMPLETERS["format"],
            help=KEYS["format"].text,
        ),
    ] = "table",
    columns: Columns = None,
    baseline: Baseline = None,
) -> None:
    """Print or write the reports of an experiment; nothing runs and its folder does not change."""
    import dataclasses

    from gemmetry.api.profile import stored_baseline
    from gemmetry.cli.results import Rendering, check_rendering, columns_of, render
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.reports.dispatches.records import tag_names
    from gemmetry.store.experiment import Experiment as StoredExperiment

    formats = ("table", "block", "csv", "md", "none")
    if format not in formats:
        raise UnknownNameError("format", format, formats)
    rendering = Rendering(
        outputs=tuple(output or ()),
        append=append,
        columns=columns_of(columns, format),
        baseline=baseline,
        format=format,
        json=json,
        html=html,
    )
    check_rendering(rendering)
    with StoredExperiment.open(experiment) as stored:
        results = stored.result_set()
        check_rendering(rendering, tags=tag_names(results.records))
        if baseline is None:
            rendering = dataclasses.replace(rendering, baseline=stored_baseline(experiment))
        render(results, rendering)
