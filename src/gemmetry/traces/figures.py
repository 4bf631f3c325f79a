"""The figures of a page of traces, as HTML and as data of its script: bars of times, tiles at the
top, and the timeline with its lanes, steps and texts of hints.

Every text from a trace is escaped here; nothing in a picture is a script or a link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gemmetry.domain.tables import grouped
from gemmetry.domain.units import format_gflops, format_memory, format_ns, plural
from gemmetry.results.texts import MOST_CHARACTERS, cut, printable
from gemmetry.traces.collectives.alignment import Matched
from gemmetry.traces.collectives.matching import JobCollectives
from gemmetry.traces.collectives.summary import Collective
from gemmetry.traces.gemms import GemmRow
from gemmetry.traces.jobs import RankTrace
from gemmetry.traces.names import classify
from gemmetry.traces.report import TraceReport
from gemmetry.traces.summary import Summary, bound_of
from gemmetry.traces.text import shape_text
from gemmetry.traces.timeline import KIND_OF, KINDS, TimelineLane, Work, operator_kind

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


def window_parts(summary: Summary) -> dict[str, int]:
    """The window of a trace in ns by what fills it: GEMM, other computing, exposed communication,
    exposed copies, nothing. The part of GEMMs is at most the time of all computing, because
    kernels that run at the same time count once there, and several times in their sum."""
    computing, exposed = summary.compute_union_ns, summary.exposed_comm_ns
    gemm = min(summary.gemm_kernel_ns, computing)
    return {
        "gemm": gemm,
        "other": computing - gemm,
        "communication": exposed,
        "copy": max(0, summary.busy_ns - computing - exposed),
        "idle": summary.idle_ns,
    }


def time_bars(summaries: Sequence[Summary]) -> list[Bar]:
    """Parts of the window of each trace (:func:`window_parts`)."""
    labels = short_paths([summary.file for summary in summaries])
    names = ("GEMM", "other kernels", "exposed communication", "exposed copies", "idle")
    bars = []
    for summary in filter(lambda one: one.window_ns, summaries):
        window = summary.window_ns
        parts = tuple((colour, ns / window) for colour, ns in window_parts(summary).items())
        hint = ", ".join(f"{n} {part:.1%}" for n, (_, part) in zip(names, parts, strict=True))
        label = labels[summary.file] + (f" {summary.part}" if summary.part else "")
        # The same unit wherever it fits, so that windows can be compared.
        length = f"{window / 1e6:,.1f} ms" if window >= 1_000_000 else format_ns(window)
        bars.append(Bar(label, parts, length, f"{summary.file}: {hint}"))
    return bars


def short_paths(paths: Sequence[Path]) -> dict[Path, str]:
    """Paths without the folders and the suffixes that all of them share."""
    suffixes = {"".join(path.suffixes) for path in paths}
    shared = suffixes.pop() if len(suffixes) == 1 else ""
    same_depth = len({len(path.parts) for path in paths}) == 1
    columns = zip(*(path.parts for path in paths), strict=True) if same_depth else ()
    differ = [place for place, parts in enumerate(columns) if len(set(parts)) > 1]
    result = {}
    for path in paths:
        name = "/".join(path.parts[place] for place in differ) or path.name
        name = name if same_depth else str(path)
        result[path] = name.removesuffix(shared) or name
    return result


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
    by_name = grouped(report.host_operators, attrgetter("name")).items()
    sums = [(sum(row.self_ns for row in rows), sum(row.count for row in rows), name)
            for name, rows in by_name]  # fmt: skip
    return [
        Bar(name, ((operator_kind(name), ns),), format_ns(ns, even=True),
            f"{name[:MOST_CHARACTERS]}: {count:,} ×")
        for ns, count, name in sorted(sums, key=lambda one: -one[0])[:_MOST_BARS]
    ]  # fmt: skip


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
        operators = f", {row.operators}" if row.operators else ""
        alone = only_on(row.files)
        hint = (
            f"{name}, {label}{operators}: {row.count:,} ×{speed}{alone and f' · only on {alone}'}"
        )
        text = label if row.shape is not None else name
        bars.append(Bar(f"{text} · {alone}" if alone else text, parts, value, hint))
    return bars


_NO_LAUNCH = "launch not in the trace"

_WORDS = {"record_param_comms": "communication"}
"""Categories that are named after an operator -> the category of what such operators compute."""


def category_bars(report: TraceReport) -> list[Bar]:
    """Bars of kernel time by what the launching operator does, divided by what the kernel itself
    does: the launch of a graph contains kernels of every kind."""
    table = report.page_table("kernel_summary")
    if table is None:
        return []
    names = ("Parent op category", "Parent cpu_op", "Kernel name", "Kernel duration (µs)_sum")
    sums: dict[str, dict[str, float]] = {}
    for category, parent, name, spent in table.select(names).rows:
        word = _NO_LAUNCH if parent is None else category or "other"
        parts = sums.setdefault(_WORDS.get(word, word), dict.fromkeys(_COLOURS, 0.0))
        parts[KIND_OF.get(classify(name).kind, "other")] += spent
    bars = []
    for word, parts in sorted(sums.items(), key=lambda item: -sum(item[1].values()))[:_MOST_BARS]:
        listed = ", ".join(
            f"{_COLOURS[colour]} {format_ns(us * 1000)}" for colour, us in parts.items() if us
        )
        whole = format_ns(sum(parts.values()) * 1000, even=True)
        bars.append(Bar(word, tuple(parts.items()), whole, f"{word[:MOST_CHARACTERS]}: {listed}"))
    return bars


Tile = dict[str, str]


def _tile(label: str, value: str, detail: str) -> Tile:
    return {"label": label, "value": value, "detail": detail}


def gpu_tiles(report: TraceReport) -> list[Tile]:
    """The time of the job (of several jobs the shortest and the longest), and shares of the windows
    of all its ranks; the times given with the shares are means over the ranks."""
    ones = [one for one in report.summaries if one.window_ns] or report.summaries
    window, count = sum(one.window_ns for one in ones), len(ones)
    in_jobs = any(len(job.job.ranks) > 1 for job in report.jobs)
    each = f" per {'rank' if in_jobs else 'trace'}" if count > 1 else ""

    def tile(label: str, name: str, what: str) -> Tile:
        ns = sum(getattr(one, name) for one in ones)
        signs = {bound_of(one, name) for one in report.summaries if one.window_ns}
        share = f"{ns / window:.1%}" if window else "–"
        value = " ".join(filter(None, (max(signs, default=""), share)))
        return _tile(label, value, f"{format_ns(ns / max(count, 1))}{each}{what}")

    kernels = sum(one.gemm_kernels for one in ones)
    what = f"sum of {kernels:,}" if count < 2 else f"{plural(kernels, 'kernel')} in all"
    return [
        _time_tile(report, in_jobs),
        tile("busy", "busy_ns", " with any work"),
        tile("computing", "compute_union_ns", " with fills or kernels that do not communicate"),
        tile("exposed communication", "exposed_comm_ns", " without computing at the same time"),
        tile("idle", "idle_ns", " without any work"),
        tile("GEMM kernels", "gemm_kernel_ns", f", {what}"),
    ]


def _time_tile(report: TraceReport, in_jobs: bool) -> Tile:
    """The time of a job is that from the first work of any rank to the last of any; where
    recordings do not overlap, the longest window of a rank."""
    kernels = plural(sum(one.kernels for one in report.summaries), "kernel")
    found = []
    for job in report.jobs:
        longest = max(one.span[1] - one.span[0] for one in job.job.ranks)
        if longest:
            found.append((job, longest if job.span_ns is None else job.span_ns))
    times = [time for _, time in found]
    value = format_ns(min(times, default=0))
    if len(times) > 1:
        name = f"times of {len(times)} jobs" if in_jobs else f"windows of {len(times)} traces"
        return _tile(name, f"{value} – {format_ns(max(times))}", kernels)
    if not in_jobs or not found:
        return _tile("window", value, kernels)
    ((job, _),) = found
    ranks, size = len(job.job.ranks), job.job.world_size or 0
    of = f"{ranks} of {size} ranks" if size > ranks else plural(ranks, "rank")
    if job.span_ns is None:
        of = f"{of}, {kernels}; their recordings do not overlap"
        return _tile("longest rank", value, of)
    return _tile("time of the job", value, f"{of}, {kernels}")


def host_tiles(report: TraceReport) -> list[Tile]:
    """Sums over all traces; shares are those of the time in operators."""
    operators, products = report.host_operators, report.host_products
    spent, files = sum(row.self_ns for row in operators), len(report.summaries)
    calls = plural(sum(row.count for row in operators), "call")
    where = "in this trace" if files == 1 else f"in {files:,} traces"
    tiles = [
        _tile("work on a GPU", "none", where),
        _tile("time in operators", format_ns(spent), f"{calls}, on all threads"),
    ]
    if products:
        ns, count = sum(row.sum_ns for row in products), sum(row.count for row in products)
        share = f"{ns / spent:.1%}" if spent else "–"
        tiles.append(_tile("matrix products", share, f"{format_ns(ns)}, {plural(count, 'call')}"))
    row = max(products, key=lambda row: row.tflops or 0.0, default=None)
    if row is not None and row.tflops is not None:
        shape, speed = shape_text(row.shape, row.dtype, row.layout), row.tflops * 1000
        tiles.append(_tile("fastest product, by its median", format_gflops(speed), shape))
    return tiles


MOST_LANES = 128
"""The most lanes of one picture; of more, those with the most work are drawn."""

_COMMUNICATION = KINDS.index("communication")

_Text = tuple[str, str, str, int | None]
"""Name, operator, shape or message, and FLOPs of a piece of work."""


def timeline_groups(report: TraceReport) -> list[dict[str, Any]]:
    """A group of lanes for each job, on one time axis: its :data:`MOST_LANES` lanes with the most
    work. The lanes of every rank are in the same order: by device, and streams with the most work
    over all ranks first."""
    by_file = grouped(report.lanes, attrgetter("file"))
    names = list(dict.fromkeys(Path(job.job.name) for job in report.jobs))
    labels = short_paths(names) if len(names) > 1 else {}
    found = []
    for job in report.jobs:
        lanes = [lane for one in job.job.ranks for lane in by_file.get(str(one.file), ())]
        if lanes:
            name = job.job.name
            found.append(_group(report, job, labels.get(Path(name), name), lanes))
    return found


def _group(
    report: TraceReport, job: JobCollectives, label: str, lanes: Sequence[TimelineLane]
) -> dict[str, Any]:
    shown = sorted(lanes, key=lambda lane: -int(lane.duration_ns.sum()))[:MOST_LANES]
    spent = Counter[tuple[int, str]]()
    for lane in lanes:
        spent[lane.stream, lane.thread] += int(lane.duration_ns.sum())
    shown.sort(key=lambda one: (one.device, -spent[one.stream, one.thread], one.stream, one.thread))
    base = min(int(lane.start_ns.min()) for lane in shown)
    files = {lane.file for lane in lanes}
    ranks = [one for one in job.job.ranks if str(one.file) in files]
    text = _labels(ranks, shown)
    works: dict[_Text, int] = {}
    drawn: list[dict[str, Any]] = []
    for one in ranks:
        own = [lane for lane in shown if lane.file == str(one.file)]
        # The number, start, length and mark length of each step, drawn above the lanes of its rank.
        shift = one.base_ns - base
        steps = [
            [step.number, step.step.start_ns + shift, step.window_ns, step.mark_ns]
            for step in report.steps
            if step.file == one.file
        ]
        if steps and own:
            drawn.append({"label": text(one.rank, None), "rows": len(own), "steps": steps})
        messages = _messages(job, one.rank)
        drawn += [_lane(lane, text(one.rank, lane), base, works, messages) for lane in own]
    return {
        "label": cut(label),
        "window": max(int((one.start_ns + one.duration_ns).max()) for one in shown) - base,
        "left_out": len(lanes) - len(shown),
        "lanes": drawn,
        "works": list(works),
    }


def _labels(
    ranks: Sequence[RankTrace], lanes: Sequence[TimelineLane]
) -> Callable[[int | None, TimelineLane | None], str]:
    """The label of a lane of a rank, or, without a lane, of the rank's steps: what distinguishes
    it from the others."""
    several = len({one.rank for one in ranks}) > 1
    devices = len({lane.device for lane in lanes}) > 1 and not several
    processes = len({lane.thread.rpartition("/")[0] for lane in lanes}) > 1 and not several

    def label(rank: int | None, lane: TimelineLane | None) -> str:
        parts = [f"rank {rank}"] if several else []
        if lane is None:
            parts.append("steps")
        elif lane.thread:
            name = lane.thread if processes else lane.thread.rpartition("/")[2]
            parts.append(f"thread {cut(name, 40)}")
        else:
            parts += [f"GPU {lane.device}"] if devices else []
            parts.append(f"stream {lane.stream}")
        return " · ".join(parts)

    return label


def _messages(job: JobCollectives, rank: int | None) -> dict[int, tuple[str, float | None]]:
    """What the communication kernels of a rank exchanged, and the bus bandwidth in 10⁹ bytes/s, by
    row of ``TraceRows.gpu``. None also if a rank of the group has no file: it would be a bound."""
    matched = {
        kernel.row: one for one in job.matching.matched for of, kernel in one.members if of == rank
    }
    found = {}
    for one in next((one.collectives for one in job.job.ranks if one.rank == rank), ()):
        whole = matched.get(one.row)
        speed = whole.bus_bandwidth if whole and whole.is_complete else None
        found[one.row] = (_sent(one, whole or one), speed)
    return found


def _sent(one: Collective, whole: Matched | Collective) -> str:
    amount = "" if whole.bytes is None else format_memory(whole.bytes)
    ranks = plural(whole.group_size, "rank") if whole.group_size else ""
    parts = (one.op, " ".join(filter(None, (amount, one.dtype))), ranks)
    return " · ".join(filter(None, parts))


def _lane(
    lane: TimelineLane,
    label: str,
    base: int,
    works: dict[_Text, int],
    messages: Mapping[int, tuple[str, float | None]],
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
    for piece, (sent, speed) in own.items():
        name, operator, _, _ = texts[lane.work[piece]]
        numbers[piece] = works.setdefault((name, operator, sent, None), len(works))
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
