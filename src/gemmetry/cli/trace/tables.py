"""``gemmetry trace summary``, ``gemms`` and ``shapes``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmetry.cli.options import Json, Outputs, split_outputs

if TYPE_CHECKING:
    from gemmetry.api.traces import Summaries, Traces
    from gemmetry.domain.errors import RequestError
    from gemmetry.traces.gemms.shapes import Workload

_FILES = "Traces: Kineto (plain, gz, zst) or rocprofv3 (JSON, CSV, rocpd); folders are searched."


def _files(help: str) -> Any:
    # One that cannot be read is reported, and the others are done.
    return typer.Argument(metavar="FILE...", readable=False, help=help)


Files = Annotated[list[Path], _files(_FILES)]
FilesOrWorkbooks = Annotated[list[Path], _files(f"{_FILES} Also reports of TraceLens (xlsx).")]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Read the files again, and write no caches next to them.")
]
Timings = Annotated[
    bool, typer.Option("--timings", help="Report on stderr how long each stage took.")
]
Top = Annotated[int, typer.Option("--top", min=0, help="Show at most this many rows; 0: all.")]

_SPEC_SUFFIXES = (".yaml", ".yml")


def summary(
    files: FilesOrWorkbooks,
    json: Json = False,
    output: Outputs = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Also show each step that the profiler marked.")
    ] = False,
    no_cache: NoCache = False,
    timings: Timings = False,
) -> None:
    """Show what the GPU did: computing, communication, copying, idle time, and its GEMM kernels.

    Times are exact, in nanoseconds. Exit status 1 if some of the files cannot be read.
    """
    from gemmetry.api.traces import Traces
    from gemmetry.cli.tables import check_outputs, write_outputs

    if output:
        check_outputs(output)
    traces = Traces(files, use_cache=not no_cache)
    found = traces.summaries(steps=steps)
    with traces.stage("output"):
        if json:
            from gemmetry.traces.summary import summary_document

            of_steps = found.steps if steps else None
            _print_json(
                summary_document(
                    found.files, errors=traces.failures, steps=of_steps, outside=found.outside
                )
            )
        else:
            _print_summaries(found)
        if output:
            from gemmetry.analysis.traces.tables import step_table, summary_table

            write_outputs(step_table(found.steps) if steps else summary_table(found.files), output)
    print_notes(traces.without_gpu_note(), found.no_steps_note() if steps else "")
    raise typer.Exit(finish(traces, timings))


def _print_summaries(found: Summaries) -> None:
    from gemmetry.cli.console import stdout_console
    from gemmetry.reports.traces.tables import print_summaries, print_summary

    console = stdout_console()
    if len(found.files) == 1:
        print_summary(found.files[0], console)
    else:
        print_summaries(found.files, console)
    if found.steps:
        from gemmetry.reports.traces.steps import print_steps

        print_steps(found.files, found.steps, found.outside, console)


def gemms(
    files: FilesOrWorkbooks,
    json: Json = False,
    output: Outputs = None,
    top: Top = 20,
    no_cache: NoCache = False,
    timings: Timings = False,
) -> None:
    """List GEMM kernels by kernel and shape, with counts, times, TFLOP/s and share of the peak.

    All files are combined. --top limits the terminal's table only; files and --json contain every
    row.
    """
    from gemmetry.analysis.traces.tables import gemms_table
    from gemmetry.api.traces import Traces
    from gemmetry.cli.tables import check_outputs, write_outputs

    if output:
        check_outputs(output)
    traces = Traces(files, use_cache=not no_cache)
    rows = traces.gemm_rows()
    table = gemms_table(rows)
    if json:
        _print_json(traces.document(table))
    else:
        from gemmetry.cli.console import stdout_console
        from gemmetry.reports.traces.tables import print_gemms

        print_gemms(rows, stdout_console(), top=top)
    write_outputs(table, output or ())
    print_notes(traces.convolutions_note(), traces.without_gpu_note())
    raise typer.Exit(finish(traces, timings))


def shapes(
    files: FilesOrWorkbooks,
    json: Json = False,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            callback=split_outputs,
            help="Write a file: a spec for gemmetry profile (yaml), or a table (csv, json, "
            "parquet, xlsx, md, html).",
        ),
    ] = None,
    spec: Annotated[
        bool, typer.Option("--spec", help="Print the spec on stdout instead of the table.")
    ] = False,
    top: Annotated[
        int,
        typer.Option("--top", min=0, help="At most this many GEMMs, the longest first; 0: all."),
    ] = 0,
    no_cache: NoCache = False,
    timings: Timings = False,
) -> None:
    """List the distinct GEMMs of a workload with calls and time, as a table or a spec file."""
    from gemmetry.analysis.traces.tables import shapes_table
    from gemmetry.api.traces import Traces
    from gemmetry.cli.tables import check_outputs, write_outputs
    from gemmetry.traces.gemms.shapes import no_shape, workload

    outputs = output or []
    specs = [path for path in outputs if path.suffix.lower() in _SPEC_SUFFIXES]
    tables = [path for path in outputs if path not in specs]
    if tables:
        check_outputs(tables)
    for path in specs:
        from gemmetry.reports.tables.files import check_writable

        check_writable(path)
    traces = Traces(files, use_cache=not no_cache)
    rows = traces.gemm_rows(or_products=True)
    instead = "these are the products that the operators recorded, with times on the host"
    print_notes(traces.without_gpu_note(instead if rows else ""))
    load = workload(rows)
    failure = no_shape(traces.names, load) if tables and not load.gemms else None
    text = ""
    if spec or specs:
        text, failure = _spec(load, traces.names, top)
    if json:
        _print_json(traces.document(shapes_table(load)))
    elif spec:
        typer.echo(text, nl=False)
    else:
        from gemmetry.cli.console import stdout_console
        from gemmetry.reports.traces.tables import print_workload

        print_workload(load, stdout_console(), top=top)
    if specs and text:
        from gemmetry.cli.console import note
        from gemmetry.reports.tables.files import write_atomically

        for path in specs:
            write_atomically(path, text.encode())
            note(f"wrote {path}; run it with: gemmetry profile --spec {path}")
    if load.gemms:
        write_outputs(shapes_table(load), tables)
    status = finish(traces, timings)
    if failure:
        raise failure
    raise typer.Exit(status)


def _spec(load: Workload, names: Sequence[str], top: int) -> tuple[str, RequestError | None]:
    """The text of the spec; "" and the error where no GEMM can be in it."""
    from gemmetry.domain.errors import RequestError
    from gemmetry.traces.gemms.shapes import spec_text

    try:
        return spec_text(load, names, top=top), None
    except RequestError as error:
        return "", error


def print_notes(*texts: str) -> None:
    """Print those that are not empty on stderr."""
    from gemmetry.cli.console import note

    for text in filter(None, texts):
        note(f"note: {text}")


def finish(traces: Traces, wants_timings: bool, *, warn: bool = True) -> int:
    """Report what could not be read and, unless that is done, what is missing; the exit status."""
    from gemmetry.cli.console import note
    from gemmetry.cli.main import print_error

    for warning in traces.warnings if warn else ():
        note(f"warning: {warning}")
    for error in traces.errors.values():
        print_error(error)
    if wants_timings:
        for name, seconds in traces.times.items():
            typer.echo(f"{name:>10} {seconds:8.3f} s", err=True)
    return 1 if traces.errors else 0


def _print_json(document: Mapping[str, Any]) -> None:
    """Times are Decimals with three places, and stay so."""
    from gemmetry.cli.console import print_json

    print_json(document, indent=-1)
