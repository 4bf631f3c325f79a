"""Columns of tables of traces, each declared once with the value that it takes from an item.

Traces, steps, GEMMs, shapes and operators of the host as tables.

Collectives of jobs as tables, and as the document that ``--json`` prints.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.traces import TRACE_SCHEMA_VERSION
from gemmetry.traces.collectives.alignment import ClockOffset, Matched
from gemmetry.traces.collectives.matching import JobCollectives, JobKind, Straggler
from gemmetry.traces.collectives.summary import Collective
from gemmetry.traces.gemms import GemmRow, Workload
from gemmetry.traces.jobs import RankTrace
from gemmetry.traces.operators.host import HostOperator
from gemmetry.traces.summary import Summary


@dataclass(frozen=True, slots=True)
class ItemColumn(Column):
    """A column, and how to take its value from what a row describes."""

    value: Callable[[Any], Any] = field(kw_only=True, compare=False)


def column(
    name: str,
    type: ColumnType,
    description: str,
    value: str | Callable[[Any], Any] = "",
    *,
    unit: str = "",
) -> ItemColumn:
    """A column; `value` is a function or the name of an attribute (default: `name`)."""
    take = value if callable(value) else attrgetter(value or name)
    return ItemColumn(name, type, unit, description, value=take)


def text(name: str, description: str, value: str | Callable[[Any], Any] = "") -> ItemColumn:
    """A column of texts."""
    return column(name, ColumnType.TEXT, description, value)


def integer(name: str, description: str, value: str | Callable[[Any], Any] = "") -> ItemColumn:
    """A column of integers."""
    return column(name, ColumnType.INTEGER, description, value)


def number(
    name: str, description: str, value: str | Callable[[Any], Any] = "", *, unit: str = ""
) -> ItemColumn:
    """A column of numbers."""
    return column(name, ColumnType.NUMBER, description, value, unit=unit)


def microseconds(name: str, description: str, attribute: str = "") -> ItemColumn:
    """A column of times in µs; `attribute` is in nanoseconds (default: `name` with ``_ns``)."""
    take = attrgetter(attribute or f"{name.removesuffix('_us')}_ns")
    return number(name, description, lambda item: in_microseconds(take(item)), unit="µs")


def in_microseconds(ns: float | None) -> float | None:
    """`ns` in µs; None stays None."""
    return None if ns is None else ns / 1000


def values(columns: Sequence[ItemColumn], item: Any) -> list[Any]:
    """The row of `item`."""
    return [column.value(item) for column in columns]


def record(columns: Sequence[ItemColumn], item: Any) -> dict[str, Any]:
    """The row of `item` by the names of the columns."""
    return {column.name: column.value(item) for column in columns}


def table(name: str, columns: Sequence[ItemColumn], items: Iterable[Any]) -> Table:
    """The table of `items`, one row each."""
    return Table(name, tuple(columns), [values(columns, item) for item in items])


_COUNTS = (
    integer("kernels", "kernels on GPUs"),
    integer("gemm_kernels", "GEMM kernels"),
    integer("comm_kernels", "kernels that communicate"),
    microseconds("gemm_kernel_us", "sum of the durations of GEMM kernels"),
    microseconds("comm_kernel_us", "sum of the durations of kernels that communicate"),
    microseconds("window_us", "from the first start to the last end of work on GPUs"),
    microseconds("busy_us", "time in which anything ran"),
    microseconds("compute_union_us", "time in which anything was computed"),
    microseconds("comm_union_us", "time in which a kernel that communicates ran"),
    microseconds("memcpy_union_us", "time in which a copy ran"),
    microseconds("comm_compute_overlap_us", "time with both communication and computing"),
    microseconds("exposed_comm_us", "time with communication and no computing"),
    microseconds("gemm_comm_overlap_us", "time with both communication and a GEMM"),
    microseconds("idle_us", "time in which nothing ran"),
    integer("launches_without_work",
            "launches whose work is not in the file: it was busy for longer, idle for less"),
)  # fmt: skip
_FILE = text("file", "the trace", lambda item: str(item.file))
_SUMMARY = (
    replace(_FILE, value=attrgetter("source")),
    integer("events", "entries of the file"),
    *_COUNTS,
    column("partial", ColumnType.BOOLEAN, "whether events of the file are missing"),
)


def _of_step(attribute: str) -> Callable[[Summary], Any]:
    return lambda s: getattr(s.step, attribute) if s.step else None


_STEPS = (
    _FILE,
    integer("step", "number of the step", _of_step("number")),
    text("phase", "phase in the step's mark",
         lambda s: s.step.phase or None if s.step else None),
    text("window_from", "source of the step's window", _of_step("source")),
    *_COUNTS,
    microseconds("others_us", "part of the window with only work of other steps, or of no step"),
    number("mark_us", "length of the step's mark on the host",
           lambda s: s.step.mark_ns / 1000 if s.step else None, unit="µs"),
    integer("inferred", "kernels that were assigned without a recorded launch",
            _of_step("inferred")),
)  # fmt: skip


def summary_table(summaries: Iterable[Summary]) -> Table:
    """``trace_summary``: one row per file. Values that a workbook does not record are None."""
    rows = [
        [None if c.name in s.unknown else c.value(s) for c in _SUMMARY] for s in summaries
    ]  # fmt: skip
    return Table("trace_summary", _SUMMARY, rows)


def step_table(steps: Iterable[Summary]) -> Table:
    """``trace_steps``: one row per file and step."""
    return table("trace_steps", _STEPS, steps)


def _shape_columns(product_of: Callable[[Any], Any]) -> tuple[ItemColumn, ...]:
    """Sizes of the matrix product of an item, None where there is none."""

    def size(name: str) -> Callable[[Any], Any]:
        return lambda item: getattr(product_of(item), name, None)

    return (
        integer("m", "rows of the result", size("m")),
        integer("n", "columns of the result", size("n")),
        integer("k", "length of the sums", size("k")),
        integer("batch", "number of products", size("batch")),
        text("dtype", "format of A and B", size("dtype")),
        text("layout", "layouts of A and B: t row-major, n column-major", size("layout")),
    )


_TIMES = (
    microseconds("min_us", "shortest time"),
    microseconds("max_us", "longest time"),
)


def _gemm_columns(total_ns: int) -> tuple[ItemColumn, ...]:
    return (
        text("device", "product name of the GPU"),
        text("kernel", "name of the kernel, or of the operator on the host"),
        text("short_name", "the name without template arguments", "facts.short"),
        text("kind", "what the kernel does", lambda row: str(row.facts.kind)),
        text("family", "the library or generator of the kernel",
             lambda row: row.facts.family or None),
        text("operators", "operators that launched it, the most frequent one first",
             lambda row: ", ".join(row.operators) or None),
        *_shape_columns(attrgetter("shape"))[:4],
        text("dtype", "format of A and B"),
        text("layout", "layouts of A and B: t row-major, n column-major"),
        text("tile", "tile sizes in the name", lambda row: _sizes(row.facts.tile)),
        integer("stages", "pipeline stages in the name", "facts.stages"),
        text("cluster", "cluster sizes in the name", lambda row: _sizes(row.facts.cluster)),
        integer("split_k", "parts of K in the name", "facts.split_k"),
        integer("count", "instances"),
        integer("linked", "instances whose operator records the shape"),
        integer("inferred", "instances with the shape of others"),
        microseconds("sum_us", "total time"),
        number("share", "share of the time of all rows", lambda row: _share(row.sum_ns, total_ns)),
        microseconds("median_us", "median time"),
        microseconds("p5_us", "5th percentile"),
        microseconds("p95_us", "95th percentile"),
        microseconds("mad_us", "median absolute deviation from the median"),
        *_TIMES,
        number("tflops", "speed of the median instance", unit="10¹² FLOP/s"),
        number("peak_fraction", "speed as a share of the device's peak"),
        column("above_peak", ColumnType.BOOLEAN,
               "whether it exceeds the device's peak, so that a time or a shape is wrong"),
        integer("overlapped", "instances during which a kernel communicated"),
        number("overlapped_share", "share of the time with communication at the same time",
               lambda row: _share(row.overlapped_ns, row.sum_ns)),
    )  # fmt: skip


def gemms_table(rows: Sequence[GemmRow]) -> Table:
    """``gemms``: one row per kernel and shape."""
    return table("gemms", _gemm_columns(sum(row.sum_ns for row in rows)), rows)


_SHAPES = (
    *_shape_columns(lambda gemm: gemm),
    text("scaling", "how scaled formats are scaled"),
    integer("count", "calls"),
    microseconds("sum_us", "total time"),
    number("share", "share of the time of all GEMMs"),
    text("operation", "name of the operation that gemmetry profile runs"),
    replace(
        column("kernels", ColumnType.TEXTS, "kernels", lambda gemm: list(gemm.kernels)),
        format="; ".join,
    ),
    text("reason", "why gemmetry profile cannot run it", lambda gemm: gemm.reason or None),
)


def shapes_table(load: Workload) -> Table:
    """``shapes``: one row per distinct GEMM."""
    return table("shapes", _SHAPES, load.gemms)


def host_operators_table(rows: Sequence[HostOperator]) -> Table:
    """``host_operators``: one row per file and operator with the same input sizes and types; shares
    refer to the file's self time."""
    whole: dict[Path | None, int] = {}
    for row in rows:
        whole[row.file] = whole.get(row.file, 0) + row.self_ns
    columns = (
        _FILE,
        text("name", "operator"),
        text("input_dims", "sizes of its inputs", lambda row: row.input_dims or None),
        text("input_types", "types of its inputs", lambda row: row.input_types or None),
        integer("count", "calls"),
        microseconds("total_us", "total time with nested operators"),
        microseconds("self_us", "total time without nested operators"),
        number("self_share", "share of the file's self time",
               lambda row: _share(row.self_ns, whole[row.file])),
        microseconds("median_us", "median time"),
        *_TIMES,
        *_shape_columns(attrgetter("product")),
        number("tflops", "speed of the median call", unit="10¹² FLOP/s"),
    )  # fmt: skip
    return table("host_operators", columns, rows)


def _sizes(sizes: Sequence[int] | None) -> str | None:
    return "x".join(map(str, sizes)) if sizes else None


def _share(part: int | None, whole: int) -> float | None:
    return None if part is None or not whole else part / whole


Row = dict[str, Any]

_GB_PER_S = "10⁹ B/s"
_JOB = Column("job", description="the job, as its traces or its folder name it")
_RANK = integer("rank", "rank of the trace")
_OP = text("op", "operation")
_ELEMENTS = integer("elements", "elements of the message")
_DTYPE = text("dtype", "element type, as PyTorch names it")
_BYTES = column("bytes", ColumnType.INTEGER, "size of the message", unit="B")
_GROUP = text(
    "group", "name of the process group", lambda one: one.group.name if one.group else None
)

_KERNELS = (
    _OP,
    _ELEMENTS,
    _DTYPE,
    _BYTES,
    _GROUP,
    column("start_ns", ColumnType.INTEGER, "start, as recorded", unit="ns"),
    column("duration_ns", ColumnType.INTEGER, "duration with the wait for others", unit="ns"),
    integer("group_size", "ranks of the group", lambda one: one.group.size if one.group else None),
    column("group_inferred", ColumnType.BOOLEAN, "whether the group is that of the stream"),
    integer("in_elements", "elements that the rank contributes"),
    integer("out_elements", "elements that the rank receives"),
    integer("peer", "the other rank of a send or receive"),
    integer("sequence", "number of the collective in its group"),
    text("algorithm", "algorithm in the kernel's name"),
    text("protocol", "protocol in the kernel's name"),
    text("source", "source of the collective's properties"),
    text("kernel", "name of the kernel", "name"),
    integer("stream", "stream of the kernel"),
    integer("device", "device of the kernel"),
)


class _InJob(NamedTuple):
    """A matched collective and the offsets of the job's clocks; {} where no offset is applied."""

    one: Matched
    offsets_ns: Mapping[int, int]

    def skew_us(self, place: int) -> float:
        """The skew of the starts (`place` 0) or ends (1)."""
        return self.one.skews_ns()[place] / 1000

    def corrected_skew_us(self, place: int) -> float | None:
        """The same, on one clock."""
        return self.one.skews_ns(self.offsets_ns)[place] / 1000 if self.offsets_ns else None


def _first(name: str) -> Callable[[_InJob], Any]:
    return lambda item: getattr(item.one.members[0][1], name)


def _of_one(column: ItemColumn) -> ItemColumn:
    """The column of a matched collective, taken from an item in a job."""
    return replace(column, value=lambda item: column.value(item.one))


_WAITS = column(
    "waits_us", ColumnType.MAPPING, "how long each rank waited for the last",
    lambda item: {str(rank): ns / 1000 for rank, ns in item.one.waits_ns().items()}, unit="µs",
)  # fmt: skip
_MATCHED = (
    *map(_of_one, (_OP, _ELEMENTS, _DTYPE)),
    number("start_skew_us", "from the first to the last start", lambda i: i.skew_us(0), unit="µs"),
    number("end_skew_us", "from the first to the last end", lambda i: i.skew_us(1), unit="µs"),
    integer("last_rank", "the rank that began last", lambda i: i.one.last_rank()),
    number("algbw_gbps", "algorithm bandwidth", "one.algorithm_bandwidth", unit=_GB_PER_S),
    number("busbw_gbps", "bus bandwidth", "one.bus_bandwidth", unit=_GB_PER_S),
    column("above_link", ColumnType.BOOLEAN,
           "whether the bus bandwidth exceeds the links of a GPU", "one.is_above_link"),
    _of_one(_BYTES),
    microseconds("latency_us", "from the last start to the last end", "one.latency_ns"),
    _of_one(_GROUP),
    integer("group_size", "ranks of the group", "one.group_size"),
    column("start_ns", ColumnType.INTEGER, "first start", "one.start_ns", unit="ns"),
    text("algorithm", "algorithm in the kernel's name", _first("algorithm")),
    text("protocol", "protocol in the kernel's name", _first("protocol")),
    _WAITS,
    number("corrected_start_skew_us", "start skew on one clock",
           lambda i: i.corrected_skew_us(0), unit="µs"),
    number("corrected_end_skew_us", "end skew on one clock",
           lambda i: i.corrected_skew_us(1), unit="µs"),
    integer("corrected_last_rank", "the rank that began last, on one clock",
            lambda i: i.one.last_rank(i.offsets_ns) if i.offsets_ns else None),
    column("complete", ColumnType.BOOLEAN, "whether all ranks of the group have a file",
           "one.is_complete"),
)  # fmt: skip

_OF_SEVERAL_RANKS = frozenset((
    "start_skew_us", "end_skew_us", "last_rank", "latency_us", "corrected_start_skew_us",
    "corrected_end_skew_us", "corrected_last_rank",
))  # fmt: skip
"""Columns that a single rank does not show."""


def _of_several(column: ItemColumn) -> ItemColumn:
    if column.name not in _OF_SEVERAL_RANKS:
        return column
    return replace(column, value=lambda i: None if i.one.is_lone else column.value(i))


_LISTED = (
    *(_of_several(column) for column in _MATCHED if column is not _WAITS),
    integer("rank", "the rank of a kernel that is not matched",
            lambda i: i.one.members[0][0] if i.one.is_lone else None),
    microseconds("duration_us", "latency, or the duration of a kernel that is not matched",
                 "one.latency_ns"),
)  # fmt: skip

_STRAGGLERS = (
    _RANK,
    integer("last_count", "collectives that the rank began last"),
    number("last_share", "share of the matched collectives"),
    microseconds("waited_us", "time that the rank waited for others"),
)


class _Clock(NamedTuple):
    """The clock of a rank, and its behaviour on the corrected clock; None where no offset is
    applied."""

    offset: ClockOffset
    corrected: Straggler | None


def _clock(name: str, description: str) -> ItemColumn:
    return microseconds(name, description, f"offset.{name.removesuffix('_us')}_ns")


_CLOCKS = (
    integer("rank", "rank of the trace", "offset.rank"),
    column("node", ColumnType.INTEGER, "node of the rank", "offset.node"),
    _clock("offset_us", "offset that turns times of the rank into times of the first rank"),
    _clock("scatter_us", "scatter of the offsets of single collectives"),
    _clock("lower_us", "lower bound of the offset"),
    _clock("upper_us", "upper bound of the offset"),
    integer("collectives", "collectives from which the offset is computed", "offset.collectives"),
    _clock("applied_us", "offset that is added to the rank's times"),
    integer("corrected_last_count", "collectives that the rank began last, on one clock",
            lambda item: item.corrected.last_count if item.corrected else None),
    number("corrected_waited_us", "time that the rank waited for others, on one clock",
           lambda item: item.corrected.waited_ns / 1000 if item.corrected else None, unit="µs"),
)  # fmt: skip


def _clock_heading(name: str) -> str:
    return name if name == "node" or name.startswith("corrected_") else f"clock_{name}"


_CLOCKS_OF_RANKS = tuple(replace(c, name=_clock_heading(c.name)) for c in _CLOCKS[1:])


class _JobTimes(NamedTuple):
    """A kind of collectives, and the times of its collectives in ns."""

    kind: JobKind
    latencies: list[int]
    skews: list[tuple[int, int]]
    durations: list[int]
    """Durations of all their kernels."""

    @classmethod
    def of(cls, kind: JobKind) -> _JobTimes:
        ones = kind.ones
        # A kind holds either matched collectives or lone kernels, as its job does.
        together = [] if ones[0].is_lone else ones
        return cls(
            kind,
            [one.latency_ns for one in together],
            [one.skews_ns() for one in together],
            [kernel.duration_ns for one in ones for _, kernel in one.members],
        )

    def median(self, attribute: str) -> float | None:
        """The median of the values that its collectives have."""
        return _median(getattr(one, attribute) for one in self.kind.ones)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _kind_us(name: str, description: str, of_ns: Callable[[_JobTimes], float | None]) -> ItemColumn:
    return number(name, description, lambda item: in_microseconds(of_ns(item)), unit="µs")


_KINDS = (
    text("op", "operation", "kind.op"),
    text("dtype", "element type, as PyTorch names it", "kind.dtype"),
    integer("elements", "elements of the message", "kind.elements"),
    replace(_BYTES, value=lambda item: item.kind.ones[0].bytes),
    integer("group_size", "ranks of the group", "kind.group_size"),
    integer("count", "collectives", lambda item: len(item.kind.ones)),
    _kind_us("latency_us_median", "median latency", lambda item: _median(item.latencies)),
    _kind_us("latency_us_min", "shortest latency", lambda item: min(item.latencies, default=None)),
    _kind_us("latency_us_max", "longest latency", lambda item: max(item.latencies, default=None)),
    _kind_us("start_skew_us_median", "median skew of the starts",
             lambda item: _median(start for start, _ in item.skews)),
    _kind_us("end_skew_us_median", "median skew of the ends",
             lambda item: _median(end for _, end in item.skews)),
    number("algbw_gbps_median", "median algorithm bandwidth",
           lambda item: item.median("algorithm_bandwidth"), unit=_GB_PER_S),
    number("busbw_gbps_median", "median bus bandwidth",
           lambda item: item.median("bus_bandwidth"), unit=_GB_PER_S),
    column("above_link", ColumnType.BOOLEAN,
           "whether a bus bandwidth among them exceeds the links of a GPU",
           lambda item: any(one.is_above_link for one in item.kind.ones)),
    column("complete", ColumnType.BOOLEAN, "whether all ranks of the groups have a file",
           lambda item: all(one.is_complete for one in item.kind.ones)),
    _kind_us("duration_us_sum", "total duration of all their kernels",
             lambda item: sum(item.durations)),
    _kind_us("duration_us_min", "shortest duration", lambda item: min(item.durations)),
    _kind_us("duration_us_median", "median duration", lambda item: _median(item.durations)),
)  # fmt: skip


def kind_row(kind: JobKind) -> Row:
    """Medians over the collectives of one kind; durations are those of all their kernels."""
    return record(_KINDS, _JobTimes.of(kind))


def _of_jobs(
    name: str,
    columns: Sequence[ItemColumn],
    jobs: Iterable[JobCollectives],
    items: Callable[[JobCollectives], Iterable[Any]],
) -> Table:
    """The items of all jobs, with a column for the job in front."""
    rows = [[job.job.name, *values(columns, item)] for job in jobs for item in items(job)]
    return Table(name, (_JOB, *columns), rows)


def matched_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_matched``: matched collectives of all jobs; for a job without any, such as one
    of a single rank, each kernel with its known properties. Waits are in :func:`kernels_table`."""
    return _of_jobs(
        "collectives_matched",
        _LISTED,
        jobs,
        lambda found: (_InJob(one, found.offsets_ns) for one in found.listed),
    )


def kinds_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_kinds``: the same by operation, type, size and size of the group."""
    return _of_jobs("collectives_kinds", _KINDS, jobs, lambda found: map(_JobTimes.of, found.kinds))


def kernels_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_kernels``: communication kernels of all ranks; ``collective`` numbers the
    matched ones of a job from 0, in the order of :func:`matched_table`."""
    columns = (
        _JOB,
        _RANK,
        Column("collective", ColumnType.INTEGER, description="number of the matched collective"),
        *_KERNELS,
        Column("wait_us", ColumnType.NUMBER, "µs", "time that the rank waited for the last"),
    )
    rows: list[list[Any]] = []
    for found in jobs:
        places: dict[tuple[int, int], tuple[int, int]] = {}
        for number_, one in enumerate(found.matching.matched):
            waits = one.waits_ns()
            places |= {(rank, k.row): (number_, waits[rank]) for rank, k in one.members}
        for rank, trace in sorted(found.job.by_rank.items()):
            for kernel in trace.collectives:
                place, wait = places.get((rank, kernel.row), (None, None))
                head = (found.job.name, rank, place)
                rows.append([*head, *values(_KERNELS, kernel), in_microseconds(wait)])
    return Table("collectives_kernels", columns, rows)


@dataclass(frozen=True, slots=True)
class KernelDurations:
    """Communication kernels of one operation, type and size; None where it is not recorded."""

    op: str | None
    dtype: str | None
    bytes: int | None
    count: int
    sum_ns: int
    min_ns: int
    median_ns: float


def kernel_durations(kernels: Iterable[Collective]) -> list[KernelDurations]:
    """Durations of `kernels` by kind, those with the most time first."""
    groups: dict[tuple[str | None, str | None, int | None], list[int]] = {}
    for one in kernels:
        groups.setdefault((one.op, one.dtype, one.bytes), []).append(one.duration_ns)
    kinds = [
        KernelDurations(*key, len(times), sum(times), min(times), statistics.median(times))
        for key, times in groups.items()
    ]
    return sorted(kinds, key=lambda kind: -kind.sum_ns)


def ranks_table(jobs: Iterable[JobCollectives]) -> Table:
    """``collectives_ranks``: ranks of all jobs: how often they came last, how long they waited,
    how many kernels were not matched, and their clocks."""
    columns = (
        _JOB,
        *_STRAGGLERS,
        Column("unmatched", ColumnType.INTEGER, description="kernels that were not matched"),
        *_CLOCKS_OF_RANKS,
    )
    rows = [
        [
            found.job.name,
            *values(_STRAGGLERS, straggler),
            found.matching.unmatched[straggler.rank],
            *values(_CLOCKS_OF_RANKS, clock),
        ]
        for found in jobs
        for straggler, clock in zip(found.stragglers(), _clocks(found), strict=True)
    ]
    return Table("collectives_ranks", columns, rows)


def clock_rows(found: JobCollectives) -> list[Row]:
    """For every rank, the offset to add to its times to convert them to those of the first, and
    which ranks came last and waited with these offsets; None where no offset is applied."""
    return [record(_CLOCKS, one) for one in _clocks(found)]


def _clocks(found: JobCollectives) -> list[_Clock]:
    corrected = {one.rank: one for one in found.stragglers(corrected=True)}
    is_corrected = bool(found.offsets_ns)
    return [_Clock(one, corrected[one.rank] if is_corrected else None) for one in found.clocks]


def collectives_document(
    jobs: Sequence[JobCollectives], errors: Mapping[str, str] | None = None
) -> Row:
    """One job's document, or ``jobs`` with one each where there are several.

    `errors` are the files that could not be read, with the reason.
    """
    bodies = [_job_body(job) for job in jobs]
    failed = {"errors": [{"file": file, "error": text} for file, text in (errors or {}).items()]}
    if len(bodies) == 1:
        return {"schema_version": TRACE_SCHEMA_VERSION, **bodies[0], **failed}
    return {"schema_version": TRACE_SCHEMA_VERSION, "jobs": bodies, **failed}


def _job_body(found: JobCollectives) -> Row:
    job, offsets = found.job, found.offsets_ns
    return {
        "per_rank": [_rank_body(one) for one in job.ranks],
        "matched": [record(_MATCHED, _InJob(one, offsets)) for one in found.matching.matched],
        "stragglers": [record(_STRAGGLERS, one) for one in found.stragglers()],
        "unmatched": {str(rank): n for rank, n in sorted(found.matching.unmatched.items())},
        "job": job.name,
        "world_size": job.world_size,
        "missing_ranks": list(job.missing),
        "groups": _groups(found),
        "mismatches": [
            {"group": one.group, "after": one.after, "what": one.what}
            for one in found.matching.mismatches
        ],
        "clocks": clock_rows(found),
        "notes": list(found.notes),
    }


def _rank_body(one: RankTrace) -> Row:
    return {
        "rank": one.rank,
        "collectives": [record(_KERNELS, kernel) for kernel in one.collectives],
        "file": str(one.file),
        "rank_source": one.rank_source,
        "base_ns": one.base_ns,
        "partial": one.partial,
        "problems": list(one.problems),
    }


def _groups(found: JobCollectives) -> list[Row]:
    groups = {
        one.group for rank in found.job.ranks for one in rank.collectives if one.group is not None
    }
    ordered = sorted(groups, key=lambda group: (group.name or "", group.ranks))
    return [
        {"name": group.name, "ranks": list(group.ranks), "size": group.size} for group in ordered
    ]
