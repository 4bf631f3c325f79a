"""Everything that a report of traces shows, as tables: TraceLens' sheets, and ours beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmetry.domain.errors import RequestError
from gemmetry.reports.traces.collective_tables import kind_rows, matched_rows, rank_rows
from gemmetry.reports.traces.steps import step_rows
from gemmetry.reports.traces.sums import sum_over_files, with_only_on
from gemmetry.reports.traces.tables import (
    gemm_rows,
    host_operator_rows,
    shape_rows,
    summary_rows,
)
from gemmetry.traces.collectives.jobs import JobCollectives, analyse_jobs
from gemmetry.traces.gemms.shapes import Workload, workload
from gemmetry.traces.gemms.summary import GemmRow, gemm_table
from gemmetry.traces.jobs import RankTrace, rank_trace
from gemmetry.traces.model import Trace
from gemmetry.traces.operators.host import HostOperator, HostOperators, without_gpu_text
from gemmetry.traces.stages import stage
from gemmetry.traces.summary import Summary, summarize, summarize_steps
from gemmetry.traces.timeline import TimelineLane, trace_lanes
from gemmetry.traces.tracelens.collectives import (
    CommunicationNames,
    communication_names,
    job_sheets,
    single_trace_sheet,
)
from gemmetry.traces.tracelens.columns import Table
from gemmetry.traces.tracelens.sheets import BY_NAME
from gemmetry.traces.tracelens.tables import SHORT_KERNEL_US, trace_tables

_MOST_RANKS = 3
"""That are named one by one."""

OUR_SHEETS = {
    "summary": "One row a file: counts, and exact times in µs (docs: traces).",
    "steps": "The same for each step that the profiler marked.",
    "gemms": "GEMM kernels by kernel and shape; all GEMM time is in it, linked or not.",
    "shapes": "The distinct GEMMs of the workload; without work on a GPU, those of its operators.",
    "host_operators": "Operators of traces without work on a GPU, by input sizes and types: times "
    "in µs on the host, self_us without the operators nested in them; of matrix products, each "
    "recorded for one operator alone, the sizes, and 10¹² FLOP/s of the median call.",
    "collectives": "Matched collectives by kind; bandwidths in 10⁹ bytes/s.",
    "matched": "Every matched collective.",
    "ranks": "Who came last, who waited, and whose clock differs.",
    "problems": "What could not be read.",
}
"""Sheets of our own, after those with TraceLens' names."""

NOTES = (
    ("sheets", "Sheets from gpu_timeline to straggler_summary have the names, columns and units of "
     "TraceLens' workbooks (AMD-AGI/TraceLens 171dd747); the sheets after them are gemmetry's own. "
     "Sheets that would be empty are left out."),
    ("exactness", "Sums and unions of times are made in whole nanoseconds."),
    ("GFLOPS", "10⁹ FLOP of one call, of GEMMs 2·B·M·N·K (and B·M·N for a bias): an amount, not a "
     "speed. Each sheet's column says what counts."),
    ("MB, GB/s", "In TraceLens' sheets MB are 2²⁰ bytes and GB/s are 2³⁰ bytes/s; in collectives "
     "and matched they are 10⁹ bytes/s, as nccl-tests counts: a number there is 1.0737 times as "
     "large."),
    ("GEMM", "Kernel times of the GEMM sheet are those of all that a call launched, fills, copies "
     "and helper passes too, as TraceLens counts; GEMMs that no operator records are not in it. "
     "The sheet gemms has all of them, by kernel."),
    ("kernel lists", "The first kernel of a list is one that multiplies, if the operator launched "
     "one; TraceLens' lists begin with the shortest, often a fill, and have an entry for each "
     "place in the call, ours for each kernel and stream. Numbers are plain Python."),
    ("fills", "Fills that an operator launched count in its time; TraceLens counts them on GPUs "
     "of NVIDIA, and not on those of AMD."),
    ("operators by what they compute", "SDPA, CONV, BinaryElementwise, UnaryElementwise, "
     "Normalization and Reduce have PyTorch's own operators and flash_attn's, as TraceLens has, "
     "with all that a call launched. A call within a call of the same sheet has a row of its own, "
     "so their sums count such time twice. Calls without work on a GPU have no row; TraceLens "
     "gives them 0 µs. A copy counts one FLOP an element, as there."),
    ("corrected models", "Where TraceLens' amounts are not those of the operator, ours are: the "
     "bias of a convolution counts, groups of a transposed one do, and backward only the gradients "
     "that were requested; attention moves elements as wide as their type, not always 2 bytes, and "
     "arguments of flash_attn's backward are read at their own places; whether a normalization "
     "trains, has weights or wants a gradient is read as it is written, and cuDNN and MIOpen go "
     "backward only after training; of group_norm backward all channels have weights; reductions "
     "have as many results as they leave; max and min of two tensors are no reductions; a scalar "
     "that comes first does not set the result's type; bool and 16-bit integers have bytes."),
    ("unified_perf_summary", "Operators of which is known what they compute stand for all that "
     "they launched, as in TraceLens. Backward passes of attention stand there under the operator "
     "that launched them, without speeds; SDPA_bwd has these."),
    ("processes", "process_name and process_label are empty, and thread_name is process/thread: "
     "the names that a trace gives them are not kept."),
    ("parents", "Kernels whose launch is not in the file have rows without a parent; TraceLens "
     "drops them from short_kernels_summary."),
    ("op category", "By the operator's name, else by its first kernel; a few operators that "
     "TraceLens calls other have one here (attention, optimisers)."),
    ("UID", "ex_UID and UID_first are External id of the trace, not TraceLens' event number."),
    ("collectives", "All kinds of collectives are matched, compared and counted, not only the four "
     "of TraceLens; what a kernel does not record is taken from the operators around its launch. "
     "A kernel that names no group has that of its stream, if that leaves one only. Times are as "
     "recorded; the sheet ranks shows where clocks differ."),
    ("not made", "Models of operators of other libraries (vLLM, AITER, Transformer Engine, Primus, "
     "Triton, attention of several lengths, experts), whose time is in ops_unique_args, and sheets "
     "of uneven all-to-alls by themselves."),
)  # fmt: skip


@dataclass(frozen=True)
class TraceReport:
    """What was found in traces."""

    tables: list[Table]
    """In the order of the workbook."""
    summaries: list[Summary]
    steps: list[Summary]
    """Of all traces."""
    gemms: list[GemmRow]
    host_operators: list[HostOperator]
    """Of the traces without work on a GPU, all together."""
    host_products: list[GemmRow]
    """Matrix products among them, with operators for kernels."""
    without_gpu: list[Path]
    """Files without work on a GPU."""
    jobs: list[JobCollectives]
    devices: list[str]
    """Products of the GPUs that worked, as far as the traces tell."""
    lanes: list[TimelineLane]
    """Of the timeline; [] unless it was requested."""
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
        """What a page shows under the name of a sheet: the sheet, but operators of the host over
        all files together, and their matrix products as ``host_products``; operators and kernels
        of GPUs over all files together too (:func:`sum_over_files`); None if it is empty."""
        match name:
            case "host_operators":
                rows = host_operator_rows(self.host_operators)
                for row, one in zip(rows, self.host_operators, strict=True):
                    row["inputs"] = one.inputs
            case "host_products":
                rows = gemm_rows(self.host_products)
            case "gemms":
                found = self.table(name)
                return found and with_only_on(found, [self.only_on(g.files) for g in self.gemms])
            case _:
                found = self.table(name)
                return found and sum_over_files(found, self.only_on)
        return _table(name, rows) if rows else None

    def only_on(self, files: Set[Path]) -> str:
        """``rank 3``, ``ranks 0, 2`` or ``5 of 64 ranks``: which ranks of a job the traces `files`
        are of; "" if they are of all its ranks, of several jobs, or the job has but one rank."""
        jobs = [job for job in self.jobs if len(job.job.ranks) > 1]
        for job in jobs:
            members = [one for one in job.job.ranks if one.span != (0, 0)]
            ranks = [one.rank for one in members if one.file in files]
            if len(ranks) == len(files) < len(members):
                text = f"{len(ranks)} of {len(members)} ranks"
                if len(ranks) <= _MOST_RANKS:
                    numbers = ", ".join(map(str, ranks))
                    text = f"rank{'' if len(ranks) == 1 else 's'} {numbers}"
                return text if len(jobs) == 1 else f"{text} of {job.job.name}"
        return ""

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers has to know of these files."""
        return [*self.warnings, *self.remarks]

    @property
    def warnings(self) -> list[str]:
        """Of what is missing, or may not be as it seems."""
        partial = [f"{s.file} is partial: events are missing" for s in self.summaries if s.partial]
        failed = [f"{file} could not be read: {why}" for file, why in self.errors.items()]
        return [*failed, *partial, *self.job_warnings]

    @property
    def job_warnings(self) -> list[str]:
        """Of what is missing or doubtful between ranks."""
        # What a single trace without communication shows of ranks changes no number.
        jobs = [j for j in self.jobs if len(j.job.ranks) > 1 or j.job.ranks[0].collectives]
        several = len(jobs) > 1
        return [
            f"{job.job.name}: {note}" if several else note for job in jobs for note in job.notes
        ]

    @property
    def remarks(self) -> list[str]:
        """Of what the files hold."""
        files = self.without_gpu
        if not files:
            return []
        instead = "operators on the host are reported instead (sheet host_operators)"
        if not self.host_operators:
            instead = "and no operators either"
        return [f"{without_gpu_text(files, len(self.summaries))}; {instead}"]


@dataclass
class _Gathered:
    """What is kept of traces whose rows are gone."""

    short_kernel_us: float
    with_lanes: bool
    times: dict[str, float]
    tables: list[tuple[Path, Table]] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    steps: list[Summary] = field(default_factory=list)
    ranks: list[RankTrace] = field(default_factory=list)
    names: dict[Any, CommunicationNames] = field(default_factory=dict)
    lanes: list[TimelineLane] = field(default_factory=list)
    host: HostOperators = field(default_factory=HostOperators)
    host_rows: list[HostOperator] = field(default_factory=list)
    """Of each file."""
    devices: set[str] = field(default_factory=set)
    without_gpu: list[Path] = field(default_factory=list)

    def add(self, trace: Trace) -> None:
        with stage(self.times, "join"):
            _ = trace.launches
        with stage(self.times, "tables"):
            summary = summarize(trace)
            self.summaries.append(summary)
            self.steps += summarize_steps(trace)
            for table in trace_tables(trace, summary, short_kernel_us=self.short_kernel_us):
                self.tables.append((trace.file, table))
            rank = rank_trace(trace)
            self.ranks.append(rank)
            if rank.collectives:
                self.names[trace.file] = communication_names(trace)
                table = single_trace_sheet(rank, self.names[trace.file])
                self.tables.append((trace.file, table))
            self.devices |= set(map(trace.device_name, set(trace.rows.gpu.device.tolist())))
            if not trace.has_gpu_work:
                self.without_gpu.append(trace.file)
                self.host_rows += self.host.add(trace)
        if self.with_lanes:
            with stage(self.times, "timeline"):
                self.lanes += trace_lanes(trace, rank.rank)


def build_report(
    traces: Iterable[Trace],
    errors: Mapping[str, RequestError],
    *,
    short_kernel_us: float = SHORT_KERNEL_US,
    with_lanes: bool = False,
    times: dict[str, float] | None = None,
) -> TraceReport:
    """The report of `traces`, which are taken one by one and not kept.

    Args:
        errors: files that could not be read; looked at when all traces are through.
        with_lanes: also gather what the timeline is drawn from.
        times: gets the seconds of each stage added: ``join``, ``tables``, ``timeline``.

    Raises:
        RequestError: a rank occurs twice in one job.
    """
    times = times if times is not None else {}
    gathered = _Gathered(short_kernel_us, with_lanes, times)

    def passing() -> Iterator[Trace]:
        for trace in traces:
            gathered.add(trace)
            yield trace

    with stage(times, "tables"):
        gemms = gemm_table(passing())
        jobs = analyse_jobs(gathered.ranks)
        failed = {file: error.message for file, error in errors.items()}
        products = gathered.host.products()
        all_without = len(gathered.without_gpu) == len(gathered.summaries)
        load = workload(products if all_without else gemms)
        tables = _tracelens_tables(gathered, jobs)
        tables += _own_tables(gathered, gemms, load, jobs, failed)
    return TraceReport(
        tables=tables,
        summaries=gathered.summaries,
        steps=gathered.steps,
        gemms=gemms,
        host_operators=gathered.host.rows(),
        host_products=products,
        without_gpu=gathered.without_gpu,
        jobs=jobs,
        devices=sorted(filter(None, gathered.devices)),
        lanes=gathered.lanes,
        errors=failed,
    )


def _tracelens_tables(gathered: _Gathered, jobs: Sequence[JobCollectives]) -> list[Table]:
    parts: dict[str, list[tuple[str, Table]]] = {}
    for file, table in gathered.tables:
        parts.setdefault(table.name, []).append((str(file), table))
    several = len(gathered.summaries) > 1
    joined = {
        name: _joined(name, found, "file" if several else "") for name, found in parts.items()
    }
    of_jobs: dict[str, list[tuple[str, Table]]] = {}
    with_collectives = [job for job in jobs if any(one.collectives for one in job.job.ranks)]
    none = CommunicationNames({}, 0)
    for job in with_collectives:
        names = {one.file: gathered.names.get(one.file, none) for one in job.job.ranks}
        for table in job_sheets(job, names):
            if several or table.name == "nccl_long":
                of_jobs.setdefault(table.name, []).append((job.job.name, table))
    for name, found in of_jobs.items():
        joined[name] = _joined(name, found, "job" if len(with_collectives) > 1 else "")
    return [joined[name] for name in BY_NAME if name in joined]


def _joined(name: str, parts: Sequence[tuple[str, Table]], column: str) -> Table:
    """One table of those of several files or jobs, which `column` distinguishes ("": there is but
    one)."""
    first = parts[0][1]
    if not column:
        return first
    headings = list(dict.fromkeys(h for _, table in parts for h in table.headings))
    rows: list[tuple[Any, ...]] = []
    for label, table in parts:
        if list(table.headings) == headings:
            rows += [(label, *row) for row in table.rows]
            continue
        places = {heading: place for place, heading in enumerate(table.headings)}
        rows += [
            (label, *(row[places[h]] if h in places else None for h in headings))
            for row in table.rows
        ]
    return Table(name, (column, *headings), rows)


def _own_tables(
    gathered: _Gathered,
    gemms: Sequence[GemmRow],
    load: Workload,
    jobs: Sequence[JobCollectives],
    failed: Mapping[str, str],
) -> list[Table]:
    found: dict[str, list[dict[str, Any]]] = {
        "summary": summary_rows(gathered.summaries),
        "steps": step_rows(gathered.steps),
        "gemms": gemm_rows(gemms),
        "shapes": shape_rows(load),
        "host_operators": host_operator_rows(gathered.host_rows),
        "collectives": kind_rows(jobs),
        "matched": matched_rows(jobs),
        "ranks": rank_rows(jobs) if any(job.matching.matched for job in jobs) else [],
        "problems": [
            {"file": file, "where": "", "what": why} for file, why in failed.items()
        ] + [
            {"file": str(s.file), "where": problem.where, "what": problem.what}
            for s in gathered.summaries for problem in s.problems
        ],
    }  # fmt: skip
    return [_table(name, rows) for name, rows in found.items() if rows]


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table(name, tuple(rows[0]), [tuple(map(_cell, row.values())) for row in rows])


def _cell(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
