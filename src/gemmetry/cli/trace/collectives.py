"""``gemmetry trace collectives``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from gemmetry.cli.options import Json, Outputs
from gemmetry.cli.trace.tables import Files, NoCache, Timings, finish


class Rows(StrEnum):
    """What each row of a file describes."""

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
            help="What each row of the file describes: a matched collective, a kernel of a rank, a "
            "kind of collective, or a rank. A JSON file contains everything.",
        ),
    ] = Rows.MATCHED,
    no_cache: NoCache = False,
    timings: Timings = False,
) -> None:
    """Compare the collectives of all ranks: latency, skew, stragglers, bandwidth.

    Files are grouped by the job that they name, or by folder if they name none. Bandwidths are in
    10^9 bytes/s, as in nccl-tests. Exit status 1 if some of the files cannot be read.
    """
    from gemmetry.analysis.traces import collectives as tables
    from gemmetry.api.traces import Traces
    from gemmetry.cli.console import note, print_json, stdout_console
    from gemmetry.cli.tables import check_outputs

    check_outputs(output or ())
    traces = Traces(files, use_cache=not no_cache)
    jobs = traces.collectives()
    document = tables.collectives_document(jobs, traces.failures) if json or output else {}
    with traces.stage("output"):
        if json:
            print_json(document)
        else:
            from gemmetry.reports.traces.collective_text import print_jobs

            print_jobs(jobs, stdout_console())
        for path in output or ():
            from gemmetry.reports.tables.files import write_atomically
            from gemmetry.reports.tables.json import json_file
            from gemmetry.reports.tables.writing import write_tables

            makers = {
                Rows.MATCHED: tables.matched_table,
                Rows.KERNELS: tables.kernels_table,
                Rows.KINDS: tables.kinds_table,
                Rows.RANKS: tables.ranks_table,
            }
            if path.suffix.lower() == ".json":
                write_atomically(path, json_file(document))
            else:
                write_tables([makers[rows](jobs)], path)
            note(f"wrote {path}")
    raise typer.Exit(finish(traces, timings))
