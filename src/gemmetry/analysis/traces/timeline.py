"""Which lanes the timeline of a report of traces shows, in which order, and what was sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gemmetry.analysis.traces.report import TraceReport
from gemmetry.traces.collectives.jobs import JobCollectives
from gemmetry.traces.collectives.matched import Matched
from gemmetry.traces.jobs import RankTrace
from gemmetry.traces.summary import Summary
from gemmetry.traces.timeline import TimelineLane


class CollectiveMessage(NamedTuple):
    """What a communication kernel exchanged; None where it is not known."""

    op: str | None
    bytes: int | None
    dtype: str | None
    ranks: int | None
    bus_bandwidth: float | None
    """10⁹ bytes/s. None also if a rank of its group has no file, because it would be a bound."""


class RankLanes(NamedTuple):
    """The lanes of a rank that are shown, in their order."""

    trace: RankTrace
    lanes: list[TimelineLane]
    steps: list[Summary]
    messages: dict[int, CollectiveMessage]
    """By the row of ``TraceRows.gpu``."""


class JobLanes(NamedTuple):
    """The lanes of a job on one time axis."""

    name: str
    ranks: list[RankLanes]
    base_ns: int
    """Start of the first work that is shown."""
    end_ns: int
    """End of the last."""
    left_out: int
    """Number of lanes that are not shown."""


def job_lanes(report: TraceReport, most: int) -> list[JobLanes]:
    """The `most` lanes with the most work of each job that has any. The lanes of every rank are in
    the same order: by device, and streams with the most work over all ranks first."""
    by_file: dict[str, list[TimelineLane]] = {}
    for lane in report.lanes:
        by_file.setdefault(lane.file, []).append(lane)
    steps: dict[Path, list[Summary]] = {}
    for step in report.steps:
        steps.setdefault(step.file, []).append(step)
    found = []
    for job in report.jobs:
        lanes = [lane for one in job.job.ranks for lane in by_file.get(str(one.file), ())]
        if not lanes:
            continue
        shown = sorted(lanes, key=lambda lane: -int(lane.duration_ns.sum()))[:most]
        kept, order, messages = {id(lane) for lane in shown}, _order(lanes), _messages(job)
        ranks = [
            RankLanes(
                trace=one,
                lanes=sorted((i for i in by_file[str(one.file)] if id(i) in kept), key=order),
                steps=steps.get(one.file, []),
                messages=messages[one.rank],
            )
            for one in job.job.ranks
            if str(one.file) in by_file
        ]
        found.append(
            JobLanes(
                name=job.job.name,
                ranks=ranks,
                base_ns=min(int(lane.start_ns.min()) for lane in shown),
                end_ns=max(int((lane.start_ns + lane.duration_ns).max()) for lane in shown),
                left_out=len(lanes) - len(shown),
            )
        )
    return found


def _order(lanes: Sequence[TimelineLane]) -> Callable[[TimelineLane], Any]:
    spent: dict[tuple[int, str], int] = {}
    for lane in lanes:
        key = (lane.stream, lane.thread)
        spent[key] = spent.get(key, 0) + int(lane.duration_ns.sum())
    return lambda lane: (lane.device, -spent[lane.stream, lane.thread], lane.stream, lane.thread)


def _messages(found: JobCollectives) -> dict[int | None, dict[int, CollectiveMessage]]:
    """What the communication kernels of each rank exchanged."""
    matched: dict[tuple[int | None, int], Matched] = {
        (rank, kernel.row): one for one in found.matching.matched for rank, kernel in one.members
    }
    messages: dict[int | None, dict[int, CollectiveMessage]] = {}
    for rank in found.job.ranks:
        of_rank = messages.setdefault(rank.rank, {})
        for kernel in rank.collectives:
            one = matched.get((rank.rank, kernel.row))
            of_rank[kernel.row] = CollectiveMessage(
                op=kernel.op,
                bytes=one.bytes if one else kernel.bytes,
                dtype=kernel.dtype,
                ranks=one.group_size if one else kernel.group.size if kernel.group else None,
                bus_bandwidth=one.bus_bandwidth if one and one.is_complete else None,
            )
    return messages
