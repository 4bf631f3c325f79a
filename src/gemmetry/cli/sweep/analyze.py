"""``gemmetry sweep analyze``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmetry.cli.options import Json

if TYPE_CHECKING:
    from gemmetry.reports.sweeps.products import WrittenProducts

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
        int,
        typer.Option("--top-k", min=1, help="GEMMs that the tables list of each rank and point."),
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
            help="Where the files are written: a folder below DIR, or a path. Default: the one "
            "that is named, tracelens_analysis if DIR has it, else analysis.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Write only these files: variance, timestamps, overlap, plots, "
            "timeline, collectives.",
        ),
    ] = None,
    geo_mean: Annotated[
        bool,
        typer.Option(
            "--geo-mean",
            help="Use geometric means over ranks in the workbook of timelines; a time of 0 makes "
            "the mean 0.",
        ),
    ] = False,
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
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            metavar="DIR",
            rich_help_panel=OLD_PANEL,
            help="Where the plots are written. Default: plots, next to the other files.",
        ),
    ] = None,
) -> None:
    """Analyse a sweep of training runs: what communication costs, and which point is best.

    Reads each trace once, in parallel. For every GEMM, instances next to a collective are compared
    with instances alone: slowdown, interval, cost per step. The time of a step is split into
    compute, slowed compute, exposed communication and idle time. Every figure is written to
    analysis.json, next to tables, plots and workbooks. A sweep of which only TraceLens' workbooks
    are left gives the tables and plots that follow from them. Exit status 1 if some of the traces
    cannot be read.
    """
    from gemmetry.api import sweeps
    from gemmetry.cli.console import note, print_json, stderr_console, stdout_console
    from gemmetry.cli.sweep.arguments import parse_numbers, parse_steps, sweep_folders
    from gemmetry.reports.progress import CountProgress

    olds = base_path, sweep_dir, tracelens_path, input_csv, csv_path
    place, into = sweep_folders(folder, olds)
    steps = parse_steps(only)
    selected: dict[str, Any] = {
        "threads": parse_numbers(threads, "--threads"),
        "channels": parse_numbers(channels, "--channels"),
        "ranks": parse_numbers(ranks, "--ranks"),
        # Joined with the sweep's folder, of which an absolute path is independent.
        "analysis_dir": analysis_dir or (str(into.absolute()) if into is not None else None),
    }
    products: dict[str, Any] = {"top_k": top_k, "geometric": geo_mean, "plots": output_dir}
    workbooks = None if json else sweeps.read_workbooks(place, **selected)
    if workbooks is not None:
        note(f"{place} has no traces; its files are made from the workbooks in {workbooks.folder}")
        written = workbooks.write(steps, **products)
        _report(written, workbooks.folder, written.problems)
        raise typer.Exit(1 if workbooks.sweep.problems else 0)
    with CountProgress("read", stderr_console()) as progress:
        found = sweeps.analyze(
            place, **selected, check_writable=True, workbooks=not steps, progress=progress
        )
    if json:
        print_json(found.document())
    elif not steps:
        from gemmetry.reports.sweeps.counters import print_rocprof
        from gemmetry.reports.sweeps.text import print_sweep

        print_sweep(found.document(), stdout_console(), top=top_k)
        print_rocprof(found.analysis, stdout_console(), top=top_k)
    written = found.write(steps, **products)
    _report(written, found.folder, [*found.problems, *written.problems])
    raise typer.Exit(0 if found.is_complete else 1)


def _report(written: WrittenProducts, folder: Path, problems: Iterable[str]) -> None:
    """List the files in the folder itself, count those below it, and state the problems."""
    from gemmetry.cli.console import note

    below: dict[str, int] = {}
    for path in written.paths:
        if path.parent == folder:
            note(f"wrote {path}")
        else:
            name = f"{path.parent.name}/*{path.suffix}"
            below[name] = below.get(name, 0) + 1
    if below:
        counts = ", ".join(f"{name} ({count})" for name, count in below.items())
        note(f"wrote below {folder}: {counts}")
    for problem in problems:
        note(f"warning: {problem}")
