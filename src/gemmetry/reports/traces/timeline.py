"""The data of the timeline on a page of traces: lanes, steps, and texts of hints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gemmetry.analysis.traces.report import TraceReport
from gemmetry.analysis.traces.timeline import CollectiveMessage, JobLanes, RankLanes, job_lanes
from gemmetry.domain.units import counted, format_memory
from gemmetry.reports.texts import cut
from gemmetry.reports.traces.plots import short_paths
from gemmetry.reports.traces.tables import shape_text
from gemmetry.traces.timeline import KINDS, TimelineLane, Work

MOST_LANES = 128
"""The most lanes of one picture; of more, those with the most work are drawn."""

_COMMUNICATION = KINDS.index("communication")

_Text = tuple[str, str, str, int | None]
"""Name, operator, shape or message, and FLOPs of a piece of work."""


def timeline_groups(report: TraceReport) -> list[dict[str, Any]]:
    """A group of lanes for each job, on one time axis."""
    names = {job.job.name: Path(job.job.name) for job in report.jobs}
    labels = short_paths(list(names.values())) if len(names) > 1 else {}
    return [
        _group(labels.get(names[job.name], job.name), job) for job in job_lanes(report, MOST_LANES)
    ]


def _group(label: str, job: JobLanes) -> dict[str, Any]:
    shown = [lane for rank in job.ranks for lane in rank.lanes]
    labels = _Labels(
        ranks=len({rank.trace.rank for rank in job.ranks}) > 1,
        devices=len({lane.device for lane in shown}) > 1,
        processes=len({lane.thread.rpartition("/")[0] for lane in shown}) > 1,
    )
    works: dict[_Text, int] = {}
    drawn: list[dict[str, Any]] = []
    for rank in job.ranks:
        number = rank.trace.rank
        if rank.steps and rank.lanes:
            drawn.append(_steps(rank, labels.text(number, "steps"), job.base_ns))
        drawn += [
            _lane(lane, labels.of(number, lane), job.base_ns, works, rank.messages)
            for lane in rank.lanes
        ]
    return {
        "label": cut(label),
        "window": job.end_ns - job.base_ns,
        "left_out": job.left_out,
        "lanes": drawn,
        "works": list(works),
    }


def _steps(rank: RankLanes, label: str, base: int) -> dict[str, Any]:
    """The number, start, length and mark length of each step, drawn above the lanes of its rank."""
    shift = rank.trace.base_ns - base
    return {
        "label": label,
        "rows": len(rank.lanes),
        "steps": [
            [one.step.number, one.step.start_ns + shift, one.window_ns, one.step.mark_ns]
            for one in rank.steps
            if one.step
        ],
    }


def _lane(
    lane: TimelineLane,
    label: str,
    base: int,
    works: dict[_Text, int],
    messages: Mapping[int, CollectiveMessage],
) -> dict[str, Any]:
    texts = [_text(work) for work in lane.works]
    own = {
        piece: messages[row]
        for piece in np.flatnonzero(lane.kind == _COMMUNICATION).tolist()
        if (row := int(lane.row[piece])) in messages
    }
    others = np.ones(len(lane.work), bool)
    others[list(own)] = False
    place = np.zeros(len(texts), np.int64)
    for number in np.unique(lane.work[others]).tolist():
        place[number] = works.setdefault(texts[number], len(works))
    numbers = place[lane.work].tolist()
    bandwidths: list[float | None] = [None] * len(numbers)
    for piece, message in own.items():
        name, operator, _, _ = texts[lane.work[piece]]
        numbers[piece] = works.setdefault((name, operator, _sent(message), None), len(works))
        speed = message.bus_bandwidth
        bandwidths[piece] = None if speed is None else round(speed, 2)
    return {
        "label": label,
        # Differences take fewer characters; the script adds them up.
        "start": np.diff(lane.start_ns, prepend=base).tolist(),
        "length": lane.duration_ns.tolist(),
        "kind": lane.kind.tolist(),
        "work": numbers,
        "count": lane.count.tolist() if int(lane.count.max()) > 1 else None,
        "bandwidth": bandwidths if any(one is not None for one in bandwidths) else None,
    }


def _sent(message: CollectiveMessage) -> str:
    amount = "" if message.bytes is None else format_memory(message.bytes)
    size = counted(message.ranks, "rank") if message.ranks else ""
    parts = (message.op, " ".join(filter(None, (amount, message.dtype))), size)
    return " · ".join(filter(None, parts))


def _text(work: Work) -> _Text:
    shape = work.shape
    text = "" if shape is None else shape_text(shape, shape.dtype, shape.layout)
    text += " (inferred)" if work.inferred else ""
    flops = shape.flops if shape is not None and work.is_alone else None
    return cut(work.name, 120), cut(work.operator, 120), text, flops


class _Labels(NamedTuple):
    """Which parts the labels of a group's lanes need."""

    ranks: bool
    devices: bool
    processes: bool

    def of(self, rank: int | None, lane: TimelineLane) -> str:
        if lane.thread:
            whole = self.processes and not self.ranks
            name = lane.thread if whole else lane.thread.rpartition("/")[2]
            return self.text(rank, f"thread {cut(name, 40)}")
        device = [f"GPU {lane.device}"] if self.devices and not self.ranks else []
        return self.text(rank, *device, f"stream {lane.stream}")

    def text(self, rank: int | None, *parts: str) -> str:
        return " · ".join([f"rank {rank}", *parts] if self.ranks else parts)
