"""Adds up sheets that have rows for each file over all files, as a page shows them.

Everything that a report of traces shows, as tables: TraceLens' sheets, and ours next to them.

Sums over the traces of a report, and how the window of a trace is divided.

Which lanes the timeline of a report of traces shows, in which order, and what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.domain.units import noun_for
from gemmetry.traces.collectives.alignment import Matched
from gemmetry.traces.collectives.matching import JobCollectives, analyse_jobs
from gemmetry.traces.gemms import GemmRow, Gemms, Workload, above_peak_warning, workload
from gemmetry.traces.jobs import RankTrace, rank_trace
from gemmetry.traces.missing import problem_texts
from gemmetry.traces.model import Trace, stage
from gemmetry.traces.names import GEMM_KINDS, KernelKind, classify
from gemmetry.traces.operators.host import HostOperator, HostOperators, without_gpu_text
from gemmetry.traces.rows import (
    gemms_table,
    host_operators_table,
    kinds_table,
    matched_table,
    ranks_table,
    shapes_table,
    step_table,
    summary_table,
)
from gemmetry.traces.summary import Summary, summarize, summarize_steps
from gemmetry.traces.timeline import TimelineLane, trace_lanes


class _SummedColumns(NamedTuple):
    """How rows of several files are combined into one."""

    keys: tuple[str, ...]
    """Columns that identify a row; columns that are not named here or below are left out."""
    calls: str
    spent: str
    """The column of times by which rows are ordered."""
    percent: str
    """The column with the percentage of the sum of `spent`."""
    mean: str = ""
    """`spent` over `calls`."""


_SUMMED = {
    "ops_summary": _SummedColumns(
        ("name",), "Count", "total_direct_kernel_time_ms", "Percentage (%)"
    ),
    "ops_summary_by_category": _SummedColumns(
        ("op category",), "Count", "total_direct_kernel_time_ms", "Percentage (%)"
    ),
    "kernel_summary": _SummedColumns(
        ("Parent op category", "Parent cpu_op", "Kernel name"),
        "Kernel duration (µs)_count",
        "Kernel duration (µs)_sum",
        "Percent of kernels time (%)",
        "Kernel duration (µs)_mean",
    ),
}


ONLY_ON = "only on"
"""Name of the column that lists the ranks of a row, where not all have it."""


def sum_over_files(table: Table, only_on: Callable[[Set[Path]], str] = lambda _: "") -> Table:
    """`table` added up over all files, if it has operators or kernels of several; otherwise itself.

    Counts and times are added up, shares refer to the sum of all, and rows with the most time come
    first.

    Args:
        only_on: the text for a row that only these files have, "" for none; the column
            :data:`ONLY_ON` exists if any row has a text.
    """
    how = _SUMMED.get(table.name)
    if how is None or "file" not in table.names:
        return table
    kept = (*how.keys, how.calls, how.spent, how.percent, *filter(None, (how.mean,)))
    wanted = table.select(("file", how.calls, how.spent, *how.keys))
    sums: dict[tuple[Any, ...], list[Any]] = {}
    files: dict[tuple[Any, ...], set[Path]] = {}
    for file, calls, spent, *keys in wanted.rows:
        key = tuple(keys)
        found = sums.setdefault(key, [0, 0.0])
        found[0] += calls
        found[1] += spent
        files.setdefault(key, set()).add(Path(file))
    whole = sum(time for _, time in sums.values())
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])
    rows = [
        (*key, count, time, 100 * time / whole if whole else 0.0, *_mean(how, count, time))
        for key, (count, time) in ordered
    ]
    alone = [only_on(files[key]) for key, _ in ordered]
    return with_only_on(Table(table.name, table.select(kept).columns, rows), alone)


def with_only_on(table: Table, texts: Sequence[str]) -> Table:
    """`table` with the column :data:`ONLY_ON`, one of `texts` per row, if any of them is not
    empty."""
    if not any(texts):
        return table
    rows = [(*row, text or None) for row, text in zip(table.rows, texts, strict=True)]
    return Table(table.name, (*table.columns, Column(ONLY_ON)), rows)


def _mean(how: _SummedColumns, count: int, time: float) -> Sequence[float]:
    return (time / count,) if how.mean else ()


_NO_LAUNCH = "launch not in the trace"

_WORDS = {"record_param_comms": "communication"}
"""Categories that are named after an operator -> the category of what such operators compute."""

_PARTS = ("gemm", "attention", "other", "communication")
_KINDS = {
    **dict.fromkeys(GEMM_KINDS, "gemm"),
    KernelKind.ATTENTION: "attention",
    KernelKind.COLLECTIVE: "communication",
}


def kernel_time_by_category(table: Table) -> dict[str, dict[str, float]]:
    """Kernel time in µs from ``kernel_summary``, by the category of the operator that launched a
    kernel and by what the kernel does: gemm, attention, other or communication."""
    names = ("Parent op category", "Parent cpu_op", "Kernel name", "Kernel duration (µs)_sum")
    sums: dict[str, dict[str, float]] = {}
    for category, parent, name, spent in table.select(names).rows:
        word = _NO_LAUNCH if parent is None else category or "other"
        parts = sums.setdefault(_WORDS.get(word, word), dict.fromkeys(_PARTS, 0.0))
        parts[_KINDS.get(classify(name).kind, "other")] += spent
    return sums


def self_time_by_operator(rows: Sequence[HostOperator]) -> list[tuple[str, int, int]]:
    """Name, self time in ns and calls of each operator, those with the most time first."""
    sums: dict[str, list[int]] = {}
    for row in rows:
        found = sums.setdefault(row.name, [0, 0])
        found[0] += row.self_ns
        found[1] += row.count
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])
    return [(name, ns, count) for name, (ns, count) in ordered]


class Sheets(Protocol):
    """Further sheets of a report, which see each trace while it is in memory."""

    def add(self, trace: Trace, summary: Summary, rank: RankTrace) -> None:
        """Add the sheets of one trace."""

    def tables(self, jobs: Sequence[JobCollectives]) -> list[Table]:
        """The sheets of all traces and jobs."""


_MOST_RANKS = 3
"""Most ranks that are named one by one."""


@dataclass(frozen=True)
class TraceReport:
    """The contents of a report of traces."""

    tables: list[Table]
    """In the order of the workbook."""
    summaries: list[Summary]
    steps: list[Summary]
    """Steps of all traces."""
    gemms: list[GemmRow]
    host_operators: list[HostOperator]
    """Operators of all traces without work on a GPU."""
    host_products: list[GemmRow]
    """Matrix products among them, with operators in place of kernels."""
    without_gpu: list[Path]
    """Files without work on a GPU."""
    jobs: list[JobCollectives]
    devices: list[str]
    """Product names of the GPUs that worked, as far as the traces record them."""
    lanes: list[TimelineLane]
    """Lanes of the timeline; [] unless it was requested."""
    errors: dict[str, str]
    """Files that could not be read."""

    def table(self, name: str) -> Table | None:
        """The sheet of that name, if it is not empty."""
        return next((table for table in self.tables if table.name == name), None)

    @property
    def has_gpu_work(self) -> bool:
        """Whether anything ran on a GPU in any of the traces."""
        return len(self.without_gpu) < len(self.summaries)

    def page_table(self, name: str) -> Table | None:
        """The table that a page shows under the name of a sheet; None if it is empty. It is the
        sheet itself, except that operators of the host, and operators and kernels of GPUs, are
        added up over all files (:func:`sum_over_files`), and that ``host_products`` are the host's
        matrix products."""
        match name:
            case "host_operators":
                table = host_operators_table(self.host_operators)
                inputs = [one.inputs for one in self.host_operators]
                rows = [[*row, text] for row, text in zip(table.rows, inputs, strict=True)]
                table = Table(name, (*table.columns, Column("inputs")), rows)
            case "host_products":
                table = replace(gemms_table(self.host_products), name=name)
            case "gemms":
                found = self.table(name)
                return found and with_only_on(found, [self.only_on(g.files) for g in self.gemms])
            case _:
                found = self.table(name)
                return found and sum_over_files(found, self.only_on)
        return table if table.rows else None

    def only_on(self, files: Set[Path]) -> str:
        """``rank 3``, ``ranks 0, 2`` or ``5 of 64 ranks``: which ranks of a job the traces `files`
        are of; "" if they are of all its ranks, of several jobs, or the job has only one rank."""
        jobs = [job for job in self.jobs if len(job.job.ranks) > 1]
        for job in jobs:
            members = [one for one in job.job.ranks if one.span != (0, 0)]
            ranks = [one.rank for one in members if one.file in files]
            if len(ranks) == len(files) < len(members):
                text = f"{len(ranks)} of {len(members)} ranks"
                if len(ranks) <= _MOST_RANKS:
                    numbers = ", ".join(map(str, ranks))
                    text = f"{noun_for(len(ranks), 'rank')} {numbers}"
                return text if len(jobs) == 1 else f"{text} of {job.job.name}"
        return ""

    @property
    def notes(self) -> list[str]:
        """Notes about these files that a reader of the numbers needs."""
        return [*self.warnings, *self.remarks]

    @property
    def warnings(self) -> list[str]:
        """Notes on data that are missing or may be misleading."""
        failed = [f"{file} could not be read: {why}" for file, why in self.errors.items()]
        return [*failed, *self.file_warnings, *self.job_warnings]

    @property
    def file_warnings(self) -> list[str]:
        """What is missing from files that could be read, and what makes their numbers doubtful."""
        found = [t for s in self.summaries for t in problem_texts(s.file, s.partial, s.problems)]
        return [*found, *filter(None, [above_peak_warning(self.gemms)])]

    @property
    def job_warnings(self) -> list[str]:
        """Notes on data between ranks that are missing or doubtful."""
        # For a single trace without communication, missing ranks change no number.
        jobs = [j for j in self.jobs if len(j.job.ranks) > 1 or j.job.ranks[0].collectives]
        several = len(jobs) > 1
        return [
            f"{job.job.name}: {note}" if several else note for job in jobs for note in job.notes
        ]

    @property
    def remarks(self) -> list[str]:
        """Notes on the contents of the files."""
        files = self.without_gpu
        if not files:
            return []
        instead = "operators on the host are reported instead (sheet host_operators)"
        if not self.host_operators:
            instead = "and no operators either"
        return [f"{without_gpu_text(files, len(self.summaries))}; {instead}"]


def build_report(
    traces: Iterable[Trace],
    errors: Mapping[str, RequestError],
    *,
    sheets: Sheets | None = None,
    with_lanes: bool = False,
    times: dict[str, float] | None = None,
) -> TraceReport:
    """The report of `traces`, which are read one by one and not kept.

    Args:
        errors: files that could not be read; examined after all traces have been read.
        sheets: collects further sheets, which come first in the workbook.
        with_lanes: also collect the data from which the timeline is drawn.
        times: the seconds of each stage are added to it: ``join``, ``tables``, ``timeline``.

    Raises:
        RequestError: a rank occurs twice in one job.
    """
    times = times if times is not None else {}
    summaries, steps, without_gpu = list[Summary](), list[Summary](), list[Path]()
    lanes, ranks = list[TimelineLane](), list[RankTrace]()
    gemms, host, host_rows, devices = Gemms(), HostOperators(), list[HostOperator](), set[str]()
    with stage(times, "tables"):
        for trace in traces:
            with stage(times, "join"):
                _ = trace.launches
            summaries.append(summarize(trace))
            steps += summarize_steps(trace)
            ranks.append(rank_trace(trace))
            if sheets is not None:
                sheets.add(trace, summaries[-1], ranks[-1])
            devices |= set(map(trace.device_name, set(trace.rows.gpu.device.tolist())))
            gemms.add(trace)
            if not trace.has_gpu_work:
                without_gpu.append(trace.file)
                host_rows += host.add(trace)
            if with_lanes:
                with stage(times, "timeline"):
                    lanes += trace_lanes(trace, ranks[-1].rank)
        report = TraceReport(
            tables=[],
            summaries=summaries,
            steps=steps,
            gemms=gemms.rows(),
            host_operators=host.rows(),
            host_products=host.products(),
            without_gpu=without_gpu,
            jobs=analyse_jobs(ranks),
            devices=sorted(filter(None, devices)),
            lanes=lanes,
            errors={file: error.message for file, error in errors.items()},
        )
        if sheets is not None:
            report.tables.extend(sheets.tables(report.jobs))
        own = own_tables(
            summaries=summaries,
            steps=steps,
            gemms=report.gemms,
            load=workload(report.gemms if report.has_gpu_work else report.host_products),
            host_rows=host_rows,
            jobs=report.jobs,
            failed=report.errors,
        )
        report.tables.extend(table for table in own if table.rows)
    return report


_PROBLEMS = (
    Column("file", description="the trace"),
    Column("where", description="byte, event or row"),
    Column("what", description="what could not be used or is missing, and why"),
    Column("kind", description="what kind of problem it is"),
    Column("count", ColumnType.INTEGER, description="events, work or places that have it"),
)


def own_tables(
    *,
    summaries: Sequence[Summary] = (),
    steps: Sequence[Summary] = (),
    gemms: Sequence[GemmRow] = (),
    load: Workload | None = None,
    host_rows: Sequence[HostOperator] = (),
    jobs: Sequence[JobCollectives] = (),
    failed: Mapping[str, str] = MappingProxyType({}),
) -> list[Table]:
    """Gemmetry's own sheets, the empty ones too."""
    problems = [(file, "", why, "not_read", 1) for file, why in failed.items()]
    problems += [
        (str(s.file), p.where, p.what, str(p.kind), p.count) for s in summaries for p in s.problems
    ]
    found = {
        "summary": summary_table(summaries),
        "steps": step_table(steps),
        "gemms": gemms_table(gemms),
        "shapes": _joined_texts(shapes_table(load or workload(()))),
        "host_operators": host_operators_table(host_rows),
        "collectives": kinds_table(jobs),
        "matched": matched_table(jobs),
        "ranks": ranks_table(jobs if any(job.matching.matched for job in jobs) else ()),
        "problems": Table("problems", _PROBLEMS, problems),
    }
    return [replace(table, name=name) for name, table in found.items()]


def _joined_texts(table: Table) -> Table:
    """`table` with a text for each list: a cell of a sheet holds one value."""
    lists = [column.type is ColumnType.TEXTS for column in table.columns]
    columns = tuple(
        replace(column, type=ColumnType.TEXT) if is_list else column
        for column, is_list in zip(table.columns, lists, strict=True)
    )
    rows = [
        [", ".join(value) if is_list else value for value, is_list in zip(row, lists, strict=True)]
        for row in table.rows
    ]
    return Table(table.name, columns, rows)


class GpuTotals(NamedTuple):
    """Sums of the fields of that name of several summaries; times in ns."""

    traces: int
    window_ns: int
    busy_ns: int
    compute_union_ns: int
    exposed_comm_ns: int
    idle_ns: int
    gemm_kernel_ns: int
    gemm_kernels: int


def gpu_totals(summaries: Sequence[Summary]) -> GpuTotals:
    """Sums over those of `summaries` that have a window."""
    counted = [one for one in summaries if one.window_ns] or summaries
    sums = (sum(getattr(one, name) for one in counted) for name in GpuTotals._fields[1:])
    return GpuTotals(len(counted), *sums)


class HostTotals(NamedTuple):
    """Sums over operators on the host and over the matrix products among them; times in ns."""

    self_ns: int
    calls: int
    product_ns: int
    product_calls: int
    fastest: GemmRow | None
    """The product with the most TFLOP/s by its median call."""


def host_totals(operators: Sequence[HostOperator], products: Sequence[GemmRow]) -> HostTotals:
    """Sums over `operators` and over the `products` among them."""
    return HostTotals(
        self_ns=sum(row.self_ns for row in operators),
        calls=sum(row.count for row in operators),
        product_ns=sum(row.sum_ns for row in products),
        product_calls=sum(row.count for row in products),
        fastest=max(
            (row for row in products if row.tflops is not None),
            key=lambda row: row.tflops or 0.0,
            default=None,
        ),
    )


def job_times(jobs: Sequence[JobCollectives]) -> list[tuple[JobCollectives, int]]:
    """The jobs that have work on a GPU, each with its time in ns: from the first work of any rank
    to the last of any; where recordings do not overlap, the longest window of a rank."""
    found = []
    for job in jobs:
        windows = [one.span[1] - one.span[0] for one in job.job.ranks]
        if any(windows):
            found.append((job, max(windows) if job.span_ns is None else job.span_ns))
    return found


def window_parts(summary: Summary) -> dict[str, int]:
    """The window of a trace in ns by what fills it: GEMM, other computing, exposed communication,
    exposed copies, nothing. The part of GEMMs is at most the time of all computing, because
    kernels that run at the same time count once there, and several times in their sum."""
    gemm = min(summary.gemm_kernel_ns, summary.compute_union_ns)
    copies = summary.busy_ns - summary.compute_union_ns - summary.exposed_comm_ns
    return {
        "gemm": gemm,
        "other": summary.compute_union_ns - gemm,
        "communication": summary.exposed_comm_ns,
        "copy": max(0, copies),
        "idle": summary.idle_ns,
    }


class CollectiveMessage(NamedTuple):
    """What a communication kernel exchanged; None where it is not known."""

    op: str | None
    bytes: int | None
    dtype: str | None
    ranks: int | None
    bus_bandwidth: float | None
    """10⁹ bytes/s. None also if a rank of its group has no file, because it would be a bound."""


class RankLanes(NamedTuple):
    """The lanes of a rank that are shown, in their order."""

    trace: RankTrace
    lanes: list[TimelineLane]
    steps: list[Summary]
    messages: dict[int, CollectiveMessage]
    """By the row of ``TraceRows.gpu``."""


class JobLanes(NamedTuple):
    """The lanes of a job on one time axis."""

    name: str
    ranks: list[RankLanes]
    base_ns: int
    """Start of the first work that is shown."""
    end_ns: int
    """End of the last."""
    left_out: int
    """Number of lanes that are not shown."""


def job_lanes(report: TraceReport, most: int) -> list[JobLanes]:
    """The `most` lanes with the most work of each job that has any. The lanes of every rank are in
    the same order: by device, and streams with the most work over all ranks first."""
    by_file: dict[str, list[TimelineLane]] = {}
    for lane in report.lanes:
        by_file.setdefault(lane.file, []).append(lane)
    steps: dict[Path, list[Summary]] = {}
    for step in report.steps:
        steps.setdefault(step.file, []).append(step)
    found = []
    for job in report.jobs:
        lanes = [lane for one in job.job.ranks for lane in by_file.get(str(one.file), ())]
        if not lanes:
            continue
        shown = sorted(lanes, key=lambda lane: -int(lane.duration_ns.sum()))[:most]
        kept, order, messages = {id(lane) for lane in shown}, _order(lanes), _messages(job)
        ranks = [
            RankLanes(
                trace=one,
                lanes=sorted((i for i in by_file[str(one.file)] if id(i) in kept), key=order),
                steps=steps.get(one.file, []),
                messages=messages[one.rank],
            )
            for one in job.job.ranks
            if str(one.file) in by_file
        ]
        found.append(
            JobLanes(
                name=job.job.name,
                ranks=ranks,
                base_ns=min(int(lane.start_ns.min()) for lane in shown),
                end_ns=max(int((lane.start_ns + lane.duration_ns).max()) for lane in shown),
                left_out=len(lanes) - len(shown),
            )
        )
    return found


def _order(lanes: Sequence[TimelineLane]) -> Callable[[TimelineLane], Any]:
    spent: dict[tuple[int, str], int] = {}
    for lane in lanes:
        key = (lane.stream, lane.thread)
        spent[key] = spent.get(key, 0) + int(lane.duration_ns.sum())
    return lambda lane: (lane.device, -spent[lane.stream, lane.thread], lane.stream, lane.thread)


def _messages(found: JobCollectives) -> dict[int | None, dict[int, CollectiveMessage]]:
    """What the communication kernels of each rank exchanged."""
    matched: dict[tuple[int | None, int], Matched] = {
        (rank, kernel.row): one for one in found.matching.matched for rank, kernel in one.members
    }
    messages: dict[int | None, dict[int, CollectiveMessage]] = {}
    for rank in found.job.ranks:
        of_rank = messages.setdefault(rank.rank, {})
        for kernel in rank.collectives:
            one = matched.get((rank.rank, kernel.row))
            of_rank[kernel.row] = CollectiveMessage(
                op=kernel.op,
                bytes=one.bytes if one else kernel.bytes,
                dtype=kernel.dtype,
                ranks=one.group_size if one else kernel.group.size if kernel.group else None,
                bus_bandwidth=one.bus_bandwidth if one and one.is_complete else None,
            )
    return messages
