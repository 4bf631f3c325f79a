"""``gemmetry sweep compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.compare_command import Undecided
from gemmetry.cli.options import Json, split_outputs
from gemmetry.cli.sweep.analyze import OLD_PANEL


def compare(
    sweeps: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="A B [C...]",
            help="Folders of sweeps, or their analysis.json; the others are compared with A.",
        ),
    ] = None,
    json: Json = False,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            callback=split_outputs,
            help="Write a file: .html is one page that works offline, .json the document, and "
            ".csv, .xlsx, .parquet and .md have the compared figures.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="NAME", help="Name of a sweep, once per sweep. Default: A, B, C ..."
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Relative differences up to this are ignored: 5% or 0.05. Default: 1%.",
        ),
    ] = None,
    undecided: Annotated[
        Undecided,
        typer.Option(
            help="Whether a point whose step is undecided, because too few runs were recorded, "
            "makes the exit status 1.",
        ),
    ] = Undecided.FAIL,
    sweep1: Annotated[
        Path | None,
        typer.Option("--sweep1", metavar="DIR", rich_help_panel=OLD_PANEL, help="A."),
    ] = None,
    sweep2: Annotated[
        Path | None,
        typer.Option("--sweep2", metavar="DIR", rich_help_panel=OLD_PANEL, help="B."),
    ] = None,
    label1: Annotated[
        str | None,
        typer.Option("--label1", metavar="NAME", rich_help_panel=OLD_PANEL, help="Label of A."),
    ] = None,
    label2: Annotated[
        str | None,
        typer.Option("--label2", metavar="NAME", rich_help_panel=OLD_PANEL, help="Label of B."),
    ] = None,
) -> None:
    """Compare sweeps of training runs: each point, GEMM and collective that both have.

    Runs are the observations: without repeats of the points (sweep run --repeats 3) a change of one
    point is undecided. Sweeps that are not analysed yet are analysed first.

    Exit status 1 if anything of B (or C ...) is shown to be slower, a point fails that ran in A, or
    the step of a point is undecided (unless --undecided pass).
    """
    from gemmetry.api import sweeps as api
    from gemmetry.cli.console import note, print_json, stderr_console, stdout_console
    from gemmetry.cli.tables import check_outputs
    from gemmetry.domain.units import parse_share
    from gemmetry.reports.progress import CountProgress

    check_outputs(output or (), draws=True)
    with CountProgress("read", stderr_console()) as progress:
        found = api.compare(
            *(one for one in (sweep1, sweep2, *(sweeps or ())) if one is not None),
            labels=_labels(label or [], label1, label2),
            threshold=None if threshold is None else parse_share(threshold),
            progress=progress,
        )
    if json:
        print_json(found.document())
    else:
        from gemmetry.reports.sweeps.text import print_sweep_comparison

        print_sweep_comparison(found.comparison, stdout_console())
    for path in output or ():
        found.write(path)
        note(f"wrote {path}")
    comparison = found.comparison
    is_unsure = undecided is Undecided.FAIL and comparison.has_undecided
    raise typer.Exit(1 if comparison.has_regression or is_unsure else 0)


def _labels(labels: list[str], first: str | None, second: str | None) -> list[str]:
    """The labels in the order of the sweeps; A and B where only one old option is given."""
    if first is None and second is None:
        return labels
    return [first or "A", second or "B", *labels]
