"""The bars of a report of traces as HTML: how time is divided, and what takes most of it.

Every text from a trace is escaped here; nothing in a picture is a script or a link.

The bars of a page of traces: the time of operators, products and kernels.

The figures at the top of a page of traces.

The data of the timeline on a page of traces: lanes, steps, and texts of hints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gemmetry.domain.units import counted, format_gflops, format_memory, format_ns
from gemmetry.results.texts import MOST_CHARACTERS, cut, printable
from gemmetry.traces.gemms import GemmRow
from gemmetry.traces.report import (
    CollectiveMessage,
    JobLanes,
    RankLanes,
    TraceReport,
    gpu_totals,
    host_totals,
    job_lanes,
    job_times,
    kernel_time_by_category,
    self_time_by_operator,
    window_parts,
)
from gemmetry.traces.summary import Summary, bound_of
from gemmetry.traces.text import shape_text
from gemmetry.traces.timeline import KINDS, TimelineLane, Work, operator_kind

_MOST_CHARACTERS = 44


class Bar(NamedTuple):
    """One bar; its parts follow each other from left to right."""

    label: str
    parts: tuple[tuple[str, float], ...]
    """(class of its colour, length) pairs."""
    value: str
    """Text after the bar."""
    hint: str = ""
    """Text shown when hovering; "" for the label."""


def bars_html(bars: Sequence[Bar], title: str, whole: float | None = None) -> str:
    """Horizontal bars, one below the other, whose texts keep their size in a narrow window; "" if
    there are none.

    Args:
        title: a description of the picture for screen readers.
        whole: the length that fills the width (default: that of the longest bar).
    """
    if not bars:
        return ""
    longest = whole or max(sum(length for _, length in bar.parts) for bar in bars) or 1.0
    room = max(len(bar.value) for bar in bars)
    lines = [f'<div class="bars" role="list" aria-label="{_safe(title)}" style="--room:{room}ch">']
    for bar in bars:
        parts = "".join(
            f'<i class="{escape(colour)}" style="--share:{max(length, 0.0) / longest:.5f}"></i>'
            for colour, length in bar.parts
            if length > 0
        )
        lines.append(
            f'<div class="bar" role="listitem" title="{_safe(bar.hint or bar.label)}">'
            f'<span class="label">{_safe(_cut(bar.label))}</span>'
            f'<span class="parts">{parts}<span class="value">{_safe(bar.value)}</span></span></div>'
        )
    lines.append("</div>")
    return "\n".join(lines)


def colours_of(bars: Sequence[Bar]) -> set[str]:
    """The classes of the colours in `bars`."""
    return {colour for bar in bars for colour, length in bar.parts if length > 0}


def time_bars(summaries: Sequence[Summary]) -> list[Bar]:
    """How the window of each trace is divided (:func:`window_parts`)."""
    labels = short_paths([summary.file for summary in summaries])
    bars = []
    for summary in summaries:
        window = summary.window_ns
        if not window:
            continue
        parts = tuple((colour, ns / window) for colour, ns in window_parts(summary).items())
        names = ("GEMM", "other kernels", "exposed communication", "exposed copies", "idle")
        hint = ", ".join(f"{n} {part:.1%}" for n, (_, part) in zip(names, parts, strict=True))
        label = labels[summary.file] + (f" {summary.of}" if summary.of else "")
        # The same unit wherever it fits, so that windows can be compared.
        length = f"{window / 1e6:,.1f} ms" if window >= 1_000_000 else format_ns(window)
        bars.append(Bar(label, parts, length, f"{summary.file}: {hint}"))
    return bars


def short_paths(paths: Sequence[Path]) -> dict[Path, str]:
    """Paths without the folders and the suffixes that all of them share."""
    depths = {len(path.parts) for path in paths}
    suffixes = {"".join(path.suffixes) for path in paths}
    shared = suffixes.pop() if len(suffixes) == 1 else ""
    same_depth = len(depths) == 1
    columns = zip(*(path.parts for path in paths), strict=True) if same_depth else ()
    differ = [place for place, parts in enumerate(columns) if len(set(parts)) > 1]
    result = {}
    for path in paths:
        name = "/".join(path.parts[place] for place in differ) or path.name
        name = name if same_depth else str(path)
        result[path] = name.removesuffix(shared) or name
    return result


def common_folder(paths: Sequence[Path]) -> Path:
    """The deepest folder that holds all of `paths`; an empty path if none does."""
    shared = []
    for parts in zip(*(path.parent.parts for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return Path(*shared)


def _cut(text: str) -> str:
    """The two ends of a long text, because names of files differ at either end."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]}…{text[1 - half :]}"


def _safe(text: str) -> str:
    return escape(printable(text[:2000]).replace("\n", " "))


_MOST_BARS = 15

_COLOURS = {"gemm": "GEMM", "attention": "attention", "other": "other kernels",
            "communication": "communication"}  # fmt: skip
"""Colour of each class of kernels -> the name of the class, in the order of a bar's parts."""


def host_bars(report: TraceReport) -> list[Bar]:
    """Bars of self time by the operator's name."""
    return [
        Bar(
            name,
            ((operator_kind(name), ns),),
            format_ns(ns, even=True),
            f"{name[:MOST_CHARACTERS]}: {count:,} ×",
        )
        for name, ns, count in self_time_by_operator(report.host_operators)[:_MOST_BARS]
    ]


def gemm_bars(
    rows: Sequence[GemmRow], only_on: Callable[[Set[Path]], str] = lambda _: ""
) -> list[Bar]:
    """Bars of the time of products by kernel or operator and shape, labelled with the kernel's name
    where no shape is known, and with the text of `only_on` for the row's files."""
    bars = []
    for row in rows[:_MOST_BARS]:
        speed = "" if row.tflops is None else f" · {format_gflops(row.tflops * 1000, even=True)}"
        share = "" if row.peak_fraction is None else f" · {row.peak_fraction:.1%}"
        share += "!" if row.above_peak else ""
        overlapped = (row.overlapped_ns or 0) / 1e6
        parts = (("gemm", row.sum_ns / 1e6 - overlapped), ("overlapped", overlapped))
        label = shape_text(row.shape, row.dtype, row.layout)
        name = row.facts.short or row.kernel[:MOST_CHARACTERS]
        value = f"{format_ns(row.sum_ns, even=True)}{speed}{share}"
        operators = f", {', '.join(row.operators)}" if row.operators else ""
        alone = only_on(row.files)
        hint = (
            f"{name}, {label}{operators}: {row.count:,} ×{speed}{alone and f' · only on {alone}'}"
        )
        text = label if row.shape is not None else name
        bars.append(Bar(f"{text} · {alone}" if alone else text, parts, value, hint))
    return bars


def category_bars(report: TraceReport) -> list[Bar]:
    """Bars of kernel time by what the launching operator does, divided by what the kernel itself
    does: the launch of a graph contains kernels of every kind."""
    table = report.page_table("kernel_summary")
    if table is None:
        return []
    sums = kernel_time_by_category(table)
    ordered = sorted(sums.items(), key=lambda item: -sum(item[1].values()))[:_MOST_BARS]
    return [_category_bar(word, parts) for word, parts in ordered]


def _category_bar(word: str, parts: dict[str, float]) -> Bar:
    listed = ", ".join(
        f"{_COLOURS[colour]} {format_ns(us * 1000)}" for colour, us in parts.items() if us
    )
    whole = format_ns(sum(parts.values()) * 1000, even=True)
    return Bar(word, tuple(parts.items()), whole, f"{word[:MOST_CHARACTERS]}: {listed}")


Tile = dict[str, str]


def gpu_tiles(report: TraceReport) -> list[Tile]:
    """The time of the job (of several jobs the shortest and the longest), and shares of the windows
    of all its ranks; the times given with the shares are means over the ranks."""
    totals = gpu_totals(report.summaries)
    window, count = totals.window_ns, totals.traces
    in_jobs = any(len(job.job.ranks) > 1 for job in report.jobs)
    each = f" per {'rank' if in_jobs else 'trace'}" if count > 1 else ""

    def detail(ns: int) -> str:
        return f"{format_ns(ns / max(count, 1))}{each}"

    def share(ns: int) -> str:
        return f"{ns / window:.1%}" if window else "–"

    tiles = [_time_tile(report, in_jobs)]
    for label, name, what in (
        ("busy", "busy_ns", "with any work"),
        ("computing", "compute_union_ns", "with fills or kernels that do not communicate"),
        ("exposed communication", "exposed_comm_ns", "without computing at the same time"),
        ("idle", "idle_ns", "without any work"),
    ):
        ns = getattr(totals, name)
        signs = {bound_of(one, name) for one in report.summaries if one.window_ns}
        value = " ".join(filter(None, (max(signs, default=""), share(ns))))
        tiles.append({"label": label, "value": value, "detail": f"{detail(ns)} {what}"})
    ns, kernels = totals.gemm_kernel_ns, totals.gemm_kernels
    what = f"sum of {kernels:,}" if count < 2 else f"{counted(kernels, 'kernel')} in all"
    tiles.append({"label": "GEMM kernels", "value": share(ns), "detail": f"{detail(ns)}, {what}"})
    return tiles


def _time_tile(report: TraceReport, in_jobs: bool) -> Tile:
    kernels = counted(sum(one.kernels for one in report.summaries), "kernel")
    found = job_times(report.jobs)
    times = [time for _, time in found]
    value = format_ns(min(times, default=0))
    if len(times) > 1:
        value = f"{value} – {format_ns(max(times))}"
        name = f"times of {len(times)} jobs" if in_jobs else f"windows of {len(times)} traces"
        return {"label": name, "value": value, "detail": kernels}
    if not in_jobs or not found:
        return {"label": "window", "value": value, "detail": kernels}
    ((job, _),) = found
    ranks, size = len(job.job.ranks), job.job.world_size or 0
    of = f"{ranks} of {size} ranks" if size > ranks else counted(ranks, "rank")
    if job.span_ns is None:
        what = "their recordings do not overlap"
        return {"label": "longest rank", "value": value, "detail": f"{of}, {kernels}; {what}"}
    return {"label": "time of the job", "value": value, "detail": f"{of}, {kernels}"}


def host_tiles(report: TraceReport) -> list[Tile]:
    """Sums over all traces; shares are those of the time in operators."""
    totals = host_totals(report.host_operators, report.host_products)
    spent, files = totals.self_ns, len(report.summaries)
    tiles = [
        {"label": "work on a GPU", "value": "none",
         "detail": "in this trace" if files == 1 else f"in {files:,} traces"},
        {"label": "time in operators", "value": format_ns(spent),
         "detail": f"{counted(totals.calls, 'call')}, on all threads"},
    ]  # fmt: skip
    if report.host_products:
        tiles.append({
            "label": "matrix products",
            "value": f"{totals.product_ns / spent:.1%}" if spent else "–",
            "detail": f"{format_ns(totals.product_ns)}, {counted(totals.product_calls, 'call')}",
        })  # fmt: skip
    row = totals.fastest
    if row is not None and row.tflops is not None:
        shape = shape_text(row.shape, row.dtype, row.layout)
        tiles.append({"label": "fastest product, by its median",
                      "value": format_gflops(row.tflops * 1000), "detail": shape})  # fmt: skip
    return tiles


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
