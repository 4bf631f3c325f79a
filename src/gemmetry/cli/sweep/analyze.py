"""``gemmetry sweep analyze``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.options import Json

OLD_PANEL = "Names of the sweep in the old scripts"


def analyze(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="The sweep: <T>thread/nccl_<C>channels/torch_profiler/ below it hold a trace per "
            "rank.",
        ),
    ] = None,
    json: Json = False,
    top_k: Annotated[
        int, typer.Option("--top-k", min=1, help="List this many GEMMs of each kind.")
    ] = 5,
    threads: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these numbers of threads: 256,512.")
    ] = None,
    channels: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these numbers of channels: 28,42.")
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only the traces of these ranks: 0,1.")
    ] = None,
    analysis_dir: Annotated[
        str | None,
        typer.Option(
            "--analysis-dir",
            metavar="NAME",
            help="Folder below DIR, or a path, for the files that are written. Default: "
            "tracelens_analysis if DIR has it, else analysis.",
        ),
    ] = None,
    base_path: Annotated[
        Path | None,
        typer.Option(
            "--base-path",
            metavar="DIR",
            rich_help_panel=OLD_PANEL,
            help="The sweep, or its tracelens_analysis.",
        ),
    ] = None,
    sweep_dir: Annotated[
        Path | None,
        typer.Option("--sweep-dir", metavar="DIR", rich_help_panel=OLD_PANEL, help="The sweep."),
    ] = None,
    tracelens_path: Annotated[
        Path | None,
        typer.Option(
            "--tracelens-path",
            metavar="DIR",
            rich_help_panel=OLD_PANEL,
            help="Its tracelens_analysis.",
        ),
    ] = None,
    input_csv: Annotated[
        Path | None,
        typer.Option(
            "--input-csv",
            metavar="FILE",
            rich_help_panel=OLD_PANEL,
            help="A file in its tracelens_analysis.",
        ),
    ] = None,
    csv_path: Annotated[
        Path | None,
        typer.Option(
            "--csv-path",
            metavar="FILE",
            rich_help_panel=OLD_PANEL,
            help="A file in its tracelens_analysis.",
        ),
    ] = None,
) -> None:
    """Analyse a sweep of training runs: what communication costs, and which point is best.

    Reads each trace once, in parallel. For every GEMM, instances next to a collective are compared
    with instances alone: slowdown, interval, cost per step. The time of a step is split into
    compute, slowed compute, exposed communication and idle time. Every figure is written to
    analysis.json. Exit status 1 if some of the traces cannot be read.
    """
    from gemmetry.api import sweeps
    from gemmetry.cli.console import note, print_json, stdout_console
    from gemmetry.cli.sweep.arguments import parse_numbers, sweep_folder

    others = (base_path, sweep_dir, tracelens_path, input_csv, csv_path)
    found = sweeps.analyze(
        sweep_folder(folder, others),
        threads=parse_numbers(threads, "--threads"),
        channels=parse_numbers(channels, "--channels"),
        ranks=parse_numbers(ranks, "--ranks"),
        analysis_dir=analysis_dir,
        check_writable=True,
    )
    if json:
        print_json(found.document())
    else:
        from gemmetry.reports.sweeps.text import print_sweep

        print_sweep(found.analysis, stdout_console(), top=top_k)
    for path in found.write():
        note(f"wrote {path}")
    for problem in found.problems:
        note(f"warning: {problem}")
    raise typer.Exit(0 if found.is_complete else 1)
