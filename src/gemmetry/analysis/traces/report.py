"""Everything that a report of traces shows, as tables: TraceLens' sheets, and ours next to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gemmetry.analysis.traces.collectives import kinds_table, matched_table, ranks_table
from gemmetry.analysis.traces.sums import sum_over_files, with_only_on
from gemmetry.analysis.traces.tables import (
    gemms_table,
    host_operators_table,
    shapes_table,
    step_table,
    summary_table,
)
from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.domain.units import noun_for
from gemmetry.traces.collectives.jobs import JobCollectives, analyse_jobs
from gemmetry.traces.gemms.shapes import Workload, workload
from gemmetry.traces.gemms.summary import GemmRow, above_peak_warning, gemm_table
from gemmetry.traces.jobs import RankTrace, rank_trace
from gemmetry.traces.missing import problem_texts
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
from gemmetry.traces.tracelens.sheets import BY_NAME
from gemmetry.traces.tracelens.tables import SHORT_KERNEL_US, trace_tables

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


@dataclass
class _Gathered:
    """The data kept of traces whose rows have been released."""

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
    """Operators of each file."""
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
    """The report of `traces`, which are read one by one and not kept.

    Args:
        errors: files that could not be read; examined after all traces have been read.
        with_lanes: also collect the data from which the timeline is drawn.
        times: the seconds of each stage are added to it: ``join``, ``tables``, ``timeline``.

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
        own = own_tables(
            summaries=gathered.summaries,
            steps=gathered.steps,
            gemms=gemms,
            load=load,
            host_rows=gathered.host_rows,
            jobs=jobs,
            failed=failed,
        )
        tables += [table for table in own if table.rows]
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
