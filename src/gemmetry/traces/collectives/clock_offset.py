"""Estimates the clock offsets of a job's ranks from collectives that end together.

A collective in which every rank needs data of every other one ends on all ranks within
microseconds, so the median difference of its end times is the difference of the clocks. The times
also bound the offset: no rank can end before the last one has begun. A single recording cannot
distinguish clock offsets from stragglers by start times, so those are not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemmetry.traces.collectives.matched import Matched
from gemmetry.traces.collectives.summary import SYNCHRONISING, Collective
from gemmetry.traces.jobs import TraceJob

LEAST_NS = 5_000
SCATTERS = 5.0
"""An offset between nodes is applied where it is larger than both 5 us and 5 times its scatter, or
where the bounds exclude 0. With one clock (4x H200 of one host, 8 recordings of FSDP, `gemmetry
trace collectives`) the estimates for 24 ranks are between -0.3 and +1.2 us, their scatters 0.7 to
26 us."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The offset to add to the times of one rank to convert them to those of the job's first
    rank."""

    rank: int
    node: int
    """Index of the node, from 0; ranks of one node have the same clock."""
    offset_ns: int
    """Estimated: median of the differences of ends; 0 for the first rank."""
    scatter_ns: int
    """Median absolute deviation of those differences."""
    lower_ns: int | None
    """No smaller offset is possible: with it a rank would have ended before another had begun. None
    where no collective provides a bound, or where no offset satisfies all collectives."""
    upper_ns: int | None
    collectives: int
    """Number of usable collectives; with 0, the offset is taken as 0."""
    applied_ns: int
    """Offset used by corrected values: the node's offset, or 0 on the first rank's node unless the
    bounds exclude 0."""


def clock_offsets(job: TraceJob, matched: Sequence[Matched]) -> list[ClockOffset]:
    """The clock offset of each rank of `job`, by rank."""
    ranks = sorted(job.by_rank)
    nodes = node_numbers(job)
    pairs = _pairs(matched)
    estimates = {ranks[0]: _Estimate(0, 0, 0, 0, 0)} if ranks else {}
    reached = list(estimates)
    # From rank to rank, as not all ranks share a group with the first one.
    while reached:
        known = reached.pop(0)
        for rank in ranks:
            ones = pairs.get((known, rank), [])
            if rank not in estimates and ones:
                estimates[rank] = _estimate(ones, estimates[known])
                reached.append(rank)
    applied = _applied(ranks, nodes, estimates)
    unknown = _Estimate(0, 0, None, None, 0)
    return [
        _clock(rank, nodes[rank], estimates.get(rank, unknown), applied[rank]) for rank in ranks
    ]


def _clock(rank: int, node: int, one: _Estimate, applied: int) -> ClockOffset:
    return ClockOffset(
        rank, node, one.offset, one.scatter, one.lower, one.upper, one.count, applied
    )


def node_numbers(job: TraceJob) -> dict[int, int]:
    """The node of each rank: by host name where all traces record it; else ranks fill one node
    after the other, and a repeated device number begins the next node."""
    traces = job.by_rank
    hosts = {rank: one.host for rank, one in traces.items()}
    if all(hosts.values()):
        numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts.values()))}
        return {rank: numbers[host] for rank, host in hosts.items()}
    node, used = 0, set[int]()
    result = {}
    for rank in sorted(traces):
        devices = {one.device for one in traces[rank].collectives if one.device >= 0}
        if devices & used:
            node, used = node + 1, set()
        used |= devices
        result[rank] = node
    return result


@dataclass(frozen=True, slots=True)
class _Estimate:
    offset: int
    scatter: int
    lower: int | None
    upper: int | None
    count: int

    @property
    def excludes_0(self) -> bool:
        """Whether the clocks cannot be the same."""
        return (
            self.lower is not None
            and self.upper is not None
            and not (self.lower <= 0 <= self.upper)
        )


def _pairs(matched: Sequence[Matched]) -> Mapping[tuple[int, int], list[tuple[Collective, ...]]]:
    """Both kernels of each synchronising collective, by pair of ranks in both orders."""
    result: dict[tuple[int, int], list[tuple[Collective, ...]]] = {}
    for one in matched:
        if one.op not in SYNCHRONISING:
            continue
        # The first rank of each group with every other one: enough to reach all.
        first, kernel = one.members[0]
        for rank, other in one.members[1:]:
            result.setdefault((first, rank), []).append((kernel, other))
            result.setdefault((rank, first), []).append((other, kernel))
    return result


def _estimate(ones: Sequence[tuple[Collective, ...]], known: _Estimate) -> _Estimate:
    ends = np.array([left.end_ns - right.end_ns for left, right in ones], np.int64)
    middle = round(float(np.median(ends)))
    scatter = round(float(np.median(np.abs(ends - middle))))
    lower: int | None = max(left.start_ns - right.end_ns for left, right in ones)
    upper: int | None = min(left.end_ns - right.start_ns for left, right in ones)
    assert lower is not None and upper is not None
    if lower > upper or known.lower is None or known.upper is None:
        lower = upper = None
    else:
        lower, upper = lower + known.lower, upper + known.upper
    return _Estimate(middle + known.offset, scatter + known.scatter, lower, upper, len(ones))


def _applied(
    ranks: Sequence[int], nodes: Mapping[int, int], estimates: Mapping[int, _Estimate]
) -> dict[int, int]:
    result = {}
    for rank in ranks:
        own = estimates.get(rank)
        peers = [estimates[r] for r in ranks if nodes[r] == nodes[rank] and r in estimates]
        if own is None:
            result[rank] = 0
        elif nodes[rank] == nodes[ranks[0]]:
            result[rank] = own.offset if own.excludes_0 else 0
        else:
            offset = round(float(np.median([one.offset for one in peers])))
            scatter = float(np.median([one.scatter for one in peers]))
            is_large = abs(offset) > max(LEAST_NS, SCATTERS * scatter)
            is_sure = is_large or any(one.excludes_0 for one in peers)
            result[rank] = offset if is_sure else 0
    return result
