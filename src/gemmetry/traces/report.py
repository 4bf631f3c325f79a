"""Everything that a report of traces shows, as tables.

Sheets that have rows for each file are added up over all files for pages.

Moments of traces that are worth a look, each as a small trace of its own.

The format is the trace-event format, which ui.perfetto.dev and ``gemmetry trace`` read.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from gemmetry.domain.errors import RequestError
from gemmetry.domain.rows import SCHEMA_VERSION, Row, derived, fact, inline, table
from gemmetry.domain.rows import table as table_of
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.domain.units import format_ns, noun_for, plural
from gemmetry.formats.events import MISSING, GpuKind, Int64
from gemmetry.results.emit import Result
from gemmetry.results.json_text import encoded
from gemmetry.traces.collectives.alignment import ClockOffset, Matched
from gemmetry.traces.collectives.matching import JobCollectives, JobKind, Straggler, analyse_jobs
from gemmetry.traces.collectives.summary import Collective
from gemmetry.traces.gemms import (
    GemmRow,
    Gemms,
    Workload,
    WorkloadGemm,
    above_peak_warning,
    with_shares,
    workload,
)
from gemmetry.traces.jobs import RankTrace, rank_trace
from gemmetry.traces.joins import Intervals, subtract
from gemmetry.traces.model import Trace, problem_texts, stage
from gemmetry.traces.operators.host import HostOperator, HostOperators, without_gpu_text
from gemmetry.traces.summary import (
    Problem,
    StepSummary,
    Summary,
    problem_rows,
    summarize,
    summarize_steps,
)
from gemmetry.traces.timeline import TimelineLane, trace_lanes

MOST_EVENTS = 20_000
"""Events of a moment; of more, work on GPUs and then the longest of the host are kept."""

MARGIN = 4
"""A moment shows this part of its length before and after it."""

_CATEGORIES = {
    GpuKind.KERNEL: "kernel", GpuKind.MEMCPY: "gpu_memcpy", GpuKind.MEMSET: "gpu_memset",
}  # fmt: skip

Event = dict[str, Any]


class Moment(Row):
    """An interval of a trace."""

    file: Path
    content: bytes
    """The events around it: JSON, compressed by gzip."""

    what: str = fact()
    """``longest step``, ``longest exposed communication`` or ``longest idle time``."""
    detail: str = fact()
    source = derived(key="file", type=str)(lambda one: str(one.file))
    start_ns: int = fact("in the trace's own time", "µs")
    length_ns: int = fact(unit="µs")

    @property
    def name(self) -> str:
        """Name of a file for the content."""
        return f"{self.what.replace(' ', '_')}.trace.json.gz"


def _add_moments(longest: dict[str, Moment], trace: Trace, steps: Sequence[StepSummary]) -> None:
    """Look for moments that are longer than those known so far in a trace that has `steps`."""
    for what, about, start, end in _candidates(trace, steps):
        length = end - start
        if what not in longest or length > longest[what].length_ns:
            margin = 0 if about else length // MARGIN
            events, total = _events(trace, start - margin, end + margin)
            left_out = f", {plural(total - len(events), 'event')} left out"
            detail = f"{about}{format_ns(length)}{left_out if total > len(events) else ''}"
            mark = _event({"cat": "gemmetry", "pid": "gemmetry", "tid": what},
                          f"{what}: {detail}", start, length)  # fmt: skip
            longest[what] = Moment(
                what=what, detail=detail, file=trace.file, start_ns=start, length_ns=length,
                content=_content(trace, [mark, *events]),
            )  # fmt: skip


def _steps_first(one: Moment) -> tuple[bool, int]:
    """The order of moments: steps, then the longest."""
    return "step" not in one.what, -one.length_ns


def _candidates(trace: Trace, steps: Sequence[StepSummary]) -> Iterator[tuple[str, str, int, int]]:
    """What, about what, start and end of the longest moment of each kind."""
    if steps:
        step = max(steps, key=lambda one: one.window_ns).step
        yield "longest step", f"step {step.number}, ", step.start_ns, step.end_ns
    busy = trace.time_of(np.arange(len(trace.rows.gpu.start_ns)))
    computing = trace.time_of(~trace.is_copy & ~trace.is_communication)
    for what, times in (
        ("longest exposed communication", subtract(trace.communication, computing)),
        ("longest idle time", Intervals(busy.end[:-1], busy.start[1:])),
    ):
        if len(times):
            place = int(np.argmax(times.end - times.start))
            yield what, "", int(times.start[place]), int(times.end[place])


def _events(trace: Trace, start: int, end: int) -> tuple[list[Event], int]:
    """Events that overlap with an interval, and how many there are."""
    rows = trace.rows
    found, total = list[Event](), 0
    tables: list[tuple[Any, Any]] = [
        (rows.gpu, _gpu_event), (rows.operators, _operator_event), (rows.calls, _call_event),
        (rows.annotations, _annotation_event),
    ]  # fmt: skip
    for some, event in tables:
        reaches = (some.start_ns < end) & (some.start_ns + some.duration_ns > start)
        places: Int64 = np.flatnonzero(reaches)
        total += len(places)
        longest = places[np.argsort(-some.duration_ns[places], kind="stable")]
        for place in np.sort(longest[: MOST_EVENTS - len(found)]).tolist():
            found.append(_event(event(trace, some, place), rows.names[some.name[place]],
                                some.start_ns[place], some.duration_ns[place]))  # fmt: skip
    return found, total


def _event(about: Event, name: str, start: Any, duration: Any) -> Event:
    times = {"ts": Decimal(int(start)).scaleb(-3), "dur": Decimal(int(duration)).scaleb(-3)}
    return {"ph": "X", "name": name, **about, **times}


def _known(**values: int) -> Event:
    return {name.replace("__", " "): value for name, value in values.items() if value != MISSING}


def _gpu_event(trace: Trace, gpu: Any, place: int) -> Event:
    device, stream = int(gpu.device[place]), int(gpu.stream[place])
    args = _known(device=device, stream=stream, correlation=int(gpu.correlation[place]))
    args |= _known(External__id=int(gpu.external_id[place]), bytes=int(gpu.bytes[place]))
    for name in ("grid", "block"):
        sizes = getattr(gpu, name)[place].tolist()
        args |= {name: sizes} if any(sizes) else {}
    kind = _CATEGORIES[GpuKind(int(gpu.kind[place]))]
    return {"cat": kind, "pid": device, "tid": stream, "args": args}


def _operator_event(trace: Trace, operators: Any, place: int) -> Event:
    args = _known(External__id=int(operators.external_id[place]))
    recorded = int(operators.arguments[place])
    if recorded != MISSING:
        arguments = trace.rows.arguments[recorded]
        for name, text in (("Input Dims", arguments.shapes), ("Input type", arguments.dtypes)):
            args |= {name: msgspec.Raw(text.encode())} if text else {}
    return {"cat": "cpu_op", **_thread(trace, operators.thread[place]), "args": args}


def _call_event(trace: Trace, calls: Any, place: int) -> Event:
    args = _known(correlation=int(calls.correlation[place]),
                  External__id=int(calls.external_id[place]))  # fmt: skip
    return {"cat": "cuda_runtime", **_thread(trace, calls.thread[place]), "args": args}


def _annotation_event(trace: Trace, annotations: Any, place: int) -> Event:
    cat = "gpu_user_annotation" if annotations.on_gpu[place] else "user_annotation"
    return {"cat": cat, **_thread(trace, annotations.thread[place])}


def _thread(trace: Trace, thread: int) -> Event:
    pid, _, tid = (trace.rows.threads[thread] if thread != MISSING else "host/0").rpartition("/")
    numbers = {"pid": pid, "tid": tid}
    return {name: int(one) if one.isdecimal() else one for name, one in numbers.items()}


def _content(trace: Trace, events: Sequence[Event]) -> bytes:
    rows = trace.rows
    used = sorted({event["pid"] for event in events if event["cat"] == "kernel"})
    labels = [
        {"ph": "M", "name": "process_name", "pid": device, "tid": 0,
         "args": {"name": f"GPU {device} {trace.device_name(device)}".rstrip()}}
        for device in used
    ]  # fmt: skip
    document = {
        "baseTimeNanoseconds": rows.base_ns,
        "deviceProperties": [{"id": number, "name": one} for number, one in rows.devices.items()],
        **({} if rows.rank is None else {
            "distributedInfo": {"rank": rows.rank, "world_size": rows.world_size}
        }),
        "traceEvents": [*labels, *events],
    }  # fmt: skip
    return gzip.compress(encoded(document), mtime=0)


def summary_table(summaries: Iterable[Summary]) -> Table:
    """``trace_summary``: one row per file. Values that a workbook does not record are None."""
    return table("trace_summary", Summary, summaries)


def step_table(steps: Iterable[StepSummary]) -> Table:
    """``trace_steps``: one row per file and step."""
    return table("trace_steps", StepSummary, steps)


def gemms_table(rows: Sequence[GemmRow]) -> Table:
    """``gemms``: one row per kernel and shape."""
    return table("gemms", GemmRow, with_shares(rows))


def shapes_table(load: Workload) -> Table:
    """``shapes``: one row per distinct GEMM."""
    return table("shapes", WorkloadGemm, load.gemms)


def host_operators_table(rows: Sequence[HostOperator]) -> Table:
    """``host_operators``: one row per file and operator with the same input sizes and types; shares
    refer to the file's self time."""
    return table("host_operators", HostOperator, rows)


class _OfJob(Row):
    job: str = fact("the job, as its traces or its folder name it")


class _MatchedRow(_OfJob):
    one: Matched = inline()


class _KindRow(_OfJob):
    one: JobKind = inline()


class _KernelRow(_OfJob):
    rank: int = fact("rank of the trace")
    collective: int | None = fact("number of the matched collective")
    one: Collective = inline()
    wait_ns: int | None = fact("time that the rank waited for the last", "µs")


class _RankRow(_OfJob):
    straggler: Straggler = inline()
    unmatched: int = fact("kernels that were not matched")
    clock: ClockOffset = inline()


def matched_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_matched``: matched collectives of all jobs; for a job without any, such as one
    of a single rank, each kernel with its known properties. Waits are in :func:`kernels_table`."""
    rows = (_MatchedRow(job=found.job.name, one=one) for found in jobs for one in found.listed)
    return table("collectives_matched", _MatchedRow, rows)


def kinds_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_kinds``: the same by operation, type, size and size of the group."""
    rows = (_KindRow(job=found.job.name, one=one) for found in jobs for one in found.kinds)
    return table("collectives_kinds", _KindRow, rows)


def kernels_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_kernels``: communication kernels of all ranks; ``collective`` numbers the
    matched ones of a job from 0, in the order of :func:`matched_table`."""
    rows = []
    for found in jobs:
        places: dict[tuple[int, int], tuple[int, int]] = {}
        for number, one in enumerate(found.matching.matched):
            waits = one.waits_ns()
            places |= {(rank, k.row): (number, waits[rank]) for rank, k in one.members}
        for rank, trace in sorted(found.job.by_rank.items()):
            for kernel in trace.collectives:
                place, wait = places.get((rank, kernel.row), (None, None))
                rows.append(_KernelRow(
                    job=found.job.name, rank=rank, collective=place, one=kernel, wait_ns=wait
                ))  # fmt: skip
    return table("collectives_kernels", _KernelRow, rows)


def ranks_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_ranks``: ranks of all jobs: how often they came last, how long they waited,
    how many kernels were not matched, and their clocks."""
    rows = (
        _RankRow(
            job=found.job.name, straggler=one, unmatched=found.matching.unmatched[one.rank],
            clock=clock,
        )
        for found in jobs
        for one, clock in zip(found.stragglers(), found.clocks, strict=True)
    )  # fmt: skip
    return table("collectives_ranks", _RankRow, rows)


def collectives_document(
    jobs: Sequence[JobCollectives], errors: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """One job's document, or ``jobs`` with one each where there are several.

    `errors` are the files that could not be read, with the reason.
    """
    bodies = [_job_body(job) for job in jobs]
    failed = {"errors": [{"file": file, "error": text} for file, text in (errors or {}).items()]}
    body = bodies[0] if len(bodies) == 1 else {"jobs": bodies}
    return {"schema_version": SCHEMA_VERSION, **body, **failed}


def _job_body(found: JobCollectives) -> dict[str, Any]:
    job, matching = found.job, found.matching
    groups = {one.group for rank in job.ranks for one in rank.collectives if one.group is not None}
    return {
        "per_rank": [one.record() for one in job.ranks],
        "matched": [one.record() for one in matching.matched],
        "stragglers": [one.record() for one in found.stragglers()],
        "unmatched": {str(rank): n for rank, n in sorted(matching.unmatched.items())},
        "job": job.name,
        "world_size": job.world_size,
        "missing_ranks": list(job.missing),
        "groups": [
            asdict(group)
            for group in sorted(groups, key=lambda group: (group.name or "", group.ranks))
        ],
        "mismatches": [asdict(one) for one in matching.mismatches],
        "clocks": [one.record() for one in found.clocks],
        "notes": list(found.notes),
    }


_DIRECT = ("Count", "total_direct_kernel_time_ms", "Percentage (%)")


_SUMMED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ops_summary": (("name",), _DIRECT),
    "ops_summary_by_category": (("op category",), _DIRECT),
    "kernel_summary": (
        ("Parent op category", "Parent cpu_op", "Kernel name"),
        ("Kernel duration (µs)_count", "Kernel duration (µs)_sum", "Percent of kernels time (%)",
         "Kernel duration (µs)_mean"),
    ),
}  # fmt: skip
"""Sheet -> the columns that identify a row of several files, and those with its calls, its time,
the percentage of the time of all, and the time of a call; other columns are left out."""


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
    if table.name not in _SUMMED or "file" not in table.names:
        return table
    by, figures = _SUMMED[table.name]
    sums: dict[tuple[Any, ...], list[Any]] = {}
    for file, calls, spent, *keys in table.select(("file", *figures[:2], *by)).rows:
        found = sums.setdefault(tuple(keys), [0, 0.0, set()])
        found[0] += calls
        found[1] += spent
        found[2].add(Path(file))
    whole = sum(spent for _, spent, _ in sums.values())
    ordered = sorted(sums.items(), key=lambda item: -item[1][1])
    columns = table.select((*by, *figures)).columns
    rows = [
        (*key, count, spent, 100 * spent / whole if whole else 0.0, spent / max(count, 1))
        for key, (count, spent, _) in ordered
    ]
    alone = [only_on(files) for _, (_, _, files) in ordered]
    rows = [row[: len(columns)] for row in rows]
    return with_only_on(Table(table.name, columns, rows), alone)


def with_only_on(table: Table, texts: Sequence[str]) -> Table:
    """`table` with the column :data:`ONLY_ON`, one of `texts` per row, if any of them is not
    empty."""
    if not any(texts):
        return table
    rows = [(*row, text or None) for row, text in zip(table.rows, texts, strict=True)]
    return Table(table.name, (*table.columns, Column(ONLY_ON)), rows)


class Sheets(Protocol):
    """Further sheets of a report, which see each trace while it is in memory."""

    def add(self, trace: Trace, summary: Summary, rank: RankTrace) -> None:
        """Add the sheets of one trace."""

    def tables(self, jobs: Sequence[JobCollectives]) -> list[Table]:
        """The sheets of all traces and jobs."""


_MOST_RANKS = 3
"""Maximum number of ranks to name one by one."""


_DIVISION = ("window_us", "compute_union_us", "exposed_comm_us", "idle_us", "gemm_kernel_us")
_OF_GEMMS = ("short_name", "m", "n", "k", "dtype", "count", "sum_us", "share", "tflops",
             "peak_fraction")  # fmt: skip
"""Facts of a brief document."""


def _chosen(rows: Iterable[Row], *names: str) -> list[dict[str, Any]]:
    """The facts `names` of each row."""
    return [{name: record.get(name) for name in names} for record in map(Row.record, rows)]


@dataclass(frozen=True)
class TraceReport:
    """The contents of a report of traces."""

    tables: list[Table] = field(default_factory=list)
    """Tables in the order of the workbook."""
    summaries: list[Summary] = field(default_factory=list)
    steps: list[StepSummary] = field(default_factory=list)
    gemms: list[GemmRow] = field(default_factory=list)
    host_operators: list[HostOperator] = field(default_factory=list)
    """Operators of all traces without work on a GPU."""
    host_products: list[GemmRow] = field(default_factory=list)
    """Matrix products among them, with operators in place of kernels."""
    without_gpu: list[Path] = field(default_factory=list)
    jobs: list[JobCollectives] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    """Product names of the GPUs that worked, as far as the traces record them."""
    lanes: list[TimelineLane] = field(default_factory=list)
    """Lanes of the timeline; [] unless it was requested."""
    errors: dict[str, str] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    """Moments worth a look in another viewer; [] unless the timeline was requested."""

    def table(self, name: str) -> Table | None:
        """The sheet of that name, if it is not empty."""
        return next((table for table in self.tables if table.name == name), None)

    def result(self, *, files: Sequence[str] = ()) -> Result:
        """Most important results: parts of the time by trace, step and rank, and GEMMs; `files`
        were written."""
        summaries = sorted(self.summaries, key=lambda one: -one.window_ns)
        steps = sorted(self.steps, key=lambda one: -one.window_ns)
        stragglers = [(job.job.name, one) for job in self.jobs for one in job.stragglers()]
        stragglers.sort(key=lambda found: -found[1].last_share)
        parts: dict[str, list[dict[str, Any]]] = {
            "moments": [one.record() for one in self.moments],
            "traces": _chosen(summaries, "file", *_DIVISION),
            "steps": _chosen(steps, "file", "step", *_DIVISION),
            "stragglers": [{"job": name, **one.record()} for name, one in stragglers],
            "gemms": _chosen(with_shares(self.gemms), *_OF_GEMMS),
            "host_operators": [one.record() for one in self.host_operators],
        }
        parts = {name: rows for name, rows in parts.items() if rows}
        counts = {name: len(rows) for name, rows in parts.items()}
        notes = {"files": list(files), "counts": counts, "warnings": self.warnings, **parts}
        return Result(notes={**notes, "remarks": self.remarks})

    @property
    def has_gpu_work(self) -> bool:
        """Whether anything ran on a GPU in any of the traces."""
        return len(self.without_gpu) < len(self.summaries)

    def page_table(self, name: str) -> Table | None:
        """The table that a page shows under the name of a sheet; None if it is empty. It is the
        sheet itself, except that operators of the host, and operators and kernels of GPUs, are
        added up over all files (:func:`sum_over_files`), and that ``host_products`` are the host's
        matrix products."""
        table = self.table(name)
        if name == "host_operators":
            table = host_operators_table(self.host_operators)
            inputs = [one.inputs for one in self.host_operators]
            rows = [[*row, text] for row, text in zip(table.rows, inputs, strict=True)]
            table = Table(name, (*table.columns, Column("inputs")), rows)
        elif name == "host_products":
            table = replace(gemms_table(self.host_products), name=name)
        elif name == "gemms" and table:
            table = with_only_on(table, [self.only_on(one.files) for one in self.gemms])
        elif table:
            table = sum_over_files(table, self.only_on)
        return table if table and table.rows else None

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
                    text = f"{noun_for(len(ranks), 'rank')} {', '.join(map(str, ranks))}"
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
        """Warnings about readable files: missing data, and reasons to doubt their numbers."""
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
        if not self.without_gpu:
            return []
        instead = "operators on the host are reported instead (sheet host_operators)"
        instead = instead if self.host_operators else "and no operators either"
        return [f"{without_gpu_text(self.without_gpu, len(self.summaries))}; {instead}"]


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
        with_lanes: also collect the data from which the timeline is drawn, and moments.
        times: the seconds of each stage are added to it: ``join``, ``tables``, ``timeline``.

    Raises:
        RequestError: a rank occurs twice in one job.
    """
    times = times if times is not None else {}
    report, ranks, devices = TraceReport(), list[RankTrace](), set[str]()
    moments: dict[str, Moment] = {}
    gemms, host, host_rows = Gemms(), HostOperators(), list[HostOperator]()
    with stage(times, "tables"):
        for trace in traces:
            with stage(times, "join"):
                _ = trace.launches
            report.summaries.append(summarize(trace))
            steps = summarize_steps(trace)
            report.steps.extend(steps)
            ranks.append(rank_trace(trace))
            if sheets is not None:
                sheets.add(trace, report.summaries[-1], ranks[-1])
            devices |= set(map(trace.device_name, set(trace.rows.gpu.device.tolist())))
            gemms.add(trace)
            if not trace.has_gpu_work:
                report.without_gpu.append(trace.file)
                host_rows += host.add(trace)
            if with_lanes:
                with stage(times, "timeline"):
                    report.lanes.extend(trace_lanes(trace, ranks[-1].rank))
                    _add_moments(moments, trace, steps)
        report = replace(
            report, gemms=gemms.rows(), host_operators=host.rows(), host_products=host.products(),
            jobs=analyse_jobs(ranks), devices=sorted(filter(None, devices)),
            errors={file: error.message for file, error in errors.items()},
            moments=sorted(moments.values(), key=_steps_first),
        )  # fmt: skip
        if sheets is not None:
            report.tables.extend(sheets.tables(report.jobs))
        report.tables.extend(table for table in own_tables(report, host_rows) if table.rows)
    return report


def own_tables(report: TraceReport, host_rows: Sequence[HostOperator] = ()) -> list[Table]:
    """Gemmetry's own sheets, the empty ones too; `host_rows` are the operators by file."""
    problems = [
        Problem(file=file, where="", what=why, kind="not_read", count=1)
        for file, why in report.errors.items()
    ]
    problems += [row for one in report.summaries for row in problem_rows(one.file, one.problems)]
    load = workload(report.gemms if report.has_gpu_work else report.host_products)
    jobs = report.jobs
    found = {
        "summary": summary_table(report.summaries),
        "steps": step_table(report.steps),
        "gemms": gemms_table(report.gemms),
        "shapes": _with_texts(shapes_table(load)),
        "host_operators": host_operators_table(host_rows),
        "collectives": kinds_table(jobs),
        "matched": matched_table(jobs),
        "ranks": ranks_table(jobs if any(job.matching.matched for job in jobs) else ()),
        "problems": table_of("problems", Problem, problems),
    }
    return [replace(table, name=name) for name, table in found.items()]


def _with_texts(table: Table) -> Table:
    """`table` with a text for each list: a cell of a sheet holds one value."""
    columns = tuple(
        replace(one, type=ColumnType.TEXT) if one.type is ColumnType.TEXTS else one
        for one in table.columns
    )
    rows = [[", ".join(v) if isinstance(v, list) else v for v in row] for row in table.rows]
    return Table(table.name, columns, rows)
