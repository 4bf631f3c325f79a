"""Data of the files of a sweep's analysis: points, read from traces or from TraceLens' workbooks,
and the tables of collectives, times and varying GEMMs.

Tables begin with the columns of the scripts of the sweep analysis document, and have ours after
them. Unlike there, a row is a kernel with a shape, so that all its times are of the same problem.
A kernel that only fills or adds up is never listed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from gemmetry.documents.tracelens import BY_NAME, job_sheets
from gemmetry.domain.rows import SCHEMA_VERSION, columns
from gemmetry.domain.tables import Column, ColumnType, Table, grouped
from gemmetry.formats.events import Bools
from gemmetry.statistics.intervals import median
from gemmetry.sweeps.comparison import WORKBOOKS
from gemmetry.sweeps.folder import Point
from gemmetry.sweeps.gemms import Floats, members_of
from gemmetry.sweeps.points import PointAnalysis, SweepAnalysis
from gemmetry.sweeps.ranks import RankFacts
from gemmetry.sweeps.rows import (
    GemmKind,
    GemmStatistics,
    PointRow,
    PooledRow,
    StepMedian,
    SweepConfiguration,
    configuration_entry,
)
from gemmetry.sweeps.workers import RankAnalysis, gemm_rows
from gemmetry.traces.collectives.summary import operation_name

Timeline = Mapping[str, tuple[float, float]]
"""Row of ``gpu_timeline`` -> its time in ms, and its share of the whole time in %."""


class TracedGemm(NamedTuple):
    """Every instance of a GEMM, which only a trace shows."""

    facts: RankFacts
    statistics: GemmStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGemm:
    """One GEMM, a kernel with a shape, on one rank of a point; times in µs."""

    rank: int | None
    kind: GemmKind
    count: int
    min_us: float
    median_us: float
    max_us: float
    durations_us: Floats
    """Durations of all instances of a trace; of a workbook the shortest, the median and the
    longest."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """The row of the sheet ``GEMM`` of the operator that launched it; {} where there is none."""
    traced: TracedGemm | None = None
    """Instances; None from a workbook."""

    @property
    def spread_us(self) -> float:
        """Longest less shortest time, which the document's scripts call "time variance"."""
        return self.max_us - self.min_us


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPoint:
    """One point of a sweep."""

    configuration: SweepConfiguration
    repeat: int | None
    """Number of the repeat; None in a sweep without repeats."""
    outcome: str = "ok"
    """Outcome as in :attr:`~gemmetry.sweeps.folder.Point.outcome`."""
    reason: str = ""
    gemms: tuple[RankGemm, ...] = ()
    timelines: Mapping[int | None, Timeline] = field(default_factory=dict)
    """Timelines by rank, of ranks that did work on a GPU."""

    @property
    def thread_config(self) -> str:
        """``256thread``; "" where the sweep does not set the number of threads."""
        return _named(self.configuration.threads, "thread")

    @property
    def channel_config(self) -> str:
        """``28ch``; "" where the sweep does not set the number of channels."""
        return _named(self.configuration.channels, "ch")

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of its reports: ``256thread``, then one per further axis, then the repeat."""
        # The name of a folder cannot have a slash.
        axes = (re.sub(r"[/\\]", "_", f"{name}={value}") for name, value in self.configuration.axes)
        repeat = () if self.repeat is None else (f"repeat_{self.repeat:02d}",)
        return tuple(filter(None, (self.thread_config, *axes, *repeat)))

    @property
    def full_config(self) -> str:
        """``256thread_28ch``, with further axes and the repeat where there are any."""
        thread, *others = self.folders if self.thread_config else ("", *self.folders)
        return "_".join(filter(None, (thread, self.channel_config, *others))) or "all"

    @property
    def axes_text(self) -> str:
        """``NCCL_ALGO=Ring, bucket=32``; "" without further axes."""
        return ", ".join(f"{name}={value}" for name, value in self.configuration.axes)

    def rank_reports(self, folder: Path) -> str:
        """The beginning of the paths of the workbooks of single traces, which end in ``rank0.xlsx``
        or the like, below the `folder` of the analysis."""
        name = "_".join(filter(None, ("perf", self.channel_config)))
        return str(folder.joinpath(*self.folders, "individual_reports", f"{name}_"))

    def collective_report(self, folder: Path) -> Path:
        """The workbook of the collectives of all ranks below the `folder` of the analysis."""
        name = "_".join(filter(None, ("collective", self.channel_config)))
        return folder.joinpath(*self.folders, "collective_reports", f"{name}.xlsx")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedSweep:
    """All points of a sweep."""

    points: Sequence[ReportedPoint]
    collectives: Callable[[ReportedPoint], list[Table]]
    """The sheets of TraceLens' report on the collectives of all ranks of a point; [] without any.
    They are made on request, because those of a thousand ranks take much memory."""
    is_traced: bool
    """Whether the GEMM was read from traces; workbooks do not show single instances."""
    problems: Sequence[str] = ()
    """Files that could not be read."""


def comparable_gemms(point: ReportedPoint) -> list[RankGemm]:
    """The GEMMs of a point whose instances are one problem each: not those whose shape is not
    known, unless the traces record no shape at all; helper passes are left out."""
    gemms = [gemm for gemm in point.gemms if not gemm.kind.is_helper]
    return [gemm for gemm in gemms if gemm.kind.m is not None] or gemms


def _named(number: int | None, word: str) -> str:
    return "" if number is None else f"{number}{word}"


def text(name: str, description: str) -> Column:
    """A column of texts."""
    return Column(name, description=description)


def integer(name: str, description: str) -> Column:
    """A column of integers."""
    return Column(name, ColumnType.INTEGER, description=description)


def number(name: str, unit: str, description: str) -> Column:
    """A column of numbers."""
    return Column(name, ColumnType.NUMBER, unit, description)


AXES = (
    text("axes", "further axes of the sweep with their values"),
    integer("repeat", "number of the repeat; empty in a sweep without repeats"),
)
FULL_CONFIG = text("full_config", "point of the sweep: thread_config, channel_config, then further "
                   "axes and the repeat")  # fmt: skip
_OF_POINT: tuple[tuple[Column, Callable[[ReportedPoint], Any]], ...] = (
    (FULL_CONFIG, lambda point: point.full_config),
    (integer("threads_num", "threads per block of a collective, as requested"),
     lambda point: point.configuration.threads),
    (text("thread_config", "the same as the name of a folder"), lambda point: point.thread_config),
    (integer("channels_num", "channels of a collective, as requested"),
     lambda point: point.configuration.channels),
    (text("channel_config", "the same as in the names of files"),
     lambda point: point.channel_config),
    (AXES[0], lambda point: point.axes_text),
    (AXES[1], lambda point: point.repeat),
)  # fmt: skip
CONFIGURATION = {column.name: column for column, _ in _OF_POINT[:5]}


def configuration_cells(point: ReportedPoint) -> dict[str, Any]:
    """The values of :data:`CONFIGURATION` and :data:`AXES`."""
    return {column.name: value(point) for column, value in _OF_POINT}


SOURCE = "nccl_summary_implicit_sync"
"""The sheet whose rows it has."""

_OF_SHEET = {column.name: column for column in BY_NAME[SOURCE].columns}
_SIZE, _OPERATION = "Full msg size (MB)", "Collective name"


def _four(name: str) -> tuple[Column, ...]:
    return tuple(_OF_SHEET[f"{name}_{what}"] for what in ("mean", "median", "min", "max"))


MASTER = (
    text("operation_id", "number of the operation by size of its message; operations of one size "
         "that differ in name or type have their own numbers"),
    text("operation_name", "size of the message: tiny (in KB = 2¹⁰ bytes), medium or large (in MB "
         "= 2²⁰ bytes)"),
    _OF_SHEET[_SIZE],
    _OF_SHEET["In msg nelems"],
    *(column for column, _ in _OF_POINT[1:5]), FULL_CONFIG,
    *(_OF_SHEET[name] for name in (_OPERATION, "dtype", "Group size", "count")),
    *_four("comm_latency"),
    _OF_SHEET["Total comm latency (ms)"],
    *_four("algo bw (GB/s)"),
    *_four("bus bw (GB/s)"),
    *_four("skew in start time"),
    *_four("skew in end time"),
    _OF_SHEET["Process Group Name"],
    text("source_file", "workbook with the collectives of the point"),
    *AXES,
)  # fmt: skip

TINY_MB, MEDIUM_MB = 0.01, 100
"""Bounds of the sizes that the document's script calls tiny and medium."""


def master_table(of_points: Iterable[tuple[ReportedPoint, str, Table]]) -> Table:
    """``NCCL_Data``: one row per point and kind of collective, by operation and point.

    Args:
        of_points: each point with the name of its workbook and the sheet
            ``nccl_summary_implicit_sync``.
    """
    rows: list[tuple[ReportedPoint, dict[str, Any]]] = []
    for point, file, sheet in of_points:
        cells = {**configuration_cells(point), "source_file": file}
        rows += [(point, {**record, **cells}) for record in sheet.records()]
    identities = {
        key: f"OP_{number:02d}" for number, key in enumerate(sorted({_key(r) for _, r in rows}), 1)
    }
    for _, row in rows:
        row["operation_id"] = identities[_key(row)]
        row["operation_name"] = operation_size(row.get(_SIZE))
    rows.sort(key=lambda one: (_key(one[1]), one[0].configuration.order, one[0].repeat or 0))
    return Table("NCCL_Data", MASTER, [[row.get(c.name) for c in MASTER] for _, row in rows])


def operation_size(megabytes: float | None) -> str:
    """``medium_32.00MB``; ``unknown`` where the size is not known."""
    if megabytes is None:
        return "unknown"
    if megabytes < TINY_MB:
        return f"tiny_{megabytes * 1024:.3f}KB"
    return f"{'medium' if megabytes < MEDIUM_MB else 'large'}_{megabytes:.2f}MB"


def _key(row: Mapping[str, Any]) -> tuple[float, str, str]:
    """Key of an operation for sorting; those of unknown size come last."""
    size = row.get(_SIZE)
    return math.inf if size is None else size, str(row.get(_OPERATION)), str(row.get("dtype"))


_PARTS = {
    "compute_ms": "computation_time",
    "exposed_comm_ms": "exposed_comm_time",
    "exposed_copy_ms": "exposed_memcpy_time",
    "idle_ms": "idle_time",
}
"""Part of the time -> its row in ``gpu_timeline``."""
_WHOLE = "total_time"
_MIB = 2**20

Entry = dict[str, Any]


def workbook_document(sweep: ReportedSweep, folder: str) -> Entry:
    """The document of `sweep`, whose folder is `folder`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "source": WORKBOOKS,
        "sweep": folder,
        "points": [_point(one) for one in sweep.points],
        "gemms": [],
        "pooled_gemms": [entry for one in sweep.points for entry in _gemms(one)],
        "collectives": [
            {**_keys(one), **_collective(row)}
            for one in sweep.points
            for table in sweep.collectives(one)
            if table.name == SOURCE
            for row in table.records()
        ],
        "best": {"step_ms": None},
        "problems": list(sweep.problems),
    }


def _keys(one: ReportedPoint) -> Entry:
    return {**configuration_entry(one.configuration), "repeat": one.repeat or 1}


def _point(one: ReportedPoint) -> Entry:
    return {
        **PointRow.of(_keys(one)).record(),
        "outcome": one.outcome,
        "reason": one.reason or None,
        "ranks": list(one.timelines),
        "versions": {},
        "step_ms": StepMedian(n=0).record(),
        "whole_trace": _slowest(one.timelines.values()),
    }


def _slowest(timelines: Iterable[Timeline]) -> Entry | None:
    """The times of the rank whose trace lasts longest, in ms."""
    found = [one for one in timelines if _WHOLE in one]
    if not found:
        return None
    slowest = max(found, key=lambda one: one[_WHOLE][0])
    parts = {part: slowest[row][0] if row in slowest else None for part, row in _PARTS.items()}
    return {"window_ms": slowest[_WHOLE][0], **parts, "slowed_compute_ms": None}


def _gemms(one: ReportedPoint) -> Iterable[Entry]:
    for kind, gemms in grouped(comparable_gemms(one), lambda gemm: gemm.kind).items():
        yield {
            **PooledRow.of(_keys(one) | kind.record()).record(),
            "ranks": sorted({gemm.rank for gemm in gemms if gemm.rank is not None}),
            "count": sum(gemm.count for gemm in gemms),
            "median_us": median([gemm.median_us for gemm in gemms]),
            "verdict": "not shown by workbooks",
        }


def _collective(row: Mapping[str, Any]) -> Entry:
    size = row["Full msg size (MB)"]
    return {
        "op": operation_name(row["Collective name"]) or row["Collective name"],
        "dtype": row["dtype"],
        "bytes": None if size is None else round(size * _MIB),
        "group_size": row["Group size"],
        "count": row["count"],
        "latency_us": row["comm_latency_median"],
        "busbw_gbps": None,
        "duration_us": None,
        "is_complete": True,
    }


@dataclass(frozen=True, slots=True)
class RelativeDurations:
    """Instances of all GEMMs on one rank of a point, as multiples."""

    point: ReportedPoint
    rank: int | None
    alone: Floats
    """Instances without communication; of workbooks, which do not show it, all."""
    overlapped: Floats
    """Instances next to communication."""


@dataclass(frozen=True, slots=True)
class SweepSamples:
    """The instances of a sweep."""

    ranks: list[RelativeDurations]
    """One entry per rank and point with GEMMs."""
    kinds: int
    """Number of GEMMs, each a kernel with a shape."""
    left_out: int
    """GEMMs that are not in it because they never ran alone, although others did."""
    is_of_alone: bool
    """Whether a multiple of 1 is the sweep's median of the GEMM alone; otherwise no instance is
    known to have run alone, and it is the median of all instances."""

    @property
    def count(self) -> int:
        """Number of instances."""
        return sum(len(one.alone) + len(one.overlapped) for one in self.ranks)


_Instances = tuple[RankGemm, Bools]
"""One GEMM of one rank of a point, and which instances ran next to communication."""


def sweep_samples(points: Sequence[ReportedPoint]) -> SweepSamples:
    """Samples of all points; without ranks where no GEMM was recorded."""
    of_points = [
        (point, [(gemm, _overlapped(gemm)) for gemm in comparable_gemms(point)]) for point in points
    ]
    everything = [one for _, found in of_points for one in found]
    is_of_alone = any(gemm.traced and not together.all() for gemm, together in everything)
    units = _units(everything, only_alone=is_of_alone)
    ranks = []
    for point, found in of_points:
        known = [one for one in found if one[0].kind in units]
        for rank, ones in grouped(known, lambda one: one[0].rank).items():
            multiples = np.concatenate([gemm.durations_us / units[gemm.kind] for gemm, _ in ones])
            together = np.concatenate([one for _, one in ones])
            ranks.append(RelativeDurations(point, rank, multiples[~together], multiples[together]))
    kinds = {gemm.kind for gemm, _ in everything}
    return SweepSamples(ranks, len(units), len(kinds - set(units)), is_of_alone)


def _overlapped(gemm: RankGemm) -> Bools:
    if gemm.traced is None:
        return np.zeros(len(gemm.durations_us), bool)
    instances = gemm.traced.facts.gemms
    result: Bools = instances.overlap_ns[instances.kind == gemm.traced.statistics.index] > 0
    return result


def _units(found: Sequence[_Instances], *, only_alone: bool) -> dict[GemmKind, float]:
    """The time that counts as 1, by GEMM, in µs."""
    joined = {
        kind: np.concatenate([
            gemm.durations_us[~together | (not only_alone)] for gemm, together in ones
        ])
        for kind, ones in grouped(found, lambda one: one[0].kind).items()
    }  # fmt: skip
    medians = {kind: median(one) for kind, one in joined.items() if len(one)}
    # Only damaged traces have durations of 0.
    return {kind: middle for kind, middle in medians.items() if middle > 0}


TIME, PERCENT = "time ms", "percent"
ALL_DATA = (
    *CONFIGURATION.values(),
    integer("num_ranks", "ranks with work on a GPU"),
    text("type", "row of the sheet gpu_timeline"),
    number(TIME, "ms", "mean over the ranks"),
    number(PERCENT, "%", "mean over the ranks of its share of the rank's total_time"),
    *AXES,
    number("median ms", "ms", "median over the ranks"),
    number("min ms", "ms", "smallest over the ranks"),
    number("max ms", "ms", "largest over the ranks"),
    number("spread ms", "ms", "largest less smallest"),
    integer("max rank", "rank with the largest"),
    integer("zero ranks", "ranks without any such time; with --geo-mean, one makes the mean 0"),
)
KEY_METRICS = ("computation_time", "exposed_comm_time", "busy_time", "idle_time", "total_time")
SUMMARY = (
    FULL_CONFIG,
    CONFIGURATION["threads_num"],
    CONFIGURATION["channels_num"],
    integer("num_ranks", "ranks with work on a GPU"),
    *(number(f"{name}_ms", "ms", "mean over the ranks") for name in KEY_METRICS),
    *AXES,
    text("outcome", "ok, failed, no_traces or not_run"),
    text("reason", "why it is not ok"),
    integer("slowest_rank", "rank with the longest computation_time; a rank that waits for it is "
            "busy with communication meanwhile, so that busy_time does not show who is slow"),
    number("slowest_rank_computation_time_ms", "ms", "its computation_time"),
    number("computation_time_spread_ms", "ms", "largest less smallest computation_time of a rank"),
)  # fmt: skip


def timeline_tables(points: Sequence[ReportedPoint], *, geometric: bool = False) -> list[Table]:
    """``All_Data``, ``Pivot_Time_ms``, ``Pivot_Percent`` and ``Summary_By_Config``. Points without
    times are empty cells.

    Args:
        geometric: geometric means over the ranks; with a time of 0 the mean is 0.
    """
    mean = geometric_mean if geometric else fmean
    rows = [row for point in points for row in _rows(point, mean)]
    return [
        Table("All_Data", ALL_DATA, [[row.get(c.name) for c in ALL_DATA] for row in rows]),
        _pivot("Pivot_Time_ms", points, rows, TIME, "ms"),
        _pivot("Pivot_Percent", points, rows, PERCENT, "%"),
        Table("Summary_By_Config", SUMMARY, [_summary(point, rows) for point in points]),
    ]  # fmt: skip


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of times; 0 if one of them is."""
    if not all(value > 0 for value in values):
        return 0.0
    return math.exp(sum(map(math.log, values)) / len(values))


def _rows(
    point: ReportedPoint, mean: Callable[[Sequence[float]], float]
) -> Iterable[dict[str, Any]]:
    """One row per type, in the order of their names."""
    timelines = point.timelines
    for name in sorted({name for one in timelines.values() for name in one}):
        of_ranks = {rank: one[name] for rank, one in timelines.items() if name in one}
        times = [ms for ms, _ in of_ranks.values()]
        largest = max(of_ranks, key=lambda rank: of_ranks[rank][0])
        yield {
            **configuration_cells(point),
            "num_ranks": len(of_ranks),
            "type": name,
            TIME: mean(times),
            PERCENT: mean([percent for _, percent in of_ranks.values()]),
            "median ms": median(times),
            "min ms": min(times),
            "max ms": max(times),
            "spread ms": max(times) - min(times),
            "max rank": largest,
            "zero ranks": sum(ms == 0 for ms in times),
        }


def _pivot(
    name: str,
    points: Sequence[ReportedPoint],
    rows: Sequence[dict[str, Any]],
    value: str,
    unit: str,
) -> Table:
    configs = [point.full_config for point in points]
    cells = {(row["type"], row["full_config"]): row[value] for row in rows}
    kinds = sorted({row["type"] for row in rows})
    columns = (
        text("type", "row of the sheet gpu_timeline"),
        *(number(config, unit, "mean over the ranks of this point") for config in configs),
    )
    found = [[kind, *(cells.get((kind, config)) for config in configs)] for kind in kinds]
    return Table(name, tuple({column.name: column for column in columns}.values()), found)


def _summary(point: ReportedPoint, rows: Sequence[dict[str, Any]]) -> list[Any]:
    """The row of a point in the order of :data:`SUMMARY`."""
    own = {row["type"]: row for row in rows if row["full_config"] == point.full_config}
    compute = own.get("computation_time", {})
    configuration = point.configuration
    return [
        point.full_config, configuration.threads, configuration.channels, len(point.timelines),
        *(own.get(name, {}).get(TIME) for name in KEY_METRICS), point.axes_text, point.repeat,
        point.outcome, point.reason or None,
        *(compute.get(name) for name in ("max rank", "max ms", "spread ms")),
    ]  # fmt: skip


def reported_sweep(analysis: SweepAnalysis) -> ReportedSweep:
    """The points of a sweep, including those without traces."""
    has_repeats = analysis.sweep.repeats > 1
    points = [
        bare_point(
            one.point,
            has_repeats=has_repeats,
            gemms=tuple(gemm for rank in one.ranks for gemm in _traces_gemms(rank)),
            timelines={
                rank.facts.rank: _timeline(rank.facts) for rank in one.ranks if rank.facts.on_gpu
            },
        )
        for one in analysis.points
    ]
    analysed = {one.full_config: of for one, of in zip(points, analysis.points, strict=True)}
    return ReportedSweep(
        points=points,
        collectives=lambda point: collective_sheets(analysed[point.full_config]),
        is_traced=True,
    )


def bare_point(point: Point, *, has_repeats: bool, **contents: Any) -> ReportedPoint:
    """A point with these `contents` (`gemms`, `timelines`); without any, it names files."""
    repeat = point.repeat if has_repeats else None
    return ReportedPoint(configuration=point.configuration, repeat=repeat, outcome=point.outcome,
                        reason=point.reason, **contents)  # fmt: skip


def _traces_gemms(rank: RankAnalysis) -> Iterator[RankGemm]:
    facts = rank.facts
    members, sheet = members_of(facts), gemm_rows(rank.gemm_sheet)
    for found in rank.gemms:
        yield RankGemm(
            rank=facts.rank,
            kind=found.kind,
            count=found.count,
            min_us=found.min_us,
            median_us=found.median_us,
            max_us=found.max_us,
            durations_us=facts.gemms.duration_ns[members[found.index]] / 1000,
            row=_row_of(found.kind, sheet),
            traced=TracedGemm(facts, found),
        )


def _row_of(kind: GemmKind, sheet: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The row of an operator with the sizes of `kind` that launched its kernel; of several the one
    with the most time, which the sheet has first."""
    sizes = (kind.m, kind.n, kind.k, kind.batch)
    name = repr(kind.kernel)
    for row in sheet:
        same_sizes = tuple(row.get(f"param: {letter}") for letter in "MNKB") == sizes
        if same_sizes and name in str(row.get("kernel_details__summarize_kernel_stats")):
            return row
    return {}


def _timeline(facts: RankFacts) -> Timeline:
    """The rows of TraceLens' ``gpu_timeline``."""
    whole = facts.times["total_time"]
    return {name: (ns / 1e6, 100 * ns / whole) for name, ns in facts.times.items()}


def collective_sheets(point: PointAnalysis) -> list[Table]:
    """The sheets of TraceLens' report on the collectives of all ranks; [] without collectives."""
    has_any = any(one.collectives for one in point.job.job.ranks)
    return job_sheets(point.job) if has_any else []


HEAD = (
    integer("threads", "threads per block of a collective, as requested"),
    integer("channel", "channels of a collective, as requested"),
    integer("rank", "rank of the trace"),
    text("kernel_name", "full name of the kernel"),
    number("kernel_time_min_us", "µs", "shortest time of the kernel with this shape"),
    number("kernel_time_max_us", "µs", "longest time"),
    number("time_diff_us", "µs", "longest less shortest time, by which rows are chosen and sorted"),
)
OPERATOR_PREFIX = "col_"
"""Precedes the names of the columns of the sheet ``GEMM``."""

_OF_GEMM = {column.name: column for column in columns(GemmStatistics)}
_OF_KIND = ("m", "n", "k", "batch", "dtype", "layout")
_ROBUST = ("p5_us", "p95_us", "mad_us", "cv", "first_step_ratio")
ROBUST = (
    *AXES,
    *(_OF_GEMM[name] for name in (*_OF_KIND, "count", "median_us", *_ROBUST[:-1])),
    number("first_step_ratio", "", "median of the first recorded step over that of later ones"),
)
TIMESTAMPS = (
    number("min_duration_timestamp_ms", "ms", "start of the shortest instance, as in the trace"),
    number("max_duration_timestamp_ms", "ms", "start of the longest instance, as in the trace"),
    number("time_between_min_max_ms", "ms", "time between the two"),
    number("min_duration_found_us", "µs", "duration of the former"),
    number("max_duration_found_us", "µs", "duration of the latter"),
)
OVERLAP = (
    integer("overlapping_collective_count", "collectives that ran during the longest instance"),
    text("overlapping_collective_names", "their names in order, with semicolons between them"),
    number("max_overlap_percentage", "%", "largest share of the instance that one of them covers"),
    text("max_overlap_collective", "name of that one"),
    number("total_overlap_duration_ms", "ms", "time during which any of them ran next to it"),
    integer("alone_count", "instances without communication"),
    integer("overlapped_count", "instances next to communication"),
    number("alone_median_us", "µs", "median of the former"),
    number("overlapped_median_us", "µs", "median of the latter"),
    number("slowdown", "", "ratio of the two"),
    *(_OF_GEMM[name] for name in
      ("slowdown_ci_low", "slowdown_ci_high", "verdict", "cost_ms_per_step", "note")),
)  # fmt: skip


class VaryingGemm(NamedTuple):
    """A row of the tables."""

    point: ReportedPoint
    gemm: RankGemm


def varying_gemms(points: Iterable[ReportedPoint], top_k: int) -> list[VaryingGemm]:
    """The `top_k` GEMMs of each rank of each point whose times differ most, the largest difference
    of all first."""
    found = []
    for point in points:
        for gemms in grouped(comparable_gemms(point), lambda gemm: gemm.rank).values():
            gemms.sort(key=lambda gemm: -gemm.spread_us)
            found += [VaryingGemm(point, gemm) for gemm in gemms[:top_k]]
    return sorted(found, key=lambda one: -one.gemm.spread_us)


VARYING: dict[str, tuple[str, tuple[Column, ...]]] = {
    "": ("time_variance", ()),
    "_with_timestamps": ("with_timestamps", TIMESTAMPS),
    "_with_collective_overlap": ("with_collective_overlap", (*TIMESTAMPS, *OVERLAP)),
}
"""End of a file's name -> its table, and the columns that it has in addition: none, the moments of
the extremes, or also the collectives next to the longest instance."""


def varying_table(end: str, rows: Sequence[VaryingGemm]) -> Table:
    """Table of varying GEMMs: one of :data:`VARYING`."""
    name, more = VARYING[end]
    keys = sorted({key for one in rows for key in one.gemm.row})
    operators = [Column(OPERATOR_PREFIX + key, _type(key, rows)) for key in keys]
    cells = [_cells(*one, keys, len(more)) for one in rows]
    return Table(name, (*HEAD, *operators, *ROBUST, *more), cells)


def _type(key: str, rows: Sequence[VaryingGemm]) -> ColumnType:
    """The type of a column of operators, by its first value."""
    value = next((v for one in rows if (v := one.gemm.row.get(key)) is not None), None)
    kinds = {bool: ColumnType.BOOLEAN, int: ColumnType.INTEGER, float: ColumnType.NUMBER}
    return kinds.get(type(value), ColumnType.TEXT)


def _cells(point: ReportedPoint, gemm: RankGemm, keys: Sequence[str], more: int) -> list[Any]:
    """A row: of :data:`HEAD`, the `keys` of the operator, :data:`ROBUST`, and `more` columns."""
    kind, configuration, traced = gemm.kind, point.configuration, gemm.traced
    robust: list[Any] = [None] * len(_ROBUST)
    moments: list[Any] = [None] * more
    if traced is not None:
        robust = [getattr(traced.statistics, name) for name in _ROBUST]
        moments = _moments(traced)[:more] if more else []
    return [
        configuration.threads, configuration.channels, gemm.rank, kind.kernel, gemm.min_us,
        gemm.max_us, gemm.spread_us, *map(gemm.row.get, keys), point.axes_text, point.repeat,
        *(getattr(kind, name) for name in _OF_KIND), gemm.count, gemm.median_us, *robust, *moments,
    ]  # fmt: skip


def _moments(traced: TracedGemm) -> list[Any]:
    """The cells of :data:`TIMESTAMPS` and :data:`OVERLAP`."""
    facts, cause = traced.facts, traced.statistics.cause
    gemms = facts.gemms
    chosen = np.flatnonzero(gemms.kind == traced.statistics.index)
    duration, pairs = gemms.duration_ns[chosen], gemms.overlapping
    shortest, longest = int(chosen[duration.argmin()]), int(chosen[duration.argmax()])
    starts = [(int(gemms.start_ns[one]) - facts.base_ns) / 1e6 for one in (shortest, longest)]
    least, most = int(gemms.duration_ns[shortest]), int(gemms.duration_ns[longest])
    pairs = pairs[pairs[:, 0] == longest]
    names = [facts.communication[index].written for index in pairs[:, 1].tolist()]
    covering = int(pairs[:, 2].argmax()) if names else 0
    covered = int(pairs[covering, 2]) if names else 0
    return [
        *starts, abs(starts[1] - starts[0]), least / 1000, most / 1000,
        len(names), ";".join(names), 100 * covered / max(most, 1),
        names[covering] if names else "", int(gemms.overlap_ns[longest]) / 1e6,
        cause.alone_count, cause.overlapped_count, cause.alone_median_us,
        cause.overlapped_median_us, cause.slowdown, cause.low, cause.high, str(cause.verdict),
        cause.cost_ms_per_step, cause.note,
    ]  # fmt: skip
