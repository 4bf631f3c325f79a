"""``gemmetry trace``: the group of commands about traces.

``gemmetry trace summary``, ``gemms`` and ``shapes``.

``gemmetry trace collectives``.

``gemmetry trace record``.

``gemmetry trace report``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from gemmetry.cli.main import LazyGroup, group_app
from gemmetry.cli.options import Json, Outputs, runs_plan, split_outputs
from gemmetry.cli.run import Source, plan_request, read_request
from gemmetry.domain.settings import TraceSchedule

if TYPE_CHECKING:
    from gemmetry.dispatches.profile import Prepared
    from gemmetry.domain.errors import RequestError
    from gemmetry.traces.api import Summaries, Traces
    from gemmetry.traces.gemms import Workload


_THREADS = "OPENBLAS_NUM_THREADS"


class TraceGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    modules: ClassVar = {
        "record": "trace:record",
        "summary": "trace:summary",
        "gemms": "trace:gemms",
        "shapes": "trace:shapes",
        "collectives": "trace:collectives",
        "report": "trace:report",
    }

    @classmethod
    def load(cls, name: str) -> Any:
        if name != "record":
            _import_numpy_alone()
        return super().load(name)


app = group_app(TraceGroup, "Record and read traces.")


def _import_numpy_alone() -> None:
    """Import numpy without the threads that OpenBLAS starts at its import, which take as long as
    half of it: reading a trace multiplies no matrices."""
    if "numpy" in sys.modules:
        return
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        # Processes started from here must have the given variables.
        del os.environ[_THREADS]
        if before is not None:
            os.environ[_THREADS] = before


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
    from gemmetry.cli.console import check_outputs, write_outputs
    from gemmetry.traces.api import Traces

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
            from gemmetry.traces.rows import step_table, summary_table

            write_outputs(step_table(found.steps) if steps else summary_table(found.files), output)
    print_notes(traces.without_gpu_note(), found.no_steps_note() if steps else "")
    raise typer.Exit(finish(traces, timings))


def _print_summaries(found: Summaries) -> None:
    from gemmetry.cli.console import stdout_console
    from gemmetry.traces.text import print_summaries, print_summary

    console = stdout_console()
    if len(found.files) == 1:
        print_summary(found.files[0], console)
    else:
        print_summaries(found.files, console)
    if found.steps:
        from gemmetry.traces.text import print_steps

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
    from gemmetry.cli.console import check_outputs, write_outputs
    from gemmetry.traces.api import Traces
    from gemmetry.traces.rows import gemms_table

    if output:
        check_outputs(output)
    traces = Traces(files, use_cache=not no_cache)
    rows = traces.gemm_rows()
    table = gemms_table(rows)
    if json:
        _print_json(traces.document(table))
    else:
        from gemmetry.cli.console import stdout_console
        from gemmetry.traces.text import print_gemms

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
    from gemmetry.cli.console import check_outputs, write_outputs
    from gemmetry.traces.api import Traces
    from gemmetry.traces.gemms import no_shape, workload
    from gemmetry.traces.rows import shapes_table

    outputs = output or []
    specs = [path for path in outputs if path.suffix.lower() in _SPEC_SUFFIXES]
    tables = [path for path in outputs if path not in specs]
    if tables:
        check_outputs(tables)
    for path in specs:
        from gemmetry.results.emit import check_writable

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
        from gemmetry.traces.text import print_workload

        print_workload(load, stdout_console(), top=top)
    if specs and text:
        from gemmetry.cli.console import note
        from gemmetry.results.emit import write_atomically

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
    from gemmetry.traces.gemms import spec_text

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
    from gemmetry.cli.console import check_outputs, note, print_json, stdout_console
    from gemmetry.traces import rows as tables
    from gemmetry.traces.api import Traces

    check_outputs(output or ())
    traces = Traces(files, use_cache=not no_cache)
    jobs = traces.collectives()
    document = tables.collectives_document(jobs, traces.failures) if json or output else {}
    with traces.stage("output"):
        if json:
            print_json(document)
        else:
            from gemmetry.traces.collective_text import print_jobs

            print_jobs(jobs, stdout_console())
        for path in output or ():
            from gemmetry.results.emit import write_atomically, write_tables
            from gemmetry.results.json_text import json_file

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


_SCHEDULE = TraceSchedule()

DEFAULTS = {
    "name": "traces",
    "providers": "torch",
    "default_config": True,
    "shapes": "none",
    "dtypes": "none",
    "layouts": "all four",
    "verification_level": "quick",
    "warmup_iterations": _SCHEDULE.warmup_steps,
    "wait_steps": _SCHEDULE.wait_steps,
    "active_steps": _SCHEDULE.active_steps,
    "benchmark_repetitions": _SCHEDULE.repeats,
    "matrix_sizes": "512, 1024, 2048; on a CPU 64, 128, 256",
    "precisions": "fp32, fp16, bf16, int8",
    "batch_sizes": "1, 4, 16",
    "enable_size_search": True,
    "enable_precision_search": True,
    "enable_layout_search": True,
    "enable_batch_search": True,
    "enable_rectangular": False,
}
"""The defaults of ``api.trace_record.with_defaults`` in help, if no shapes, formats or layouts are
given."""


@partial(runs_plan, defaults=DEFAULTS)
def record(source: Source) -> Prepared:
    """Record Kineto and Chakra traces of a grid of matrix products with torch's profiler.

    Each configuration gets a folder in the experiment, such as traces_matmul/config_0001, with
    CPU_trace.json (Chakra) and one .pt.trace.json (Kineto) per repeat; traces_matmul/manifest.json
    lists them. Each of --benchmark-repetitions repeats waits for --wait-steps launches, warms up
    with --warmup-iterations and records --active-steps.

    Without options, the grid contains all its square sizes, precisions, layouts and batch sizes.
    The same command resumes an interrupted run; with more of these, or more repeats, and the same
    --experiment, the grid grows.
    """
    from gemmetry.dispatches.profile import recording, with_defaults

    return recording(plan_request(with_defaults(read_request(source)), source))


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
    from gemmetry.cli.console import command_line, note, print_facts
    from gemmetry.traces.api import Traces
    from gemmetry.traces.files import check_reports, write_report

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
