"""``gemmetry counters compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.options import DrawingOutputs, Json


def compare(
    reports: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B...",
            help="Reports, as for gemmetry counters diagnose; the others are compared with A. Of "
            "one report: launches of one kernel with different grids.",
        ),
    ],
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME", help="Name of a report, once per report."),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="REGEX", help="Only kernels whose name contains it."),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="NAMES",
            help="Further concepts of gemmetry counters metrics, or ids of metrics; separated by "
            "commas.",
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Relative differences up to this are ignored: 5% or 0.05. Default: 1%.",
        ),
    ] = None,
    operation: Annotated[
        str | None,
        typer.Option(
            "--operation",
            metavar="NAME",
            help="What the GEMMs compute: matmul_4096x4096x4096_bf16t_bf16n_bf16t.",
        ),
    ] = None,
    json: Json = False,
    output: DrawingOutputs = None,
) -> None:
    """Compare the counters of kernels, and what the diagnosis says about them.

    Where a kernel was launched often enough, differences have a verdict from an interval; of a
    single launch they are undecided.
    """
    from gemmetry.analysis.counters.comparison import THRESHOLD
    from gemmetry.api.counters.comparison import compare as run
    from gemmetry.cli.console import note, print_json, stdout_console
    from gemmetry.cli.tables import check_outputs
    from gemmetry.domain.units import parse_share
    from gemmetry.reports.extras import PICTURES
    from gemmetry.reports.tables.writing import FORMATS

    check_outputs(output or (), (*FORMATS, *PICTURES), draws=True)
    wanted = [name.strip() for text in metrics or () for name in text.split(",") if name.strip()]
    found = run(
        *reports, labels=label or (), kernel=kernel, metrics=wanted, operation=operation,
        threshold=THRESHOLD if threshold is None else parse_share(threshold),
    )  # fmt: skip
    for problem in found.problems:
        note(f"warning: {problem}")
    if json:
        print_json(found.document())
    else:
        from gemmetry.reports.counters.comparison_text import hidden_kernels, print_comparison

        print_comparison(found.comparison, stdout_console())
        if hidden := hidden_kernels(found.comparison):
            note(f"{hidden} more kernels took less time; --kernel REGEX selects, --json has all")
    for path in output or ():
        found.write(path)
        note(f"wrote {path}")
