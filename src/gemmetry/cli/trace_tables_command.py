"""``gemmetry trace summary``, ``gemms`` and ``shapes``; the group stands in trace_command.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gemmetry.cli.options import Json, Outputs, split_outputs

if TYPE_CHECKING:
    from gemmetry.domain.errors import RequestError
    from gemmetry.formats.events import TraceProblem
    from gemmetry.formats.tracelens import TraceLensReport
    from gemmetry.traces.gemms.shapes import Workload
    from gemmetry.traces.gemms.summary import GemmRow
    from gemmetry.traces.model import Trace
    from gemmetry.traces.summary import Outside, Summary

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        readable=False,  # One that cannot be read is reported, and the others are done.
        help="Traces: Kineto (plain, gz, zst) or rocprofv3 (JSON, CSV, rocpd); folders are "
        "searched.",
    ),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Read the files again, and write no caches next to them.")
]
Timings = Annotated[
    bool, typer.Option("--timings", help="Report on stderr how long each stage took.")
]
Top = Annotated[int, typer.Option("--top", min=0, help="Show at most this many rows; 0: all.")]

FilesOrWorkbooks = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        readable=False,  # One that cannot be read is reported, and the others are done.
        help="Traces: Kineto (plain, gz, zst) or rocprofv3 (JSON, CSV, rocpd); folders are "
        "searched. Also reports of TraceLens (xlsx).",
    ),
]

T = TypeVar("T")

_SPEC_SUFFIXES = (".yaml", ".yml")

_MOST_PROBLEMS = 5
"""Of one file that are shown; `summary --json` has all."""


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
    """What the GPU did: computing, communicating, copying, idle, and its GEMM kernels.

    Times are exact, in nanoseconds. Exit status 1 if a file cannot be read and others can.
    """
    from gemmetry.traces.model import Trace
    from gemmetry.traces.summary import outside_steps, summarize, summarize_steps

    if output:
        from gemmetry.cli.tables import check_outputs

        check_outputs(output)
    run = TraceRun(files, use_cache=not no_cache, wants_timings=timings)
    summaries: list[Summary] = []
    of_steps: list[Summary] = []
    outside: list[Outside] = []
    for found in run.traces_and_workbooks():
        with run.stage("summary"):
            if isinstance(found, Trace):
                summaries.append(summarize(found))
                if steps:
                    of_steps += summarize_steps(found)
                    outside.append(outside_steps(found))
            else:
                from gemmetry.traces.tracelens.input import workbook_summaries

                summaries += run.of_workbook(found, workbook_summaries)
    run.check_any()
    with run.stage("output"):
        in_steps = (of_steps, outside) if steps else None
        _tell_summaries(summaries, in_steps, run.errors, json, output or ())
    run.tell_without_gpu()
    raise typer.Exit(run.finish())


def _tell_summaries(
    summaries: Sequence[Summary],
    steps: tuple[Sequence[Summary], Sequence[Outside]] | None,
    errors: Mapping[str, RequestError],
    json: bool,
    outputs: Sequence[Path],
) -> None:
    from gemmetry.traces.summary import summary_document

    of_steps, outside = steps or (None, ())
    if json:
        texts = {file: error.message for file, error in errors.items()}
        _print_json(summary_document(summaries, errors=texts, steps=of_steps, outside=outside))
    else:
        from gemmetry.cli.console import stdout_console
        from gemmetry.reports.traces.tables import print_summaries, print_summary

        console = stdout_console()
        if len(summaries) == 1:
            print_summary(summaries[0], console)
        else:
            print_summaries(summaries, console)
        if of_steps:
            from gemmetry.reports.traces.steps import print_steps

            print_steps(summaries, of_steps, outside, console)
    if outputs:
        from gemmetry.reports.traces.steps import step_rows
        from gemmetry.reports.traces.tables import summary_rows

        rows = summary_rows(summaries) if of_steps is None else step_rows(of_steps)
        _write("trace_summary" if of_steps is None else "trace_steps", rows, outputs)


def gemms(
    files: FilesOrWorkbooks,
    json: Json = False,
    output: Outputs = None,
    top: Top = 20,
    no_cache: NoCache = False,
    timings: Timings = False,
) -> None:
    """GEMM kernels by kernel and shape: how often, how long, TFLOP/s, share of the peak.

    All files are taken together; --top is for the terminal, files and --json hold every row.
    """
    from gemmetry.cli.tables import check_outputs

    if output:
        check_outputs(output)
    run = TraceRun(files, use_cache=not no_cache, wants_timings=timings)
    rows = run.gemms()
    from gemmetry.reports.traces.tables import gemm_rows, print_gemms

    if json:
        _print_json(_document("gemms", gemm_rows(rows), run))
    else:
        from gemmetry.cli.console import stdout_console

        print_gemms(rows, stdout_console(), top=top)
    if output:
        _write("gemms", gemm_rows(rows), output)
    run.note_convolutions()
    run.tell_without_gpu()
    raise typer.Exit(run.finish())


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
            help="Write a file; yaml is a spec that gemmetry profile runs, the other suffixes "
            "(csv, json, parquet, xlsx, md, html) are tables.",
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
    """The distinct GEMMs of a workload with calls and time, as a table or a spec file.

    gemmetry trace shapes TRACE --spec | gemmetry profile --spec -
    """
    from gemmetry.cli.tables import check_outputs

    outputs = output or []
    specs = [path for path in outputs if path.suffix.lower() in _SPEC_SUFFIXES]
    tables = [path for path in outputs if path not in specs]
    if tables:
        check_outputs(tables)
    for path in specs:
        from gemmetry.reports.tables.files import check_writable

        check_writable(path)
    run = TraceRun(files, use_cache=not no_cache, wants_timings=timings)
    rows = run.gemms(or_products=True)
    told = "these are the products that the operators recorded, with times on the host"
    run.tell_without_gpu(told if rows else "")
    from gemmetry.reports.traces.tables import print_workload, shape_rows
    from gemmetry.traces.gemms.shapes import no_shape, workload

    load = workload(rows)
    failure = no_shape(run.names) if tables and not load.gemms else None
    text = ""
    if spec or specs:
        text, failure = _spec(load, run.names, top)
    if json:
        _print_json(_document("shapes", shape_rows(load), run))
    elif spec:
        typer.echo(text, nl=False)
    else:
        from gemmetry.cli.console import stdout_console

        print_workload(load, stdout_console(), top=top)
    if specs and text:
        from gemmetry.cli.console import note
        from gemmetry.reports.tables.files import write_atomically

        for path in specs:
            write_atomically(path, text.encode())
            note(f"wrote {path}; run it with: gemmetry profile --spec {path}")
    if tables and load.gemms:
        _write("shapes", shape_rows(load), tables)
    status = run.finish()
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


class TraceRun:
    """The files of one command: which could be read, and how long it took."""

    def __init__(self, files: Sequence[Path], *, use_cache: bool, wants_timings: bool) -> None:
        self._files = files
        self._use_cache = use_cache
        self._wants_timings = wants_timings
        self.times: dict[str, float] = {}
        self.errors: dict[str, RequestError] = {}
        self.names: list[str] = []
        self.without_gpu: list[Path] = []
        self.partial: list[Path] = []
        self.problems: list[tuple[Path, TraceProblem]] = []
        self.of_convolutions = 0
        self.of_convolutions_ns = 0

    def traces(self) -> Iterator[Trace]:
        """The traces, one by one; workbooks are none."""
        from gemmetry.traces.loading import read_all

        for trace in read_all(
            self._files, self.errors, use_cache=self._use_cache, timings=self.times
        ):
            self._note(trace)
            yield trace

    def traces_and_workbooks(self) -> Iterator[Trace | TraceLensReport]:
        """The same with reports of TraceLens, in the order of the files."""
        from gemmetry.traces.loading import read_any
        from gemmetry.traces.model import Trace

        for found in read_any(
            self._files, self.errors, use_cache=self._use_cache, timings=self.times
        ):
            if isinstance(found, Trace):
                self._note(found)
            yield found

    def of_workbook(
        self, report: TraceLensReport, table: Callable[[TraceLensReport], list[T]]
    ) -> list[T]:
        """`table` of the workbook; nothing, and an error is noted, where sheets are not there."""
        from gemmetry.domain.errors import RequestError

        try:
            rows = table(report)
        except RequestError as error:
            self.errors[str(report.path)] = error
            return []
        self.names.append(str(report.path))
        return rows

    def _note(self, trace: Trace) -> None:
        self.names.append(str(trace.file))
        if trace.rows.partial:
            self.partial.append(trace.file)
        self.problems += [(trace.file, problem) for problem in trace.rows.problems]
        if not trace.has_gpu_work:
            self.without_gpu.append(trace.file)

    def gemms(self, *, or_products: bool = False) -> list[GemmRow]:
        """The table of all files that can be read.

        Args:
            or_products: if none has work on a GPU, the products that operators record.
        """
        from gemmetry.traces.gemms.summary import gemm_table
        from gemmetry.traces.model import Trace
        from gemmetry.traces.operators.host import product_table

        workbooks: list[TraceLensReport] = []

        def traces() -> Iterator[Trace]:
            for found in self.traces_and_workbooks():
                if isinstance(found, Trace):
                    left_out = found.rows.gpu.duration_ns[found.is_gemm_of_convolution]
                    self.of_convolutions += len(left_out)
                    self.of_convolutions_ns += int(left_out.sum())
                    yield found
                else:
                    workbooks.append(found)

        with self.stage("gemms"):
            rows = (product_table if or_products else gemm_table)(traces())
            if workbooks:
                from gemmetry.traces.tracelens.input import workbook_gemms

                are_products = or_products and len(self.without_gpu) == len(self.names)
                told = [row for one in workbooks for row in self.of_workbook(one, workbook_gemms)]
                if are_products and len(self.names) > len(self.without_gpu):
                    rows = []  # Times of the host would be added to times of a GPU.
                rows = sorted([*rows, *told], key=lambda row: -row.sum_ns)
        self.check_any()
        return rows

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Reports how long a block took, with ``--timings``."""
        from gemmetry.traces.stages import stage

        return stage(self.times, name)

    def check_any(self) -> None:
        """Refuse a request of which no file could be read."""
        if not self.names:
            from gemmetry.traces.loading import all_failed

            raise all_failed(self.errors)

    def tell_without_gpu(self, instead: str = "") -> None:
        """Say which files have no work on a GPU; `instead`: what is shown if none has."""
        files, count = self.without_gpu, len(self.names)
        if not files:
            return
        from gemmetry.cli.console import note
        from gemmetry.traces.operators.host import without_gpu_text

        told = without_gpu_text(files, count)
        if not instead or len(files) < count:
            instead = "`gemmetry trace report FILE... -o report.html` reports operators on the host"
        note(f"note: {told}; {instead}")

    def note_convolutions(self) -> None:
        """Report the kernels that have the name of a GEMM and are not in the table of GEMMs."""
        if not self.of_convolutions:
            return
        from gemmetry.cli.console import note

        kernels = "1 kernel" if self.of_convolutions == 1 else f"{self.of_convolutions:,} kernels"
        note(
            f"note: {kernels} with the name of a GEMM, {self.of_convolutions_ns / 1e6:,.3f} ms, "
            "ran in convolution operators and are left out"
        )

    def finish(self) -> int:
        """Report what could not be read; the exit status."""
        from gemmetry.cli.main import tell

        self._tell_problems()
        for error in self.errors.values():
            tell(error)
        if self._wants_timings:
            for name, seconds in self.times.items():
                typer.echo(f"{name:>10} {seconds:8.3f} s", err=True)
        return 1 if self.errors else 0

    def _tell_problems(self) -> None:
        from gemmetry.cli.console import note

        for file in self.partial:
            note(f"warning: {file} is partial: events are missing")
        counts: dict[Path, int] = {}
        for file, problem in self.problems:
            counts[file] = counts.get(file, 0) + 1
            if counts[file] <= _MOST_PROBLEMS:
                note(f"warning: {file}: {problem}")
        for file, count in counts.items():
            if count > _MOST_PROBLEMS:
                note(f"warning: {file}: and {count - _MOST_PROBLEMS} more problems")


def _document(name: str, rows: Sequence[Mapping[str, Any]], run: TraceRun) -> dict[str, Any]:
    from gemmetry.traces import TRACE_SCHEMA_VERSION

    return {
        "schema_version": TRACE_SCHEMA_VERSION,
        name: list(rows),
        "partial": [str(file) for file in run.partial],
        "problems": [
            {"file": str(file), "where": problem.where, "what": problem.what}
            for file, problem in run.problems
        ],
        "errors": [{"file": file, "error": error.message} for file, error in run.errors.items()],
    }


def _print_json(document: Mapping[str, Any]) -> None:
    """Times are Decimals with three places, and stay so."""
    from gemmetry.reports.tables.json_encoding import encoded

    typer.echo(encoded(document).decode())


def _write(name: str, rows: Sequence[Mapping[str, Any]], paths: Sequence[Path]) -> None:
    from gemmetry.cli.console import note
    from gemmetry.reports.tables.rows import write_rows
    from gemmetry.reports.traces.columns import COLUMNS

    for path in paths:
        write_rows(name, rows, path, columns=COLUMNS[name])
        note(f"wrote {path}")
