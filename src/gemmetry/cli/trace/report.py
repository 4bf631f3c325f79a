"""``gemmetry trace report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.options import Json, split_outputs
from gemmetry.cli.trace.tables import Files, NoCache, Timings, finish, print_notes


def report(
    files: Files,
    output: Annotated[
        list[Path],
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            callback=split_outputs,
            help="Write a file; the suffix picks xlsx, html, json, md. A name without a suffix "
            "is a folder with one CSV file per sheet. May be given several times.",
        ),
    ],
    short_kernel_us: Annotated[
        float,
        typer.Option(
            "--short-kernel-us",
            min=0,
            help="List kernels shorter than this in the sheets of short kernels.",
        ),
    ] = 10.0,
    no_cache: NoCache = False,
    timings: Timings = False,
    json: Json = False,
) -> None:
    """Write a report of traces: a workbook with TraceLens' sheets and gemmetry's own, or a page
    with a timeline.

    With several files, sheets of single traces get a column that names the file, and the ranks of
    a job are combined. Exit status 1 if some of the files cannot be read.
    """
    from gemmetry.api.traces import Traces
    from gemmetry.cli.console import command_line, note, print_facts
    from gemmetry.reports.traces.writers import check_reports, write_report

    check_reports(output)
    traces = Traces(files, use_cache=not no_cache)
    with_lanes = any(path.suffix.lower() == ".html" for path in output)
    found = traces.report(short_kernel_us=short_kernel_us, with_lanes=with_lanes)
    with traces.stage("write"):
        for path in output:
            write_report(found, path, command=command_line())
            note(f"wrote {path}")
    for warning in (*found.file_warnings, *found.job_warnings):
        note(f"warning: {warning}")
    print_notes(*found.remarks)
    if json:
        print_facts(
            files=list(map(str, output)),
            warnings=[*found.file_warnings, *found.job_warnings],
            remarks=list(found.remarks),
        )
    raise typer.Exit(finish(traces, timings, warn=False))
