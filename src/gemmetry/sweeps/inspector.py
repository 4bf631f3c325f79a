"""NCCL's own records of a point (NCCL Inspector), next to what its traces show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gemmetry.domain.errors import RequestError
from gemmetry.formats.nccl import (
    InspectorRecord,
    inspector_files,
    inspector_records,
    is_inspector_file,
)
from gemmetry.statistics.intervals import median, median_interval
from gemmetry.sweeps.model import Point
from gemmetry.sweeps.rows import RecordedCollective
from gemmetry.traces.collectives.matching import JobCollectives
from gemmetry.traces.collectives.summary import bus_factor

CollectiveKey = tuple[str | None, int | None, int | None]
"""Operation, bytes of the whole message, number of ranks."""


def read_records(point: Point, problems: list[str]) -> Iterator[InspectorRecord]:
    """All records of NCCL Inspector in the folder of a point; what cannot be read is added to
    `problems`."""
    if point.outcome == "not_run":  # Its folder is the sweep's.
        return
    for path in inspector_files(point.folder):
        try:
            if is_inspector_file(path):
                yield from inspector_records(path, problems)
        except RequestError as error:
            problems.append(error.message)


def recorded_collectives(
    records: Iterable[InspectorRecord], job: JobCollectives
) -> tuple[RecordedCollective, ...]:
    """The records by operation, size and ranks, those with the most time first, next to the matched
    collectives of the same kind in the traces."""
    kinds: dict[CollectiveKey, _Kind] = {}
    for one in records:
        key = (one.operation, one.bytes, one.ranks)
        kinds.setdefault(key, _Kind(one)).add(one)
    traced = traced_latencies(job)
    found = [kind.result(traced.get(key, [])) for key, kind in kinds.items()]
    return tuple(sorted(found, key=lambda one: -sum(one.latencies_us)))


def traced_latencies(job: JobCollectives) -> dict[CollectiveKey, list[float]]:
    """Latencies in µs of the matched collectives of the traces, by kind."""
    found: dict[CollectiveKey, list[float]] = {}
    for one in job.matching.matched:
        key = (one.op, one.bytes, one.group_size)
        found.setdefault(key, []).append(one.latency_ns / 1e3)
    return found


class _Kind:
    """The records of one kind while they are read."""

    def __init__(self, first: InspectorRecord) -> None:
        self.first = first
        self.shortest: dict[tuple[object, ...], float] = {}
        """Collective -> the shortest duration on any rank."""
        self.records: Counter[tuple[object, ...]] = Counter()
        self.channels: Counter[int] = Counter()
        self.timing: Counter[str] = Counter()

    def add(self, one: InspectorRecord) -> None:
        number = one.sequence if one.sequence is not None else -1 - self.timing.total()
        collective = (one.communicator, number, one.peer)
        duration = one.duration_us
        self.shortest[collective] = min(duration, self.shortest.get(collective, duration))
        self.records[collective] += 1
        self.timing[one.timing] += 1
        if one.channels:
            self.channels[one.channels] += 1

    def result(self, traced: Sequence[float]) -> RecordedCollective:
        first, latencies = self.first, tuple(self.shortest.values())
        traced_us, middle = median(traced) if traced else None, median(latencies)
        low, high = median_interval(latencies, 0.95) or (None, None)
        return RecordedCollective(
            operation=first.operation,
            bytes=first.bytes,
            ranks=first.ranks,
            nodes=first.nodes,
            count=len(latencies),
            is_complete=all(count >= first.ranks for count in self.records.values()),
            timing=self.timing.most_common(1)[0][0],
            channels=self.channels.most_common(1)[0][0] if self.channels else None,
            latencies_us=latencies,
            latency_us=middle,
            low=low,
            high=high,
            busbw_gbps=_bandwidth(first, middle),
            traced_count=len(traced),
            traced_latency_us=traced_us,
            traced_busbw_gbps=_bandwidth(first, traced_us),
        )


def _bandwidth(kind: InspectorRecord, latency_us: float | None) -> float | None:
    factor = bus_factor(kind.operation, kind.ranks)
    if factor is None or not latency_us:
        return None
    return kind.bytes * factor / latency_us / 1e3
