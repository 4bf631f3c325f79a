"""The data of the timeline on a page of traces: lanes, steps, and texts of hints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gemmetry.analysis.traces.report import TraceReport
from gemmetry.reports.traces.collective_text import size_text
from gemmetry.reports.traces.html_tables import cut
from gemmetry.reports.traces.plots import short_paths
from gemmetry.reports.traces.tables import shape_text
from gemmetry.traces.collectives.jobs import JobCollectives
from gemmetry.traces.collectives.matched import Matched
from gemmetry.traces.jobs import RankTrace
from gemmetry.traces.summary import Summary
from gemmetry.traces.timeline import KINDS, TimelineLane, Work

MOST_LANES = 128
"""The most lanes of one picture; of more, those with the most work are drawn."""

_COMMUNICATION = KINDS.index("communication")

_Text = tuple[str, str, str, int | None]
"""Name, operator, shape or message, and FLOPs of a piece of work."""


class _Message(NamedTuple):
    """What a communication kernel exchanged."""

    text: str
    bus_bandwidth: float | None
    """10⁹ bytes/s. None also if a rank of its group has no file, because it would be a bound."""


def timeline_groups(report: TraceReport) -> list[dict[str, Any]]:
    """A group of lanes for each job, on one time axis."""
    by_file: dict[str, list[TimelineLane]] = {}
    for lane in report.lanes:
        by_file.setdefault(lane.file, []).append(lane)
    steps: dict[Path, list[Summary]] = {}
    for step in report.steps:
        steps.setdefault(step.file, []).append(step)
    groups = []
    names = {job.job.name: Path(job.job.name) for job in report.jobs}
    labels = short_paths(list(names.values())) if len(names) > 1 else {}
    for job in report.jobs:
        ranks = [
            _Rank(one, by_file[str(one.file)], steps.get(one.file, []))
            for one in job.job.ranks
            if str(one.file) in by_file
        ]
        if ranks:
            name = job.job.name
            groups.append(_group(labels.get(names[name], name), ranks, _messages(job)))
    return groups


class _Rank(NamedTuple):
    trace: RankTrace
    lanes: list[TimelineLane]
    steps: list[Summary]


def _messages(found: JobCollectives) -> dict[tuple[int | None, int], _Message]:
    """The messages of the communication kernels, by rank and row of ``TraceRows.gpu``."""
    matched: dict[tuple[int | None, int], Matched] = {
        (rank, kernel.row): one for one in found.matching.matched for rank, kernel in one.members
    }
    messages = {}
    for rank in found.job.ranks:
        for kernel in rank.collectives:
            one = matched.get((rank.rank, kernel.row))
            size = one.group_size if one else kernel.group.size if kernel.group else None
            count, dtype = one.bytes if one else kernel.bytes, kernel.dtype
            amount = size_text(count) if count is not None else ""
            parts = (
                kernel.op, " ".join(filter(None, (amount, dtype))), f"{size} ranks" if size else "",
            )  # fmt: skip
            bandwidth = one.bus_bandwidth if one and one.is_complete else None
            messages[rank.rank, kernel.row] = _Message(" · ".join(filter(None, parts)), bandwidth)
    return messages


def _group(
    label: str, ranks: Sequence[_Rank], messages: Mapping[tuple[int | None, int], _Message]
) -> dict[str, Any]:
    lanes = [lane for rank in ranks for lane in rank.lanes]
    longest = sorted(lanes, key=lambda lane: -int(lane.duration_ns.sum()))[:MOST_LANES]
    kept = {id(lane) for lane in longest}
    base = min(int(lane.start_ns.min()) for lane in longest)
    end = max(int((lane.start_ns + lane.duration_ns).max()) for lane in longest)
    labels = _Labels(
        ranks=len({rank.trace.rank for rank in ranks}) > 1,
        devices=len({lane.device for lane in longest}) > 1,
        processes=len({lane.thread.rpartition("/")[0] for lane in longest}) > 1,
    )
    works: dict[_Text, int] = {}
    drawn: list[dict[str, Any]] = []
    order = _order(lanes)
    for rank in ranks:
        number = rank.trace.rank
        own = sorted((lane for lane in rank.lanes if id(lane) in kept), key=order)
        if rank.steps and own:
            drawn.append(_steps(rank, labels.text(number, "steps"), base, len(own)))
        sent = {row: message for (of, row), message in messages.items() if of == number}
        drawn += [_lane(lane, labels.of(number, lane), base, works, sent) for lane in own]
    return {
        "label": cut(label),
        "window": end - base,
        "left_out": len(lanes) - len(kept),
        "lanes": drawn,
        "works": list(works),
    }


def _order(lanes: Sequence[TimelineLane]) -> Any:
    """A sort key that puts the lanes of each rank in the same order: streams with the most work
    over all ranks first."""
    spent: dict[tuple[int, str], int] = {}
    for lane in lanes:
        key = (lane.stream, lane.thread)
        spent[key] = spent.get(key, 0) + int(lane.duration_ns.sum())
    return lambda lane: (lane.device, -spent[lane.stream, lane.thread], lane.stream, lane.thread)


def _steps(rank: _Rank, label: str, base: int, rows: int) -> dict[str, Any]:
    """The number, start, length and mark length of each step, drawn above the `rows` lanes of its
    rank."""
    shift = rank.trace.base_ns - base
    return {
        "label": label,
        "rows": rows,
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
    messages: Mapping[int, _Message],
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
        numbers[piece] = works.setdefault((name, operator, message.text, None), len(works))
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
