"""Tables of collectives with the names, units and definitions of TraceLens' workbooks.

Bandwidths here are in 2³⁰ bytes/s, as in TraceLens; gemmetry's own tables use 10⁹ bytes/s. The
tables contain all matched collectives, not only all-reduces, all-gathers, reduce-scatters and
all-to-alls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmetry.domain.tables import Column, Table
from gemmetry.traces.collectives.alignment import Matched
from gemmetry.traces.collectives.matching import JobCollectives
from gemmetry.traces.collectives.summary import Collective, Group
from gemmetry.traces.jobs import RankTrace
from gemmetry.traces.model import Trace
from gemmetry.traces.operators.gemms import grouped_statistics
from gemmetry.traces.tracelens.sheets import BY_NAME

UNKNOWN_GROUP = "Unknown_Group"

MOST_RANK_COLUMNS = 1000
"""Most ranks with their own columns; a sheet has 16384 columns (Excel's published limits)."""

_MIB = 1 << 20
_GIB = 1 << 30
_WORDS = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter"}
"""gemmetry's name of an operation -> PyTorch's, for kernels whose operation is known only from
their name."""


@dataclass(frozen=True)
class CommunicationNames:
    """The data of a trace that these tables need after its rows have been released."""

    operations: Mapping[int, str]
    """Operation as written in the trace, by row of ``TraceRows.gpu``, where a kernel records
    one."""
    devices: int
    """Number of GPUs of the node; 0: unknown."""


def communication_names(trace: Trace) -> CommunicationNames:
    """Must be created while the rows of `trace` are loaded."""
    gpu = trace.rows.gpu
    rows = np.flatnonzero(trace.is_communication & (gpu.collective >= 0))
    calls = trace.rows.collectives
    operations = {int(row): calls[gpu.collective[row]].operation for row in rows}
    return CommunicationNames(
        {row: name for row, name in operations.items() if name}, len(trace.rows.devices)
    )


def single_trace_sheet(rank: RankTrace, names: CommunicationNames) -> Table:
    """``coll_analysis``: the collectives of one trace."""
    return BY_NAME["coll_analysis"].table(_summary([(rank, names)], with_node=False))


def job_sheets(job: JobCollectives, names: Mapping[Any, CommunicationNames]) -> list[Table]:
    """The sheets of TraceLens' report of several ranks.

    Args:
        names: by file of the trace.
    """
    ranks = [(one, names[one.file]) for one in job.job.ranks]
    numbers = {one.file: _numbers(one) for one, _ in ranks}
    wide = _wide(job, names, numbers)
    found = {
        "nccl_summary_implicit_sync": _by_kind(job, names),
        "nccl_summary_long": _summary(ranks, with_node=True),
        "nccl_long": [
            row for one, written in ranks for row in _long(one, written, numbers[one.file])
        ],
        wide.name: wide.rows,
        "straggler_summary": _stragglers(job, names),
    }
    columns = {name: BY_NAME[name].columns for name in found} | {wide.name: wide.columns}
    return [Table(name, columns[name], rows) for name, rows in found.items() if rows]


def written_name(one: Collective, names: CommunicationNames) -> str | None:
    """The operation as the trace names it, else as PyTorch would; None where it is not known."""
    operation = names.operations.get(one.row)
    return operation or (_WORDS.get(one.op, one.op) if one.op else None)


def _group(group: Group | None) -> tuple[str, str | None, int | None]:
    """Name, ranks and size."""
    if group is None:
        return UNKNOWN_GROUP, None, None
    ranks = repr(list(group.ranks)) if group.ranks else None
    return UNKNOWN_GROUP if group.name is None else group.name, ranks, group.size


def _mebibytes(elements: int | None, size: int | None) -> float | None:
    return None if elements is None or size is None else elements * size / _MIB


def _splits(splits: Sequence[int]) -> str:
    return repr(list(splits))


def _long(
    rank: RankTrace, names: CommunicationNames, numbers: Mapping[int, tuple[str, int]]
) -> list[tuple[Any, ...]]:
    rows = []
    for one in rank.collectives:
        group, ranks, size = _group(one.group)
        identity, number = numbers[one.row]
        width = one.element_bytes
        rows.append((
            identity, number, rank.rank, group, ranks, written_name(one, names), size, one.dtype,
            one.in_elements, _mebibytes(one.in_elements, width),
            one.out_elements, _mebibytes(one.out_elements, width),
            _splits(one.in_splits), _splits(one.out_splits), one.stream,
            (one.start_ns - rank.base_ns) / 1000, one.duration_ns / 1000,
            *_node(rank.rank, one.group, names.devices),
        ))  # fmt: skip
    return rows


def _numbers(rank: RankTrace) -> dict[int, tuple[str, int]]:
    """Identity and sequence number within its group of each kernel, by row; in order of starts."""
    counts: dict[str, int] = {}
    found = {}
    for one in rank.collectives:
        group = _group(one.group)[0]
        number = counts.get(group, 0)
        counts[group] = number + 1
        found[one.row] = (f"{group}_{number}", number)
    return found


def _node(rank: int | None, group: Group | None, devices: int) -> tuple[int | None, str]:
    if not devices or rank is None:
        return None, "unknown"
    return rank // devices, _span(group, devices)


def _span(group: Group | None, devices: int) -> str:
    if group is None or not group.ranks or not devices:
        return "unknown"
    nodes = {rank // devices for rank in group.ranks}
    return "intra_node" if len(nodes) == 1 else "inter_node"


def _summary(
    ranks: Sequence[tuple[RankTrace, CommunicationNames]], *, with_node: bool
) -> list[tuple[Any, ...]]:
    groups: dict[tuple[Any, ...], list[tuple[Collective, CommunicationNames]]] = {}
    for rank, names in ranks:
        for one in rank.collectives:
            group, members, size = _group(one.group)
            key = (
                rank.rank, group, members, written_name(one, names), size, one.dtype,
                one.in_elements, one.out_elements, _splits(one.in_splits),
                _splits(one.out_splits), one.stream,
            )  # fmt: skip
            groups.setdefault(key, []).append((one, names))
    rows = []
    for key, members_of in groups.items():
        one, names = members_of[0]
        durations = np.array([kernel.duration_ns for kernel, _ in members_of], np.int64)
        times = grouped_statistics(np.zeros(len(durations), np.int64), durations, 1)
        width = one.element_bytes
        spread = None if len(durations) == 1 else float(times.std[0]) / 1000
        node = _node(key[0], one.group, names.devices) if with_node else ()
        rows.append((
            *key, _mebibytes(one.in_elements, width), _mebibytes(one.out_elements, width),
            int(times.sum[0]) / 1000, float(times.mean[0]) / 1000, spread,
            float(times.min[0]) / 1000, float(times.max[0]) / 1000, len(durations), *node,
        ))  # fmt: skip
    return sorted(rows, key=lambda row: -row[13])


def _gibibytes(bandwidth: float | None) -> float | None:
    """10⁹ bytes/s in 2³⁰ bytes/s."""
    return None if bandwidth is None else bandwidth * 1e9 / _GIB


def _first(one: Matched, names: Mapping[Any, CommunicationNames], job: JobCollectives) -> Any:
    rank, kernel = one.members[0]
    return kernel, names[job.job.by_rank[rank].file]


def _by_kind(job: JobCollectives, names: Mapping[Any, CommunicationNames]) -> list[tuple[Any, ...]]:
    groups: dict[tuple[Any, ...], list[Matched]] = {}
    for one in job.matching.matched:
        kernel, written = _first(one, names, job)
        key = (written_name(kernel, written), one.dtype, kernel.in_elements)
        groups.setdefault(key, []).append(one)
    rows = []
    for key, ones in groups.items():
        skews = [one.skews_ns() for one in ones]
        latencies = [one.latency_ns / 1000 for one in ones]
        size = ones[0].bytes
        rows.append((
            *(cell if cell is not None else "Unknown" for cell in key),
            _group(ones[0].group)[0], ones[0].group_size, None if size is None else size / _MIB,
            *_four(latencies),
            *_four([start / 1000 for start, _ in skews]),
            *_four([end / 1000 for _, end in skews]),
            *_four([_gibibytes(one.algorithm_bandwidth) for one in ones]),
            *_four([_gibibytes(one.bus_bandwidth) for one in ones]),
            len(ones), sum(latencies) / 1000,
        ))  # fmt: skip
    return sorted(rows, key=lambda row: -row[-1])


def _four(values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Mean, median, minimum and maximum of the known values."""
    known = np.array([value for value in values if value is not None])
    if not len(known):
        return (None,) * 4
    return (float(known.mean()), float(np.median(known)), float(known.min()), float(known.max()))


def _wide(
    job: JobCollectives,
    names: Mapping[Any, CommunicationNames],
    numbers: Mapping[Any, Mapping[int, tuple[str, int]]],
) -> Table:
    """``nccl_implicit_sync``, which has columns for every rank."""
    sheet = BY_NAME["nccl_implicit_sync"]
    ranks = sorted(job.job.by_rank)[:MOST_RANK_COLUMNS]
    *common, span = (c for c in sheet.columns if not c.name.startswith("rank_*"))
    ts, dur, wait = (c for c in sheet.columns if c.name.startswith("rank_*"))
    columns = (
        *common,
        *(_of_rank(rank, column) for rank in ranks for column in (ts, dur)),
        *(_of_rank(rank, wait) for rank in ranks),
        span,
    )
    base = job.job.ranks[0].base_ns
    rows = []
    for one in job.matching.matched:
        kernel, written = _first(one, names, job)
        group, members, _ = _group(one.group)
        width, size = kernel.element_bytes, one.bytes
        start_skew, end_skew = one.skews_ns()
        waits = one.waits_ns()
        longest = max(waits, key=lambda rank: (waits[rank], rank))
        by_rank = dict(one.members)
        moments: list[float | None] = []
        for rank in ranks:
            found = by_rank.get(rank)
            moments += (
                (None, None) if found is None
                else ((found.start_ns - base) / 1000, found.duration_ns / 1000)
            )  # fmt: skip
        rows.append((
            numbers[job.job.by_rank[one.members[0][0]].file][kernel.row][0],
            group, members, written_name(kernel, written), one.group_size, one.dtype,
            kernel.in_elements, kernel.out_elements,
            _mebibytes(kernel.in_elements, width), _mebibytes(kernel.out_elements, width),
            None if size is None else size / _MIB,
            one.latency_ns / 1000, start_skew / 1000, longest,
            sum(waits.values()) / len(waits) / 1000, end_skew / 1000,
            _gibibytes(one.algorithm_bandwidth), _gibibytes(one.bus_bandwidth),
            *moments, *(waits[rank] / 1000 if rank in waits else None for rank in ranks),
            _span(one.group, written.devices),
        ))  # fmt: skip
    return Table(sheet.name, columns, rows)


def _of_rank(rank: int, column: Column) -> Column:
    return replace(column, name=column.name.replace("*", str(rank)))


def _stragglers(
    job: JobCollectives, names: Mapping[Any, CommunicationNames]
) -> list[tuple[Any, ...]]:
    matched = job.matching.matched
    if not matched:
        return []
    first: dict[int, int] = {}
    took_part: dict[int, int] = {}
    for one in matched:
        waits = one.waits_ns()
        earliest = max(waits, key=lambda rank: (waits[rank], rank))
        first[earliest] = first.get(earliest, 0) + 1
        for rank in waits:
            took_part[rank] = took_part.get(rank, 0) + 1
    rows = []
    for straggler in job.stragglers():
        rank = straggler.rank
        trace = job.job.by_rank[rank]
        count = took_part.get(rank, 0)
        devices = names[trace.file].devices
        rows.append((
            rank, straggler.waited_ns / 1000,
            straggler.waited_ns / count / 1000 if count else None,
            straggler.last_count, first.get(rank, 0), 100 * straggler.last_count / len(matched),
            len(matched), sum(one.duration_ns for one in trace.collectives) / 1000,
            rank // devices if devices else None,
        ))  # fmt: skip
    return sorted(rows, key=lambda row: (row[1], row[0]))
