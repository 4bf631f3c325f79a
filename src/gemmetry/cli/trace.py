"""``gemmetry trace``: the group of commands about traces."""

from __future__ import annotations

import importlib
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from gemmetry.cli.console import (
    Source,
    check_outputs,
    command_line,
    note,
    notes,
    plan_request,
    print_facts,
    print_json,
    read_request,
    stdout_console,
    write_outputs,
)
from gemmetry.cli.main import group_app, named, print_error
from gemmetry.cli.options import (
    Brief,
    Planned,
    Printed,
    Written,
    argument,
    option,
    output_files,
    request,
)
from gemmetry.domain.errors import RequestError
from gemmetry.domain.settings import RECORDED

if TYPE_CHECKING:
    from types import ModuleType

    from gemmetry.traces.api import Summaries, Traces


_THREADS = "OPENBLAS_NUM_THREADS"


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


class Reads(Printed):
    """The options of a command that reads traces."""

    # One that cannot be read is reported, and the others are done.
    files: list[Path] = argument(_FILES, "FILE...", readable=False)
    no_cache: bool = option("Read the files again, and write no caches next to them.")
    timings: bool = option("Report on stderr how long each stage took.")

    def traces(self) -> Traces:
        """Traces, not yet read, and workbooks where these are allowed."""
        _import_numpy_alone()
        from gemmetry.traces.api import Traces

        return Traces(self.files, use_cache=not self.no_cache, workbooks=self.workbooks)

    workbooks: ClassVar[Any] = None


class ReadsWorkbooks(Reads):
    """The options of a command that also reads what remains of traces."""

    files: list[Path] = argument(
        f"{_FILES} Also reports of TraceLens (xlsx).", "FILE...", readable=False
    )

    @staticmethod
    def workbooks() -> ModuleType:
        """Module that reads the reports."""
        from gemmetry.documents import tracelens_workbooks

        return tracelens_workbooks


_SPEC_SUFFIXES = (".yaml", ".yml")


class Summary(ReadsWorkbooks, Written):
    steps: bool = option("Also show each step that the profiler marked.")


def summary(options: Summary) -> int:
    """Show what the GPU did: computing, communication, copying, idle time, and its GEMM kernels.

    Times are exact, in nanoseconds. Exit status 1 if some of the files cannot be read.
    """
    options.check()
    traces, steps = options.traces(), options.steps
    found = traces.summaries(steps=steps)
    with traces.stage("output"):
        if options.json:
            print_json(traces.result(found.rows(steps=steps)).document(), indent=-1)
        else:
            _print_summaries(found)
        if options.output:
            from gemmetry.results.emit import of_table
            from gemmetry.traces.report import step_table, summary_table

            table = step_table(found.steps) if steps else summary_table(found.files)
            write_outputs(of_table(table), options.output)
    notes([traces.without_gpu_note(), found.no_steps_note() if steps else ""])
    return finish(traces, options.timings)


def _print_summaries(found: Summaries) -> None:
    from gemmetry.traces.text import print_steps, print_summaries, print_summary

    console = stdout_console()
    if len(found.files) == 1:
        print_summary(found.files[0], console)
    else:
        print_summaries(found.files, console)
    print_steps(found.files, found.steps, found.outside, console)


class Gemms(ReadsWorkbooks, Written):
    top: int = option("Show at most this many rows; 0: all.", min=0, default=20)


def gemms(options: Gemms) -> int:
    """List GEMM kernels by kernel and shape, with counts, times, TFLOP/s and share of the peak.

    All files are combined. --top limits the terminal's table only; files and --json contain every
    row.
    """
    options.check()
    traces = options.traces()
    rows = traces.gemm_rows()
    from gemmetry.domain.rows import Rows
    from gemmetry.results.emit import of_table
    from gemmetry.traces.gemms import GemmRow, with_shares
    from gemmetry.traces.report import gemms_table

    table = gemms_table(rows)
    if options.json:
        print_json(traces.result({"gemms": Rows(GemmRow, with_shares(rows))}).document(), indent=-1)
    else:
        from gemmetry.traces.text import print_gemms

        print_gemms(rows, stdout_console(), top=options.top)
    write_outputs(of_table(table), options.output)
    notes([traces.convolutions_note(), traces.without_gpu_note()])
    return finish(traces, options.timings)


class Shapes(ReadsWorkbooks, Written):
    output: list[Path] = output_files(
        "Write a file: a spec for gemmetry profile (yaml), or a table (csv, json, parquet, xlsx, "
        "md, html)."
    )
    spec: bool = option("Print the spec on stdout instead of the table.")
    top: int = option("At most this many GEMMs, the longest first; 0: all.", min=0, default=0)


def shapes(options: Shapes) -> int:
    """List the distinct GEMMs of a workload with calls and time, as a table or a spec file."""
    specs = [path for path in options.output if path.suffix.lower() in _SPEC_SUFFIXES]
    tables = [path for path in options.output if path not in specs]
    check_outputs(tables)
    for path in specs:
        from gemmetry.results.emit import check_writable

        check_writable(path)
    traces = options.traces()
    rows = traces.gemm_rows(or_products=True)
    from gemmetry.domain.rows import Rows
    from gemmetry.results.emit import of_table, write_atomically
    from gemmetry.traces.gemms import WorkloadGemm, no_shape, spec_text, workload
    from gemmetry.traces.report import shapes_table

    instead = "these are the products that the operators recorded, with times on the host"
    notes([traces.without_gpu_note(instead if rows else "")])
    load = workload(rows)
    failure = no_shape(traces.names, load) if tables and not load.gemms else None
    text = ""
    if options.spec or specs:
        try:
            text, failure = spec_text(load, traces.names, top=options.top), None
        except RequestError as error:
            failure = error
    if options.json:
        print_json(traces.result({"shapes": Rows(WorkloadGemm, load.gemms)}).document(), indent=-1)
    elif options.spec:
        typer.echo(text, nl=False)
    else:
        from gemmetry.traces.text import print_workload

        print_workload(load, stdout_console(), top=options.top)
    for path in specs if text else ():
        write_atomically(path, text.encode())
        note(f"wrote {path}; run it with: gemmetry profile --spec {path}")
    if load.gemms:
        write_outputs(of_table(shapes_table(load)), tables)
    status = finish(traces, options.timings)
    if failure:
        raise failure
    return status


def finish(traces: Traces, wants_timings: bool, *, warn: bool = True) -> int:
    """Report errors, then warnings or timings if wanted; return the exit status."""
    notes(traces.warnings if warn else (), "warning")
    for error in traces.errors.values():
        print_error(error)
    if wants_timings:
        for name, seconds in traces.times.items():
            typer.echo(f"{name:>10} {seconds:8.3f} s", err=True)
    return 1 if traces.errors else 0


class Rows(StrEnum):
    """Subject of each row of a file."""

    MATCHED = "matched"
    KERNELS = "kernels"
    KINDS = "kinds"
    RANKS = "ranks"


class Collectives(Reads, Written):
    rows: Rows = option(
        "What each row of the file describes: a matched collective, a kernel of a rank, a kind of "
        "collective, or a rank. A JSON file contains everything.",
        default=Rows.MATCHED,
    )


def collectives(options: Collectives) -> int:
    """Compare the collectives of all ranks: latency, skew, stragglers, bandwidth.

    Files are grouped by the job that they name, or by folder if they name none. Bandwidths are in
    10^9 bytes/s, as in nccl-tests. Exit status 1 if some of the files cannot be read.
    """
    options.check()
    traces = options.traces()
    jobs = traces.collectives()
    from gemmetry.results.emit import Result
    from gemmetry.traces import report as tables
    from gemmetry.traces.text import print_jobs

    found = Result(
        rows={"collectives": lambda: getattr(tables, f"{options.rows}_table")(jobs)},
        whole=lambda: tables.collectives_document(jobs, traces.failures),
    )
    with traces.stage("output"):
        options.deliver(found, lambda console: print_jobs(jobs, console))
    return finish(traces, options.timings)


DEFAULTS = {
    **RECORDED,
    "providers": "torch",
    "default_config": True,
    "shapes": "none",
    "dtypes": "none",
    "layouts": "all four",
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


class Record(Planned):
    source: Source = request(DEFAULTS)


def record(options: Record) -> int:
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

    wanted = with_defaults(read_request(options.source))
    return options.run(recording(plan_request(wanted, options.source)))


class Report(Brief, Reads):
    output: list[Path] = output_files(
        "Write a file; the suffix picks xlsx, html, json, md, or trace.json.gz: the moment most "
        "worth a look, for ui.perfetto.dev. A name without a suffix is a folder with one CSV file "
        "per sheet. May be given several times.",
    )
    short_kernel_us: float = option(
        "List kernels shorter than this in the sheets of short kernels.", min=0, default=10.0
    )


def report(options: Report) -> int:
    """Write a report of traces: a workbook with TraceLens' sheets and gemmetry's own, or a page
    with a timeline.

    With several files, sheets of single traces get a column that names the file, and the ranks of
    a job are combined. Exit status 1 if some of the files cannot be read.
    """
    from gemmetry.documents.tracelens_workbooks import (
        MOMENT,
        TraceLensSheets,
        check_reports,
        write_report,
    )
    from gemmetry.results.emit import HTML

    is_brief = options.brief and options.json
    if not options.output and not is_brief:
        raise RequestError(
            "a report needs a file", hint="Give one: --output report.html; or print --brief --json."
        )
    traces = options.traces()
    check_reports(options.output)
    with_lanes = is_brief or any(
        path.name.lower().endswith((HTML, MOMENT)) for path in options.output
    )
    found = traces.report(sheets=TraceLensSheets(options.short_kernel_us), with_lanes=with_lanes)
    with traces.stage("write"):
        for path in options.output:
            write_report(found, path, command=command_line())
            note(f"wrote {path}")
    warnings = [*found.file_warnings, *found.job_warnings]
    notes(warnings, "warning")
    notes(found.remarks)
    files = list(map(str, options.output))
    if is_brief:
        print_json(found.result(files=files).brief(), indent=-1)
    elif options.json:
        print_facts(files=files, warnings=warnings, remarks=list(found.remarks))
    return finish(traces, options.timings, warn=False)


app = group_app(
    "Record and read traces.",
    named(record, summary, gemms, shapes, collectives, report),
)
