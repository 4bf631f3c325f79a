"""NCCL's own records of a point (NCCL Inspector), next to what its traces show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gemmetry.analysis.sweeps.model import Point
from gemmetry.formats.nccl.inspector import (
    InspectorRecord,
    inspector_files,
    read_inspector_file,
)
from gemmetry.statistics.intervals import median_interval
from gemmetry.statistics.quantiles import median
from gemmetry.traces.collectives.bandwidth import bus_factor
from gemmetry.traces.collectives.jobs import JobCollectives

CollectiveKey = tuple[str | None, int | None, int | None]
"""Operation, bytes of the whole message, number of ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCollective:
    """The collectives of a point with the same operation, size and number of ranks, as NCCL
    recorded them over the whole run, and as the traces show those of the profiled steps."""

    operation: str
    bytes: int
    """Of the whole message."""
    ranks: int
    nodes: int | None
    count: int
    """Collectives, each recorded by several ranks."""
    is_complete: bool
    """Whether every rank recorded each of them; otherwise latencies are upper bounds."""
    timing: str
    """The clock of most records: ``kernel_gpu``, ``kernel_cpu``, ``collective_cpu``, or ""."""
    channels: int | None
    latencies_us: tuple[float, ...]
    """Of each collective: the shortest duration on any rank, which did not wait for others."""
    interval_us: tuple[float, float] | None
    """95 % interval of the median latency; None for fewer than 6 collectives."""
    busbw_gbps: float | None
    """Bus bandwidth at the median latency, in 10⁹ B/s."""
    traced_count: int
    """Collectives in the traces; 0 without any."""
    traced_latency_us: float | None
    traced_busbw_gbps: float | None

    @property
    def latency_us(self) -> float:
        """Median latency."""
        return median(self.latencies_us)

    @property
    def key(self) -> CollectiveKey:
        """What identifies it in traces as well."""
        return self.operation, self.bytes, self.ranks


def read_records(point: Point) -> tuple[list[InspectorRecord], list[str]]:
    """All records of NCCL Inspector in the folder of a point, and what could not be read."""
    if point.outcome == "not_run":  # Its folder is the sweep's.
        return [], []
    files = [read_inspector_file(path) for path in inspector_files(point.folder)]
    records = [record for file in files for record in file.records]
    return records, [problem for file in files for problem in file.problems]


def recorded_collectives(
    records: Iterable[InspectorRecord], job: JobCollectives
) -> tuple[RecordedCollective, ...]:
    """The records by operation, size and ranks, those with the most time first, next to the matched
    collectives of the same kind in the traces."""
    single: dict[object, list[InspectorRecord]] = {}
    for place, one in enumerate(records):
        number: object = (one.sequence, one.peer) if one.sequence is not None else (None, place)
        single.setdefault((one.communicator, one.operation, number), []).append(one)
    kinds: dict[CollectiveKey, list[list[InspectorRecord]]] = {}
    for ones in single.values():
        kinds.setdefault((ones[0].operation, ones[0].bytes, ones[0].ranks), []).append(ones)
    traced = traced_latencies(job)
    found = [_recorded(ones, traced.get(key, [])) for key, ones in kinds.items()]
    return tuple(sorted(found, key=lambda one: -sum(one.latencies_us)))


def traced_latencies(job: JobCollectives) -> dict[CollectiveKey, list[float]]:
    """Latencies in µs of the matched collectives of the traces, by kind."""
    found: dict[CollectiveKey, list[float]] = {}
    for one in job.matching.matched:
        key = (one.op, one.bytes, one.group_size)
        found.setdefault(key, []).append(one.latency_ns / 1e3)
    return found


def _recorded(
    ones: Sequence[Sequence[InspectorRecord]], traced: Sequence[float]
) -> RecordedCollective:
    first = ones[0][0]
    latencies = tuple(min(record.duration_us for record in records) for records in ones)
    channels = Counter(one.channels for records in ones for one in records if one.channels)
    timing = Counter(one.timing for records in ones for one in records)
    traced_us = median(traced) if traced else None
    return RecordedCollective(
        operation=first.operation,
        bytes=first.bytes,
        ranks=first.ranks,
        nodes=first.nodes,
        count=len(ones),
        is_complete=all(len({one.rank for one in records}) == first.ranks for records in ones),
        timing=timing.most_common(1)[0][0],
        channels=channels.most_common(1)[0][0] if channels else None,
        latencies_us=latencies,
        interval_us=median_interval(latencies, 0.95),
        busbw_gbps=_bandwidth(first, median(latencies)),
        traced_count=len(traced),
        traced_latency_us=traced_us,
        traced_busbw_gbps=_bandwidth(first, traced_us),
    )


def _bandwidth(kind: InspectorRecord, latency_us: float | None) -> float | None:
    factor = bus_factor(kind.operation, kind.ranks)
    if factor is None or not latency_us:
        return None
    return kind.bytes * factor / latency_us / 1e3
