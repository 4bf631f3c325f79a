"""``gemmetry compare``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.options import ComparisonOutputs, Json


class Undecided(StrEnum):
    FAIL = "fail"
    PASS = "pass"


app = typer.Typer(add_completion=False)


@app.command(cls=WorkbenchCommand)
def compare(
    experiments: Annotated[
        list[Path],
        typer.Argument(
            metavar="A [B...]", help="Folders of experiments; the others are compared with A."
        ),
    ],
    json: Json = False,
    output: ComparisonOutputs = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Relative differences up to this are ignored: 5% or 0.05. Default: 2%; with "
            "--baseline 0.5% on a GPU.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With one experiment: compare its dispatches with those of this provider, or "
            "provider:configuration, for the same problem.",
        ),
    ] = None,
    across_distributions: Annotated[
        bool,
        typer.Option(
            "--across-distributions",
            help="Compare even if the inputs were drawn from different distributions.",
        ),
    ] = False,
    undecided: Annotated[
        Undecided,
        typer.Option(
            help="How an undecided dispatch, which was measured too little to know whether it "
            "became slower, affects the exit status.",
        ),
    ] = Undecided.FAIL,
) -> None:
    """Compare experiments dispatch by dispatch, or the dispatches of one experiment with a
    baseline, with intervals and verdicts.

    Exit status 1 if a dispatch of B (or C ...) became slower by more than the threshold, is no
    longer ok, or is undecided (unless --undecided pass). With a baseline the status is always 0.
    """
    from gemmetry.analysis.dispatches.comparison import compare as compare_all
    from gemmetry.analysis.dispatches.within import compare_with_baseline
    from gemmetry.cli.console import note, print_json, stdout_console
    from gemmetry.cli.tables import check_outputs
    from gemmetry.domain.errors import RequestError
    from gemmetry.domain.units import parse_share
    from gemmetry.reports.comparisons.report import (
        comparison_document,
        comparison_suffixes,
        print_comparison,
        write_comparison,
    )
    from gemmetry.store.experiment import Experiment

    check_outputs(output or (), comparison_suffixes())
    share = None if threshold is None else parse_share(threshold)
    if (len(experiments) < 2) == (baseline is None):
        raise RequestError(
            "a comparison needs two experiments, or one and a baseline",
            hint="Write gemmetry compare A B, or gemmetry compare A --baseline torch.",
        )
    opened = [Experiment.open(path) for path in experiments]
    try:
        results = [experiment.result_set() for experiment in opened]
        if baseline is not None:
            comparison = compare_with_baseline(results[0], baseline, threshold=share)
        else:
            comparison = compare_all(
                results, threshold=share, allow_different_inputs=across_distributions
            )
    finally:
        for experiment in opened:
            experiment.close()
    if json:
        print_json(comparison_document(comparison))
    else:
        print_comparison(comparison, stdout_console())
    fails = undecided is Undecided.FAIL and baseline is None
    for path in output or ():
        write_comparison(comparison, path, undecided_fails=fails)
        note(f"wrote {path}")
    has_failed = comparison.has_regression or (fails and comparison.has_undecided)
    raise typer.Exit(1 if has_failed else 0)
