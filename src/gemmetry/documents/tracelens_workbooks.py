"""Reads TraceLens' workbooks into the tables that are computed from traces, as far as the sheets
allow.

``gpu_timeline`` holds the times of a summary, ``kernel_summary`` its kernels, ``GEMM`` the shapes
and the kernels of each. Data that a workbook does not contain are unknown: single durations, and
communication overlapping GEMMs. gemmetry's own workbooks have the same sheets and can be read too.

The report of traces as files: TraceLens' sheets and gemmetry's own, in every format; the suffix
picks it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gemmetry.documents.operator_tables import SHORT_KERNEL_US, trace_tables
from gemmetry.documents.tracelens import BY_NAME, NOTES, job_sheets, single_trace_sheet
from gemmetry.domain.errors import RequestError
from gemmetry.domain.files import short_name
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.tables import Column, Table
from gemmetry.formats.events import LONGEST_NS, MOST_ELEMENTS, OperatorArguments
from gemmetry.formats.xlsx import Cell, TraceLensReport
from gemmetry.results.emit import check_writable, is_folder, write_atomically, written_together
from gemmetry.results.tables import Looks, check_installed, left_out, workbook
from gemmetry.traces.collectives.matching import JobCollectives
from gemmetry.traces.gemms import GemmRow
from gemmetry.traces.jobs import RankTrace
from gemmetry.traces.model import Trace
from gemmetry.traces.names import GEMM_KINDS, KernelKind, classify
from gemmetry.traces.operators.gemms import GemmShape, gemm_shape
from gemmetry.traces.report import TraceReport
from gemmetry.traces.summary import TOP_GEMMS, Summary, TopGemm


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


_LOOKS = Looks(widths={
    "type": 22, "name": 26, "Parent cpu_op": 26, "file": 30, "job": 30, "kernel": 50,
    "Kernel name": 50, "what": 80, "meaning": 80, "note": 110,
})  # fmt: skip


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
    own = [("this report", note) for note in (*report.notes, *left_out(report.tables))]
    notes = Table("notes", (Column("about"), Column("note")), [*own, *NOTES])
    return workbook([*report.tables, notes, columns_sheet(report.tables)], _LOOKS)


def columns_sheet(tables: Iterable[Table]) -> Table:
    """The contents of gemmetry's own sheets, and the meanings of all columns."""
    rows: list[tuple[str, str, str, str]] = []
    for table in tables:
        if table.name in OUR_SHEETS:
            rows.append((table.name, "", "", OUR_SHEETS[table.name]))
        rows += [(table.name, c.name, c.unit, c.description) for c in table.columns]
    return Table("columns", tuple(map(Column, ("sheet", "column", "unit", "meaning"))), rows)


_TIMES = {
    "total_time": "window", "busy_time": "busy", "computation_time": "compute_union",
    "total_comm_time": "comm_union", "total_memcpy_time": "memcpy_union",
    "exposed_comm_time": "exposed_comm",
}  # fmt: skip
"""Row of ``gpu_timeline`` -> field of a summary."""


_UNKNOWN = frozenset({"events", "gemm_comm_overlap_us", "launches_without_work"})


_OF_KERNELS = frozenset({
    "kernels", "gemm_kernels", "gemm_kernel_us", "comm_kernels", "comm_kernel_us", "top_gemms",
})  # fmt: skip


_SPENT = "Kernel duration (µs)_"


_DETAILS = "kernel_details__summarize_kernel_stats"


_KERNEL = re.compile(
    r"""\{'name':\ ('(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+"),\ ([^{}]{1,2000})\}""",
    re.DOTALL | re.VERBOSE,
)
"""One entry of a list of kernels, which is a Python literal."""


_NUMBER = re.compile(r"'(\w{1,40})': (?:np\.float64\()?(-?\d{1,20}(?:\.\d{1,40})?(?:e-?\d{1,3})?)")


def workbook_summaries(report: TraceLensReport) -> list[Summary]:
    """The contents of the sheets for each trace in the workbook; TraceLens' workbooks have one.

    Raises:
        RequestError: ``gpu_timeline`` is missing, or lacks a column or row.
    """
    timeline = report.sheet("gpu_timeline", ("type", "time ms")).rows()
    kernels = report.sheets["kernel_summary"].rows() if "kernel_summary" in report.sheets else None
    files = dict.fromkeys(row.get("file") for row in timeline)
    found = []
    for file in files:
        times = {row["type"]: row["time ms"] for row in timeline if row.get("file") == file}
        of_file = None if kernels is None else [k for k in kernels if k.get("file") == file]
        found.append(_summary(report.path, file, times, of_file))
    return found


def _summary(
    path: Path, file: Cell, times: Mapping[Cell, Cell], kernels: list[dict[str, Cell]] | None
) -> Summary:
    ns = {field: _ns(times.get(name), 1e6) for name, field in _TIMES.items()}
    missing = [name for name, field in _TIMES.items() if ns[field] is None]
    if missing:
        raise RequestError(
            f"sheet 'gpu_timeline' of {path} has no usable time for {', '.join(missing)}",
            hint="Give a workbook as TraceLens or gemmetry trace report wrote it.",
        )
    known: dict[str, Any] = ns
    if known["busy"] > known["window"] or known["exposed_comm"] > known["comm_union"]:
        raise RequestError(
            f"the times in sheet 'gpu_timeline' of {path} contradict each other",
            hint="Give a workbook as TraceLens or gemmetry trace report wrote it.",
        )
    gemms: dict[str, TopGemm] = {}
    counts = {"kernels": 0, "gemm": 0, "comm": 0}
    sums = {"gemm": 0, "comm": 0}
    for row in kernels or ():
        count, spent = _count(row.get(f"{_SPENT}count")), _ns(row.get(f"{_SPENT}sum"), 1e3)
        name = row.get("Kernel name")
        if count is None or spent is None or not isinstance(name, str):
            continue
        counts["kernels"] += count
        kind = classify(name).kind
        if kind is KernelKind.COLLECTIVE:
            counts["comm"], sums["comm"] = counts["comm"] + count, sums["comm"] + spent
        if kind in GEMM_KINDS:
            counts["gemm"], sums["gemm"] = counts["gemm"] + count, sums["gemm"] + spent
            low, high = _ns(row.get(f"{_SPENT}min"), 1e3), _ns(row.get(f"{_SPENT}max"), 1e3)
            one = TopGemm(name=short_name(name), count=count, sum_ns=spent, min_ns=low or 0,
                          max_ns=high or 0)  # fmt: skip
            gemms[name] = _together(gemms[name], one) if name in gemms else one
    of = short_name(file, 200) if isinstance(file, str) else ""
    top = sorted(gemms.values(), key=lambda gemm: (-gemm.sum_ns, gemm.name))[:TOP_GEMMS]
    return Summary(
        label=f"{path.name}: {of}" if of else path.name,
        file=path,
        events=0,
        kernels=counts["kernels"],
        gemm_kernels=counts["gemm"],
        gemm_kernel_ns=sums["gemm"],
        comm_kernels=counts["comm"],
        comm_kernel_ns=sums["comm"],
        **{f"{field}_ns": value for field, value in known.items()},
        comm_compute_overlap_ns=known["comm_union"] - known["exposed_comm"],
        gemm_comm_overlap_ns=0,
        idle_ns=known["window"] - known["busy"],
        top_gemms=tuple(top),
        launches_without_work=0,
        unknown=_UNKNOWN | (_OF_KERNELS if kernels is None else frozenset()),
        part=of,
    )


def _together(one: TopGemm, other: TopGemm) -> TopGemm:
    """Kernels of one name under two operators or on two streams."""
    low, high = min(one.min_ns, other.min_ns), max(one.max_ns, other.max_ns)
    count, spent = one.count + other.count, one.sum_ns + other.sum_ns
    return TopGemm(name=one.name, count=count, sum_ns=spent, min_ns=low, max_ns=high)


def workbook_gemms(report: TraceLensReport) -> list[GemmRow]:
    """One row per operator with its sizes, and per kernel that multiplied in it.

    Raises:
        RequestError: the sheet ``GEMM`` is missing, or lacks a column.
    """
    return [row for _, row in workbook_gemm_rows(report)]


def workbook_gemm_rows(report: TraceLensReport) -> list[tuple[Mapping[str, Cell], GemmRow]]:
    """GEMM rows of the workbook, each with the cells of its operator.

    Raises:
        RequestError: the sheet ``GEMM`` is missing, or lacks a column.
    """
    sheet = report.sheet("GEMM", ("name", "param: M", "param: N", "param: K", _DETAILS))
    return [(cells, row) for cells in sheet.rows() for row in _gemms(cells)]


def _gemms(cells: Mapping[str, Cell]) -> Iterator[GemmRow]:
    name = str(cells["name"] or "")
    shape = _shape(name, cells)
    kernels = list(_kernels(str(cells[_DETAILS] or "")))
    mains = [k for k in kernels if classify(k["name"]).kind in GEMM_KINDS]
    # Kernels with unknown names that were launched by an operator that multiplies.
    mains = mains or sorted(kernels, key=lambda kernel: -kernel["total"])[:1]
    multiply = [k for k in mains if classify(k["name"]).kind is not KernelKind.GEMM_REDUCTION]
    for kernel in mains:
        facts = classify(kernel["name"])
        is_alone = multiply == [kernel] and kernel["count"] == _count(cells.get("name_count"))
        median = kernel["median"]
        yield GemmRow(
            kernel=kernel["name"],
            facts=facts,
            shape=shape,
            dtype=facts.dtype if shape is None or shape.dtype is None else shape.dtype,
            layout=None if shape is None else shape.layout,
            names=(short_name(name),),
            count=kernel["count"],
            linked=kernel["count"],
            sum_ns=kernel["total"],
            min_ns=kernel["min"],
            max_ns=kernel["max"],
            median_ns=float(median),
            tflops=shape.flops / median / 1000 if shape and is_alone and median > 0 else None,
        )


def _shape(name: str, cells: Mapping[str, Cell]) -> GemmShape | None:
    """The shape from the operator's arguments, which specify types and layouts, else from the sizes
    alone."""
    columns = ("Input Dims_first", "Input type_first", "Input Strides_first")
    # Lists are written in Python syntax; no text in these columns contains a quote.
    arguments = [str(cells.get(column) or "").replace("'", '"') for column in columns]
    shape = gemm_shape(name, OperatorArguments(*arguments))
    if shape is not None:
        return shape
    m, n, k = (_count(cells[f"param: {letter}"]) for letter in "MNK")
    if not m or not n or not k or max(m * k, k * n, m * n) > MOST_ELEMENTS:
        return None
    return GemmShape(m, n, k, _count(cells.get("param: B")) or 1)


def _kernels(text: str) -> Iterator[dict[str, Any]]:
    """Name, count, and times in ns of each kernel of a list."""
    for entry in _KERNEL.finditer(text):
        name = re.sub(r"\\(.)", r"\1", entry[1][1:-1], flags=re.DOTALL)
        numbers = {key: float(value) for key, value in _NUMBER.findall(entry[2])}
        count = _count(numbers.get("count"))
        times = {
            key: _ns(numbers.get(f"{key}_duration_us"), 1e3)
            for key in ("total", "median", "min", "max")
        }
        if count and None not in times.values():
            yield {"name": short_name(name), "count": count, **times}


def _ns(value: Cell, unit: float) -> int | None:
    """A time in `unit` ns, converted to whole ns; None where it is not a time."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value) or not 0 <= value * unit <= LONGEST_NS:
        return None
    return round(value * unit)


def _count(value: Cell) -> int | None:
    """An integer; None where it is implausible, as in a damaged file."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    is_whole = math.isfinite(value) and value == int(value) and 0 <= value <= MOST_ELEMENTS
    return int(value) if is_whole else None
