"""The report of traces as files: TraceLens' sheets and gemmetry's own, in every format; the suffix
picks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gemmetry.documents.operator_tables import SHORT_KERNEL_US, trace_tables
from gemmetry.documents.tracelens import BY_NAME, NOTES, job_sheets, single_trace_sheet
from gemmetry.domain.errors import RequestError
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.tables import Column, Table
from gemmetry.results.emit import check_writable, is_folder, write_atomically, written_together
from gemmetry.results.tables import Look, check_installed, left_out, workbook
from gemmetry.traces.collectives.matching import JobCollectives
from gemmetry.traces.jobs import RankTrace
from gemmetry.traces.model import Trace
from gemmetry.traces.report import TraceReport
from gemmetry.traces.summary import Summary


@dataclass(slots=True)
class TraceLensSheets:
    """TraceLens' sheets of traces, which are added one by one and not kept."""

    short_kernel_us: float = SHORT_KERNEL_US
    """Kernels shorter than this are in the sheets of short kernels."""
    traces: int = 0
    found: dict[str, list[tuple[str, Table]]] = field(default_factory=dict)

    def add(self, trace: Trace, summary: Summary, rank: RankTrace) -> None:
        """Add the sheets of one trace."""
        self.traces += 1
        tables = trace_tables(trace, summary, short_kernel_us=self.short_kernel_us)
        for table in [*tables, *([single_trace_sheet(rank)] if rank.collectives else [])]:
            self.found.setdefault(table.name, []).append((str(trace.file), table))

    def tables(self, jobs: Sequence[JobCollectives]) -> list[Table]:
        """The sheets of all traces, and of all `jobs`, in the order of the workbook."""
        several = self.traces > 1
        joined = {n: _joined(n, one, "file" if several else "") for n, one in self.found.items()}
        of_jobs: dict[str, list[tuple[str, Table]]] = {}
        communicating = [job for job in jobs if any(one.collectives for one in job.job.ranks)]
        for job in communicating:
            for table in job_sheets(job):
                if several or table.name == "nccl_long":
                    of_jobs.setdefault(table.name, []).append((job.job.name, table))
        for name, found in of_jobs.items():
            joined[name] = _joined(name, found, "job" if len(communicating) > 1 else "")
        return [joined[name] for name in BY_NAME if name in joined]


def _joined(name: str, parts: Sequence[tuple[str, Table]], column: str) -> Table:
    """One table from those of several files or jobs, which `column` distinguishes ("": there is
    only one)."""
    first = parts[0][1]
    if not column:
        return first
    columns = {c.name: c for _, table in parts for c in table.columns}
    rows: list[Sequence[Any]] = []
    for label, table in parts:
        if table.names == tuple(columns):
            rows += [(label, *row) for row in table.rows]
            continue
        rows += [(label, *map(record.get, columns)) for record in table.records()]
    source = Column(column, description=f"the {'trace' if column == 'file' else column}")
    return Table(name, (source, *columns.values()), rows)


MOMENT = ".trace.json.gz"
"""Ends the names of files with a moment of a trace."""

SUFFIXES = (".xlsx", ".html", ".json", ".md", MOMENT)


def check_reports(paths: Iterable[Path]) -> None:
    """Check, before any work, that the reports can be written.

    Raises:
        RequestError: a suffix is unknown, or a library is missing. StorageError: not writable.
    """
    for path in paths:
        if is_folder(path):
            check_writable(path / "gpu_timeline.csv")
            continue
        if not path.name.lower().endswith(SUFFIXES):
            raise RequestError(
                f"unknown format of {path}: unknown suffix {path.suffix!r}",
                hint=f"Give a name that ends in one of {', '.join(SUFFIXES)}, or a folder "
                "for one CSV file per sheet.",
            )
        if path.suffix.lower() == ".xlsx":
            check_installed("xlsxwriter", extra="analysis")
        check_writable(path)


def write_report(report: TraceReport, path: Path, *, command: str = "") -> None:
    """Write `report`, whole or not at all; a folder gets a CSV file of each sheet.

    An HTML page shows `command`, as it was typed.

    Raises:
        RequestError: a library is missing. StorageError: not writable.
    """
    if is_folder(path):
        from gemmetry.results.tables import csv_lines

        with written_together():
            for table in report.tables:
                rows = ([str(v) if isinstance(v, bool) else v for v in row] for row in table.rows)
                text = csv_lines([table.names, *rows])
                write_atomically(path / f"{table.name}.csv", text.encode("utf-8", "replace"))
        return
    match path.suffix.lower():
        case ".xlsx":
            content = trace_workbook(report)
        case ".html":
            from gemmetry.traces.page import trace_page

            created = datetime.now(UTC).isoformat(timespec="seconds")
            page = trace_page(report, command=command, created=created)
            content = page.encode("utf-8", "replace")
        case ".md":
            from gemmetry.traces.page import trace_markdown

            content = trace_markdown(report).encode("utf-8", "replace")
        case ".gz":  # the only form with this suffix
            content = _moment(report)
        case _:
            content = report_json(report)
    write_atomically(path, content)


def _moment(report: TraceReport) -> bytes:
    if not report.moments:
        raise RequestError(
            "none of the traces has a moment to show: nothing ran on a GPU, or only one thing",
            hint="Write a page instead: -o FILE.html.",
        )
    return report.moments[0].content


def report_json(report: TraceReport) -> bytes:
    """One JSON document: ``sheets`` with a list of rows each, ``notes`` and ``errors``."""
    from gemmetry.results.json_text import encoded

    return encoded(
        {
            "schema_version": SCHEMA_VERSION,
            "sheets": {table.name: table.records() for table in report.tables},
            "notes": report.notes,
            "errors": [{"file": file, "error": text} for file, text in report.errors.items()],
        }
    )


_LOOKS = {
    name: Look(width=width)
    for width, names in (
        (22, ("type",)),
        (26, ("name", "Parent cpu_op")),
        (30, ("file", "job")),
        (50, ("kernel", "Kernel name")),
        (80, ("what", "meaning")),
        (110, ("note",)),
    )
    for name in names
}


OUR_SHEETS = {
    "summary": "One row per file: counts, and exact times in µs (docs: traces).",
    "steps": "The same for each step that the profiler marked.",
    "gemms": "GEMM kernels by kernel and shape. All GEMM time is included, with or without a link "
    "to an operator.",
    "shapes": "The distinct GEMMs of the workload; without work on a GPU, those of its operators.",
    "host_operators": "Operators of traces without work on a GPU, by input sizes and types: times "
    "in µs on the host, with nested operators excluded from self_us. Matrix products, each counted "
    "for one operator only, also have their sizes and the 10¹² FLOP/s of the median call.",
    "collectives": "Matched collectives by kind; bandwidths in 10⁹ bytes/s.",
    "matched": "Every matched collective.",
    "ranks": "Which rank came last, which waited, and whose clock differs.",
    "problems": "What could not be read or is missing.",
}
"""Gemmetry's own sheets, after those with TraceLens' names."""


def trace_workbook(report: TraceReport) -> bytes:
    """The workbook.

    Raises:
        RequestError: XlsxWriter is not installed.
        StorageError: it is large, and the temporary files for it cannot be written.
    """
    return workbook([*report.tables, _notes(report), _columns(report)], _LOOKS)


def _notes(report: TraceReport) -> Table:
    own = [("this report", note) for note in (*report.notes, *left_out(report.tables))]
    return Table("notes", (Column("about"), Column("note")), [*own, *NOTES])


def _columns(report: TraceReport) -> Table:
    """The contents of gemmetry's own sheets, and the meanings of all columns."""
    rows: list[tuple[str, str, str, str]] = []
    for table in report.tables:
        if table.name in OUR_SHEETS:
            rows.append((table.name, "", "", OUR_SHEETS[table.name]))
        rows += [(table.name, c.name, c.unit, c.description) for c in table.columns]
    return Table("columns", tuple(map(Column, ("sheet", "column", "unit", "meaning"))), rows)
