"""``gemmetry kernels ladder``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmetry.cli.options import Fresh, Json, Outputs

if TYPE_CHECKING:
    from gemmetry.analysis.dispatches.ladder import Ladder
    from gemmetry.api.kernels.ladder import LadderRun


def ladder(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[EXPERIMENT]",
            help="A folder with results, which are shown; nothing runs. Default: run the ladder.",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            metavar="SIZES",
            help="M = N = K. Rungs 0 to 2 run up to 512, those from 2 on above. "
            "Default: 256,2048,4096,8192.",
        ),
    ] = None,
    rungs: Annotated[
        str | None,
        typer.Option("--rungs", metavar="NUMBERS", help="Only these: 2,5-11. Default: all."),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="NAME", help="Format of A, B and C: bf16 or f16.")
    ] = "bf16",
    configurations: Annotated[
        int,
        typer.Option("--configurations", help="How many of each rung, the best by plan.", min=1),
    ] = 2,
    regime: Annotated[
        str,
        typer.Option("--regime", metavar="NAME", help="Thermal regime: burst or sustained."),
    ] = "burst",
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="DEVICE", help="cuda:1. Default: the first Hopper GPU."),
    ] = None,
    experiment: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder. Default: gemmetry-out/ladder-<hash of plan>."),
    ] = None,
    json: Json = False,
    output: Outputs = None,
    fresh: Fresh = False,
) -> None:
    """Verify and measure every rung of the ladder, interleaved with cuBLAS, and show its gain.

    A rung is compared with the one before only on sizes that both ran. All intervals hold together.
    The gains that were planned for each phase are shown next to what was measured. Files: tables
    (csv, json, parquet, xlsx, md, html) or a picture (png, svg).
    """
    from gemmetry.api.kernels.ladder import SIZES, ladder_of, parse_rungs, prepare_ladder
    from gemmetry.cli.console import note, print_json, stdout_console
    from gemmetry.cli.tables import check_outputs
    from gemmetry.reports.kernels.ladder_picture import SUFFIXES
    from gemmetry.reports.kernels.ladder_tables import ladder_tables
    from gemmetry.reports.kernels.ladder_text import print_ladder
    from gemmetry.reports.tables.writing import FORMATS, tables_document
    from gemmetry.specs.operations.ranges import parse_sizes
    from gemmetry.store.experiment import Experiment

    check_outputs(output or (), (*FORMATS, *SUFFIXES))
    status = 0
    if folder is None:
        prepared = prepare_ladder(
            sizes=parse_sizes(sizes) if sizes else SIZES,
            dtype=dtype,
            rungs=parse_rungs(rungs) if rungs else None,
            configurations=configurations,
            device=device,
            regime=regime,
            experiment=experiment,
        )
        folder, status = prepared.experiment, _run(prepared, fresh=fresh)
    with Experiment.open(folder) as stored:
        found = ladder_of(stored.result_set())
        if json:
            print_json(tables_document(ladder_tables(found)))
        else:
            print_ladder(found, stdout_console())
        for path in output or ():
            _write(found, path)
            note(f"wrote {path}")
    raise typer.Exit(status)


def _run(prepared: LadderRun, *, fresh: bool) -> int:
    """Run the ladder; the exit status."""
    from gemmetry.api.kernels.ladder import run_ladder
    from gemmetry.cli.console import command_line, note, stderr_console
    from gemmetry.cli.run import print_failure, reporting_what_is_kept
    from gemmetry.reports.progress import ProgressListener

    progress = ProgressListener(stderr_console())
    with reporting_what_is_kept(prepared.experiment, fresh=fresh), progress as listener:
        summary = run_ladder(prepared, listener=listener, fresh=fresh, command=command_line())
    note(f"experiment: {prepared.experiment}")
    if summary.failure:
        print_failure(summary)
    return summary.exit_status


def _write(found: Ladder, path: Path) -> None:
    """Write the tables or the picture; a file for one table holds the rungs."""
    from gemmetry.reports.kernels.ladder_picture import SUFFIXES, ladder_picture
    from gemmetry.reports.kernels.ladder_tables import ladder_tables
    from gemmetry.reports.tables.files import write_atomically
    from gemmetry.reports.tables.writing import write_tables

    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        write_atomically(path, ladder_picture(found, suffix.removeprefix(".")))
        return
    tables = ladder_tables(found)
    write_tables(tables[:1] if suffix in (".csv", ".parquet") else tables, path)
