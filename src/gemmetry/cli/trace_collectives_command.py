"""``gemmetry trace collectives``; the group stands in trace_command.py."""

from __future__ import annotations

from enum import StrEnum
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmetry.cli.options import Json, Outputs
from gemmetry.cli.trace_tables_command import Files, NoCache, Timings

if TYPE_CHECKING:
    from gemmetry.traces.collectives.jobs import JobCollectives


class Rows(StrEnum):
    """What a row of a file is."""

    MATCHED = "matched"
    KERNELS = "kernels"
    KINDS = "kinds"
    RANKS = "ranks"


def collectives(
    files: Files,
    json: Json = False,
    output: Outputs = None,
    rows: Annotated[
        Rows,
        typer.Option(
            "--rows",
            help="What a row of the file is: a matched collective, a kernel of a rank, a kind of "
            "collective, or a rank. A json file contains everything.",
        ),
    ] = Rows.MATCHED,
    no_cache: NoCache = False,
    timings: Timings = False,
) -> None:
    """Collectives of all ranks side by side: latency, skew, stragglers, bandwidth.

    Files are grouped into jobs by the job that they name, else by folder. Bandwidths are in
    10^9 bytes/s as nccl-tests counts them. Exit status 1 if a file cannot be read and others can.
    """
    from gemmetry.cli.tables import check_outputs
    from gemmetry.cli.trace_tables_command import TraceRun
    from gemmetry.formats.naming import encodable
    from gemmetry.reports.traces.collective_tables import collectives_document
    from gemmetry.traces.collectives.jobs import analyse_jobs
    from gemmetry.traces.jobs import rank_trace

    check_outputs(output or ())
    run = TraceRun(files, use_cache=not no_cache, wants_timings=timings)
    ranks = []
    for trace in run.traces():
        with run.stage("kernels"):
            ranks.append(rank_trace(trace))
    run.check_any()
    with run.stage("matching"):
        jobs = analyse_jobs(ranks)
    failed = {file: error.message for file, error in run.errors.items()}
    with run.stage("output"):
        if json:
            document = collectives_document(jobs, failed)
            typer.echo(encodable(dumps(document, allow_nan=False, ensure_ascii=False)))
        else:
            from gemmetry.cli.console import stdout_console
            from gemmetry.reports.traces.collective_text import print_jobs

            print_jobs(jobs, stdout_console())
        for path in output or ():
            _write(jobs, failed, rows, path)
    raise typer.Exit(run.finish())


def _write(jobs: list[JobCollectives], failed: dict[str, str], kind: Rows, path: Path) -> None:
    from gemmetry.cli.console import note
    from gemmetry.reports.tables.rows import write_rows
    from gemmetry.reports.traces import collective_tables as tables
    from gemmetry.reports.traces.columns import COLUMNS

    makers = {
        Rows.MATCHED: tables.matched_rows,
        Rows.KERNELS: tables.kernel_rows,
        Rows.KINDS: tables.kind_rows,
        Rows.RANKS: tables.rank_rows,
    }
    document = tables.collectives_document(jobs, failed)
    name = f"collectives_{kind}"
    write_rows(name, makers[kind](jobs), path, columns=COLUMNS[name], document=document)
    note(f"wrote {path}")
