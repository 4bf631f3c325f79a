"""The collectives of one point by operation and size: latency and bus bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmetry.analysis.sweeps.model import RankFacts
from gemmetry.statistics.quantiles import median
from gemmetry.traces.collectives.jobs import JobCollectives, JobKind, analyse_job
from gemmetry.traces.jobs import RankTrace, TraceJob, group_jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class PointCollective:
    """The collectives of one point with the same operation, type, size and group size."""

    op: str | None
    dtype: str | None
    bytes: int | None
    """Size of the whole message."""
    group_size: int | None
    count: int
    latency_us: float | None
    """Median time from the last rank's start to the last end; None where no collective could be
    matched between ranks."""
    busbw_gbps: float | None
    """Median bus bandwidth in 10⁹ B/s."""
    duration_us: float
    """Median duration of their kernels, waits for other ranks included."""
    is_complete: bool
    """Whether every rank of the groups has a trace. Otherwise latencies are upper bounds and
    bandwidths lower bounds."""


def communication_trace(facts: RankFacts) -> RankTrace:
    """What a trace shows of collectives. Copies between GPUs are left out: nothing shows to which
    collective one belongs."""
    kernels = (one.collective for one in facts.communication)
    return RankTrace(
        file=Path(facts.file),
        rank=facts.rank,
        rank_source=facts.rank_source,
        world_size=facts.world_size,
        job=facts.job,
        host=facts.host,
        base_ns=facts.base_ns,
        span=facts.span,
        collectives=tuple(one for one in kernels if one.op != "copy"),
        partial=facts.partial,
        problems=facts.problems,
    )


def matched_job(ranks: Sequence[RankFacts]) -> JobCollectives:
    """The collectives of a point's ranks, matched.

    Of several traces of one rank, which a damaged sweep may have, the first is used, and of traces
    that belong to different runs those of the run with the most ranks.
    """
    traces: dict[int | None, RankTrace] = {}
    for facts in ranks:
        traces.setdefault(facts.rank, communication_trace(facts))
    jobs = group_jobs(traces.values())
    if not jobs:
        return analyse_job(TraceJob(name="", ranks=(), world_size=None, missing=(), notes=()))
    return analyse_job(max(jobs, key=_size))


def _size(job: TraceJob) -> tuple[int, int]:
    """Ranks that communicate, and all of them."""
    return sum(bool(one.collectives) for one in job.ranks), len(job.ranks)


def point_collectives(job: JobCollectives) -> tuple[PointCollective, ...]:
    """The collectives of a point, those with the most time first; () without any."""
    return tuple(map(_collective, job.kinds))


def _collective(kind: JobKind) -> PointCollective:
    durations = [kernel.duration_ns for one in kind.ones for _, kernel in one.members]
    latencies = [one.latency_ns / 1000 for one in kind.ones if not one.is_lone]
    bandwidths = [one.bus_bandwidth for one in kind.ones]
    return PointCollective(
        op=kind.op,
        dtype=kind.dtype,
        bytes=kind.ones[0].bytes,
        group_size=kind.group_size,
        count=len(kind.ones),
        latency_us=_median(latencies),
        busbw_gbps=_median([one for one in bandwidths if one is not None]),
        duration_us=median(durations) / 1000,
        is_complete=all(one.is_complete for one in kind.ones),
    )


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
