"""The sheets that a report of traces shares with TraceLens' workbooks.

Names, order, columns and units are those of AMD-AGI/TraceLens 171dd747, so that scripts and
notebooks written for its workbooks can read gemmetry's. ``tracelens.csv`` declares them: a row for
each column, ``*group`` for the columns of a group, and ``name_[mean min]`` for several aggregates.

Bandwidths are in 2³⁰ bytes/s here, as in TraceLens; gemmetry's own tables use 10⁹ bytes/s. The
sheets contain all matched collectives, not only all-reduces, all-gathers, reduce-scatters and
all-to-alls.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmetry.domain.tables import Column, ColumnType, Table, grouped
from gemmetry.formats.events import Int64
from gemmetry.traces.collectives.alignment import Matched
from gemmetry.traces.collectives.matching import JobCollectives
from gemmetry.traces.collectives.summary import Collective, Group
from gemmetry.traces.jobs import RankTrace
from gemmetry.traces.operators.gemms import Integers

UNKNOWN_GROUP = "Unknown_Group"

MOST_RANK_COLUMNS = 1000
"""Maximum ranks with their own columns; a sheet has 16384 columns (Excel's published limits)."""

_MIB, _GIB = 1 << 20, 1 << 30
_AGGREGATES = {
    "mean": "arithmetic mean", "median": "median", "std": "standard deviation (n - 1)",
    "min": "minimum", "max": "maximum", "sum": "sum",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SheetKind:
    """Documentation of a sheet."""

    name: str
    what: str
    columns: tuple[Column, ...]

    def table(self, rows: Sequence[Sequence[Any]]) -> Table:
        """The sheet with its rows; cells are numbers, texts or None."""
        return Table(self.name, self.columns, rows)


Floats = npt.NDArray[np.float64]


_BLOCK = 1 << 18
"""Rows processed at a time."""


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """One entry per group; NaN where a group is empty, and for `std` also where it has one
    value."""

    count: Int64
    sum: npt.NDArray[Any]
    mean: Floats
    median: Floats
    std: Floats
    """Sample standard deviation, with n - 1."""
    min: Floats
    max: Floats


def grouped_statistics(group: Int64, values: npt.NDArray[Any], groups: int) -> GroupStatistics:
    """Statistics of `values` by `group` (numbers from 0 to below `groups`).

    Sums of integers are exact.
    """
    count = np.bincount(group, minlength=groups)
    order = np.lexsort((values, group))
    ordered = values[order]
    ends = np.cumsum(count)
    filled = count > 0
    first = (ends - count)[filled]
    of_filled = count[filled]
    total = np.zeros(groups, values.dtype)
    mean, median, std, low, high = (np.full(groups, np.nan) for _ in range(5))
    if len(first):
        total[filled] = np.add.reduceat(ordered, first)
        mean[filled] = total[filled] / of_filled
        median[filled] = (
            ordered[first + (of_filled - 1) // 2].astype(float) + ordered[first + of_filled // 2]
        ) / 2
        low[filled], high[filled] = ordered[first], ordered[first + of_filled - 1]
        distances = np.repeat(mean[filled], of_filled)
        np.subtract(ordered, distances, out=distances)
        squares = np.add.reduceat(np.square(distances, out=distances), first)
        several = of_filled > 1
        std[np.flatnonzero(filled)[several]] = np.sqrt(squares[several] / (of_filled[several] - 1))
    return GroupStatistics(count, total, mean, median, std, low, high)


def busy_by_owner(
    owner: Integers, row: Integers, start: Int64, duration: Int64, owners: int
) -> Int64:
    """For each owner the length of the union of its intervals [start, start + duration), ns.

    Args:
        owner: numbers from 0 to below `owners`; intervals of one may overlap.
        row: of `start` and `duration`, for each entry of `owner`.
    """
    result = np.zeros(owners, np.int64)
    if not len(owner):
        return result
    order = np.lexsort((start[row], owner))
    begin = 0
    while begin < len(order):
        # A few complete owners at a time, so that little memory is needed besides the order.
        end = min(begin + _BLOCK, len(order))
        if end < len(order):
            end = int(np.searchsorted(owner, owner[order[end - 1]], "right", sorter=order))
        places = order[begin:end]
        rows = row[places]
        _add_busy(result, owner[places], start[rows], duration[rows])
        begin = end
    return result


def _add_busy(result: Int64, owner: Integers, start: Int64, duration: Int64) -> None:
    """Set the entries of `owner`, whose rows are in order."""
    end = start + duration
    first = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    # Owners are concatenated in time, so that one running maximum serves all of them.
    span = np.maximum.reduceat(end, first) - start[first]
    shift = np.cumsum(span) - span - start[first]
    moved = np.repeat(shift, np.diff(np.append(first, len(owner))))
    start, end = start + moved, end + moved
    reached = np.maximum.accumulate(end)
    begins = start.copy()
    begins[1:] = np.maximum(start[1:], reached[:-1])
    covered = np.maximum(end - begins, 0)
    result[owner[first]] = np.add.reduceat(covered, first)


def _columns(name: str) -> Iterator[Column]:
    for row in _DECLARED[name]:
        column = row["column"]
        group = re.search(r"(?<!rank_)\*([a-z_]+?)(_first)?\Z", column)
        if group:
            for one in _columns(group[1]):
                yield replace(one, name=f"{column[: group.start()]}{one.name}{group[2] or ''}")
        elif column:
            stem, _, words = column.removesuffix("]").partition("[")
            kind, unit, text = ColumnType(row["type"]), row["unit"], row["meaning"]
            for word in words.split() or [""]:
                what = f"{_AGGREGATES[word]} of {text}" if word else text
                yield Column(f"{stem}{word}", kind, unit, what)


_TEXT = files(__package__).joinpath("tracelens.csv").read_text("utf-8")
_DECLARED = grouped(csv.DictReader(_TEXT.splitlines()), itemgetter("sheet"))
"""The rows of the file by sheet or group."""
NOTES = tuple((row["column"], row["meaning"]) for row in _DECLARED.pop("notes"))
"""Notes for a reader of the workbook, by subject."""
SHEETS = tuple(
    SheetKind(name, rows[0]["meaning"], tuple(_columns(name)))
    for name, rows in _DECLARED.items()
    if not rows[0]["column"]
)
"""Every sheet with a TraceLens name, in the order of the workbook."""
BY_NAME: dict[str, SheetKind] = {sheet.name: sheet for sheet in SHEETS}
PERFORMANCE_SHEETS = tuple(s for s in SHEETS if s.columns[1].name.startswith("param: "))
"""Sheets of operators grouped by what they compute."""


def single_trace_sheet(rank: RankTrace) -> Table:
    """``coll_analysis``: the collectives of one trace."""
    return BY_NAME["coll_analysis"].table(_summary([rank], with_node=False))


def job_sheets(job: JobCollectives) -> list[Table]:
    """The sheets of TraceLens' report of several ranks."""
    numbers = {one.file: _numbers(one) for one in job.job.ranks}
    long = [row for one in job.job.ranks for row in _long(one, numbers[one.file])]
    found = (
        BY_NAME["nccl_summary_implicit_sync"].table(_by_kind(job)),
        BY_NAME["nccl_summary_long"].table(_summary(job.job.ranks, with_node=True)),
        BY_NAME["nccl_long"].table(long),
        _wide(job, numbers),
        BY_NAME["straggler_summary"].table(_stragglers(job)),
    )
    return [table for table in found if table.rows]


def _group(group: Group | None) -> tuple[str, str | None, int | None]:
    """Name, ranks and size."""
    if group is None:
        return UNKNOWN_GROUP, None, None
    ranks = repr(list(group.ranks)) if group.ranks else None
    return UNKNOWN_GROUP if group.name is None else group.name, ranks, group.size


def _mebibytes(elements: int | None, size: int | None) -> float | None:
    return None if elements is None or size is None else elements * size / _MIB


def _message(one: Collective) -> tuple[float | None, float | None]:
    """Sizes of its contribution and result, in 2²⁰ bytes."""
    width = one.element_bytes
    return _mebibytes(one.in_elements, width), _mebibytes(one.out_elements, width)


def _splits(one: Collective) -> tuple[str, str]:
    return repr(list(one.in_splits)), repr(list(one.out_splits))


def _long(rank: RankTrace, numbers: Mapping[int, tuple[str, int]]) -> list[tuple[Any, ...]]:
    rows = []
    for one in rank.collectives:
        group, ranks, size = _group(one.group)
        contributed, received = _message(one)
        rows.append((
            *numbers[one.row], rank.rank, group, ranks, one.written, size, one.dtype,
            one.in_elements, contributed, one.out_elements, received, *_splits(one), one.stream,
            (one.start_ns - rank.base_ns) / 1000, one.duration_ns / 1000, *_node(rank, one.group),
        ))  # fmt: skip
    return rows


def _numbers(rank: RankTrace) -> dict[int, tuple[str, int]]:
    """Identity and sequence number within its group of each kernel, by row; in order of starts."""
    counts: Counter[str] = Counter()
    found = {}
    for one in rank.collectives:
        group = _group(one.group)[0]
        found[one.row] = (f"{group}_{counts[group]}", counts[group])
        counts[group] += 1
    return found


def _node(rank: RankTrace, group: Group | None) -> tuple[int | None, str]:
    if not rank.devices or rank.rank is None:
        return None, "unknown"
    return rank.rank // rank.devices, _span(group, rank.devices)


def _span(group: Group | None, devices: int) -> str:
    if group is None or not group.ranks or not devices:
        return "unknown"
    return "intra_node" if len({rank // devices for rank in group.ranks}) == 1 else "inter_node"


def _summary(ranks: Sequence[RankTrace], *, with_node: bool) -> list[tuple[Any, ...]]:
    groups: dict[tuple[Any, ...], list[tuple[RankTrace, Collective]]] = {}
    for rank in ranks:
        for one in rank.collectives:
            group, members, size = _group(one.group)
            key = (
                rank.rank, group, members, one.written, size, one.dtype, one.in_elements,
                one.out_elements, *_splits(one), one.stream,
            )  # fmt: skip
            groups.setdefault(key, []).append((rank, one))
    rows = []
    for key, found in groups.items():
        rank, one = found[0]
        durations = np.array([kernel.duration_ns for _, kernel in found], np.int64)
        times = grouped_statistics(np.zeros(len(durations), np.int64), durations, 1)
        spread = None if len(durations) == 1 else float(times.std[0]) / 1000
        rows.append((
            *key, *_message(one), int(times.sum[0]) / 1000, float(times.mean[0]) / 1000, spread,
            float(times.min[0]) / 1000, float(times.max[0]) / 1000, len(durations),
            *(_node(rank, one.group) if with_node else ()),
        ))  # fmt: skip
    return sorted(rows, key=lambda row: -row[13])


def _gibibytes(bandwidth: float | None) -> float | None:
    """10⁹ bytes/s in 2³⁰ bytes/s."""
    return None if bandwidth is None else bandwidth * 1e9 / _GIB


def _by_kind(job: JobCollectives) -> list[tuple[Any, ...]]:
    rows = []
    for key, ones in grouped(job.matching.matched, _kind).items():
        skews = [one.skews_ns() for one in ones]
        latencies = [one.latency_ns / 1000 for one in ones]
        rows.append((
            *(cell if cell is not None else "Unknown" for cell in key),
            _group(ones[0].group)[0], ones[0].group_size, _mebibytes(ones[0].bytes, 1),
            *_four(latencies),
            *_four([start / 1000 for start, _ in skews]),
            *_four([end / 1000 for _, end in skews]),
            *_four([_gibibytes(one.algorithm_bandwidth) for one in ones]),
            *_four([_gibibytes(one.bus_bandwidth) for one in ones]),
            len(ones), sum(latencies) / 1000,
        ))  # fmt: skip
    return sorted(rows, key=lambda row: -row[-1])


def _kind(one: Matched) -> tuple[str | None, str | None, int | None]:
    kernel = one.members[0][1]
    return kernel.written, one.dtype, kernel.in_elements


def _four(values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Mean, median, minimum and maximum of the known values."""
    known = np.array([value for value in values if value is not None])
    if not len(known):
        return (None,) * 4
    return (float(known.mean()), float(np.median(known)), float(known.min()), float(known.max()))


def _wide(job: JobCollectives, numbers: Mapping[Path, Mapping[int, tuple[str, int]]]) -> Table:
    """``nccl_implicit_sync``, which has columns for every rank."""
    sheet, by_number = BY_NAME["nccl_implicit_sync"], job.job.by_rank
    ranks = sorted(by_number)[:MOST_RANK_COLUMNS]
    *common, span = (c for c in sheet.columns if not c.name.startswith("rank_*"))
    ts, dur, wait = (c for c in sheet.columns if c.name.startswith("rank_*"))

    def of_rank(rank: int, column: Column) -> Column:
        return replace(column, name=column.name.replace("*", str(rank)))

    columns = (
        *common,
        *(of_rank(rank, column) for rank in ranks for column in (ts, dur)),
        *(of_rank(rank, wait) for rank in ranks),
        span,
    )
    base = job.job.ranks[0].base_ns
    rows = []
    for one in job.matching.matched:
        first, kernel = one.members[0]
        group, members, _ = _group(one.group)
        start_skew, end_skew = one.skews_ns()
        waits, by_rank = one.waits_ns(), dict(one.members)
        moments: list[float | None] = []
        for found in map(by_rank.get, ranks):
            times = (found.start_ns - base, found.duration_ns) if found is not None else ()
            moments += [ns / 1000 for ns in times] or [None, None]
        rows.append((
            numbers[by_number[first].file][kernel.row][0],
            group, members, kernel.written, one.group_size, one.dtype,
            kernel.in_elements, kernel.out_elements, *_message(kernel), _mebibytes(one.bytes, 1),
            one.latency_ns / 1000, start_skew / 1000,
            _earliest(waits),
            sum(waits.values()) / len(waits) / 1000, end_skew / 1000,
            _gibibytes(one.algorithm_bandwidth), _gibibytes(one.bus_bandwidth),
            *moments, *(waits[rank] / 1000 if rank in waits else None for rank in ranks),
            _span(one.group, by_number[first].devices),
        ))  # fmt: skip
    return Table(sheet.name, columns, rows)


def _earliest(waits: Mapping[int, int]) -> int:
    """The rank that waits longest, of several the last one."""
    return max(waits, key=lambda rank: (waits[rank], rank))


def _stragglers(job: JobCollectives) -> list[tuple[Any, ...]]:
    matched = job.matching.matched
    if not matched:
        return []
    first = Counter(_earliest(one.waits_ns()) for one in matched)
    rows = []
    for rank in job.stragglers():
        trace = job.job.by_rank[rank.rank]
        rows.append((
            rank.rank, rank.waited_ns / 1000,
            rank.waited_ns / rank.collectives / 1000 if rank.collectives else None,
            rank.last_count, first[rank.rank], 100 * rank.last_count / len(matched),
            len(matched), sum(kernel.duration_ns for kernel in trace.collectives) / 1000,
            rank.rank // trace.devices if trace.devices else None,
        ))  # fmt: skip
    return sorted(rows, key=lambda row: (row[1], row[0]))
