"""Tables of traces on a terminal and in a notebook, and sentences for every report."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import format_memory, noun_for, plural
from gemmetry.results.texts import cut, elide, printable
from gemmetry.traces.names import KernelKind, classify
from gemmetry.traces.operators.gemms import GemmShape
from gemmetry.traces.summary import (
    ABOUT_INCOMPLETE,
    Activity,
    Outside,
    StepSummary,
    Summary,
    bound_of,
    spanned_ns,
    steps_overlap,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gemmetry.traces.collectives.matching import JobCollectives
    from gemmetry.traces.collectives.summary import Collective
    from gemmetry.traces.gemms import GemmRow, Workload


def print_line(console: Console, text: str, *, style: str = "") -> None:
    """Print one line, whatever the width of the terminal and the characters it supports."""
    # This module is imported for files and frames too, where importing rich is not worth its time.
    from rich.text import Text

    console.print(Text(text, style=style), soft_wrap=True)


def _print_cells(
    console: Console,
    widths: Sequence[int],
    first: str,
    *texts: str,
    more: str = "",
    style: str = "",
) -> None:
    """Print the texts in columns of `widths`, the first left-aligned, the others right-aligned."""
    cells = [f"{text:>{width}}" for text, width in zip(texts, widths[1:], strict=False)]
    print_line(console, f"{first:<{widths[0]}}{''.join(cells)}{more}".rstrip(), style=style)


def milliseconds(ns: float) -> str:
    """`ns` in ms, with three decimals."""
    return f"{ns / 1e6:,.3f}"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _shares(activity: Activity, times: Iterable[str]) -> list[str]:
    """The `times` in percent of the window."""
    window = activity.window_ns
    return [
        bound_of(activity, time) + f"{100 * getattr(activity, time) / window:.1f}"
        if window
        else "–"
        for time in times
    ]


def _kernel(name: str, width: int) -> str:
    return elide(printable(name).replace("\n", " "), width)


_GPU_TIMES = {
    "busy_ns": "busy",
    "compute_union_ns": "  compute",
    "comm_union_ns": "  communication",
    "exposed_comm_ns": "    exposed",
    "gemm_comm_overlap_ns": "    overlapping GEMMs",
    "memcpy_union_ns": "  copies",
    "idle_ns": "idle",
}
_OF_WINDOW = ("busy_ns", "compute_union_ns", "comm_union_ns", "exposed_comm_ns")


def print_summary(summary: Summary, console: Console) -> None:
    """Print one trace, at most 80 columns wide."""
    partial = "  (partial: events are missing)" if summary.partial else ""
    print_line(console, printable(summary.label) + partial, style="bold")
    unknown, window = summary.unknown, summary.window_ns
    head = "" if "kernels" in unknown else f"{plural(summary.kernels, 'kernel')} in "
    head += f"{milliseconds(window)} ms"
    head += f", {plural(summary.events, 'event')}" if summary.events else ""
    print_line(console, f"  {head}")
    if not window:
        print_line(console, "  no work on a GPU")
        return
    widths = (36, 13, 11)
    _print_cells(console, widths, "", "ms", "of window", style="dim")
    for name, label in _GPU_TIMES.items():
        if name.replace("_ns", "_us") not in unknown:
            time, bound = getattr(summary, name), bound_of(summary, name)
            texts = (bound + milliseconds(time), bound + _percent(time, window))
            _print_cells(console, widths, f"  {label}", *texts)
    for label, count, time in (
        ("GEMM kernels", summary.gemm_kernels, summary.gemm_kernel_ns),
        ("communication kernels", summary.comm_kernels, summary.comm_kernel_ns),
    ):
        if "kernels" not in unknown:
            texts = (milliseconds(time), _percent(time, window))
            _print_cells(console, widths, f"  sum of {count:,} {label}", *texts)
    if summary.is_incomplete:
        console.print(f"  {ABOUT_INCOMPLETE}", style="dim")
    heads, columns = ("ms", "count", "µs, min – max"), (2, 10, 7, 20)
    if summary.top_gemms:
        _print_cells(console, columns, "", *heads, more="  GEMM kernel", style="dim")
    for gemm in summary.top_gemms:
        span = f"{gemm.min_ns / 1000:,.1f} – {gemm.max_ns / 1000:,.1f}"
        name = _kernel(classify(gemm.name).short, 37)
        cells = (milliseconds(gemm.sum_ns), f"{gemm.count:,}", span)
        _print_cells(console, columns, "", *cells, more=f"  {name}")


def print_summaries(summaries: Sequence[Summary], console: Console) -> None:
    """Print several traces, one line each, with percentages of the window. Names are cut to the
    remaining width."""
    longest = max((len(_short_name(s)) for s in summaries), default=0)
    widths = (min(longest, max(26, console.width - 60)), 11, 7, 7, 7, 8, 7, 6)
    heads = ("window", "busy", "comp.", "comm.", "exposed", "idle", "GEMMs")
    _print_cells(console, widths, "", *heads, style="dim")
    _print_cells(console, widths, "", "ms", *["%"] * 5, style="dim")
    groups = grouped(summaries, lambda one: str(_place(one).parent))
    for group, members in groups.items():
        if len(groups) > 1:
            print_line(console, printable(group), style="bold")
        for s in members:
            name, mark = cut(_short_name(s), widths[0]), " partial" if s.partial else ""
            if not s.window_ns:
                _print_cells(console, (widths[0], 41), name, "no work on a GPU", more=mark)
                continue
            gemms = "" if "gemm_kernels" in s.unknown else str(s.gemm_kernels)
            texts = (milliseconds(s.window_ns), *_shares(s, (*_OF_WINDOW, "idle_ns")), gemms)
            _print_cells(console, widths, name, *texts, more=mark)
    if any(s.is_incomplete and s.window_ns for s in summaries):
        console.print(ABOUT_INCOMPLETE, style="dim")


def _short_name(summary: Summary) -> str:
    """The file's name without its folder."""
    return printable(_place(summary).name).replace("\n", " ")


def _place(summary: Summary) -> Path:
    """The path of the trace; one in a workbook is named as if the workbook were a folder."""
    return Path(f"{summary.file}/{summary.part}") if summary.part else summary.file


def print_gemms(rows: Sequence[GemmRow], console: Console, *, top: int = 20) -> None:
    """Print the `top` rows (0: all) with the most time, two lines each, at most 80 columns wide."""
    if not rows:
        print_line(console, "no GEMM kernels")
        return
    total = sum(row.sum_ns for row in rows)
    shown = rows[:top] if top else rows
    places = 1 if max(row.tflops or 0.0 for row in rows) >= 100 else 3
    has_devices = len({row.device for row in rows}) > 1
    widths = (0, 10, 6, 7, 11, 8, 9, 7)
    heads = ("ms", "%", "count", "median µs", "MAD", "TFLOP/s", "peak")
    _print_cells(console, widths, "", *heads, more=f" {'overlap':>7}", style="dim")
    for row in shown:
        overlap = _percent(row.overlapped_ns or 0, row.sum_ns) if row.overlapped else ""
        _print_cells(
            console, widths, "", milliseconds(row.sum_ns),
            f"{100 * row.sum_ns / total if total else 0:.1f}", f"{row.count:,}",
            f"{row.median_ns / 1000:,.2f}",
            "" if row.mad_ns is None else f"{row.mad_ns / 1000:,.2f}",
            "" if row.tflops is None else f"{row.tflops:.{places}f}",
            "" if row.peak_fraction is None else f"{row.peak_fraction:.1%}",
            more=f"{'!' if row.above_peak else ' '}{overlap:>7}",
        )  # fmt: skip
        on = f"  on {row.device or 'an unknown device'}" if has_devices else ""
        shape = f"{shape_text(row.shape, row.dtype, row.layout)}{on}{_source(row)}"
        print_line(console, f"    {cut(shape, 76)}")
        kind = row.facts.kind
        prefix = "" if kind is KernelKind.GEMM else f"{str(kind).replace('_', ' ')}: "
        name = _kernel(prefix + (row.facts.short or row.kernel), 76)
        print_line(console, f"    {name}", style="dim")
    hidden = rows[len(shown) :]
    if hidden:
        time = milliseconds(sum(row.sum_ns for row in hidden))
        print_line(console, f"{time:>10} more in {plural(len(hidden), 'row')} (--top 0 shows all)")
    known = sum(row.sum_ns for row in rows if row.shape is not None)
    print_line(
        console,
        f"{milliseconds(total):>10} in {plural(sum(row.count for row in rows), 'GEMM kernel')}; "
        f"shapes are known for {_percent(known, total)} of it",
    )


def _source(row: GemmRow) -> str:
    """The source of the shape."""
    operator = f"  {row.names[0]}" if row.names else ""
    if row.shape is None:
        return operator
    if row.inferred == row.count:
        return "  inferred"
    return (operator or "  ") + (f" ({row.inferred} inferred)" if row.inferred else "")


def print_workload(load: Workload, console: Console, *, top: int = 0) -> None:
    """Print the distinct GEMMs, at most 80 columns wide."""
    shown = load.gemms[:top] if top else load.gemms
    hidden = load.gemms[len(shown) :]

    def line(ns: int, calls: int, text: str) -> None:
        share = f"{100 * ns / load.sum_ns:.1f}" if load.sum_ns else "0.0"
        texts = (milliseconds(ns), share, f"{calls:,}")
        _print_cells(console, widths, "", *texts, more=f"  {text}")

    widths, heads = (0, 10, 6, 8), ("ms", "%", "calls")
    _print_cells(console, widths, "", *heads, more="  GEMM (batch x m x n x k)", style="dim")
    for gemm in shown:
        shape = GemmShape(gemm.m, gemm.n, gemm.k, gemm.batch)
        scaled = f" scaled by {gemm.scaling}" if gemm.scaling != "none" else ""
        line(gemm.sum_ns, gemm.count, shape_text(shape, gemm.dtype, gemm.layout) + scaled)
        if gemm.reason:
            print_line(console, f"{'':>26}{gemm.reason}", style="dim")
    if hidden:
        line(sum(g.sum_ns for g in hidden), sum(g.count for g in hidden), "the others")
    if load.unknown_ns:
        line(load.unknown_ns, load.unknown_count, "of unknown shape")


def shape_text(shape: GemmShape | None, dtype: str | None, layout: str | None) -> str:
    """``16x5185x64x5185 bf16 tt``, or the parts of it that are known."""
    size = "shape not known"
    if shape is not None:
        sizes = (*((shape.batch,) if shape.batch > 1 else ()), shape.m, shape.n, shape.k)
        size = "x".join(map(str, sizes))
    return " ".join(filter(None, (size, dtype, layout)))


def notebook_table(summaries: Sequence[Summary], errors: Mapping[str, RequestError]) -> str:
    """A small HTML table for a notebook's cell, without scripts."""
    heads = ("file", "kernels", "window ms", "busy", "communication", "exposed", "idle", "GEMM ms")
    times = ("busy_ns", "comm_union_ns", "exposed_comm_ns", "idle_ns")
    rows = [
        (
            s.label + (" (partial)" if s.partial else ""), f"{s.kernels:,}",
            milliseconds(s.window_ns),
            *(bound_of(s, time) + _percent(getattr(s, time), s.window_ns) for time in times),
            milliseconds(s.gemm_kernel_ns),
        )
        for s in summaries
    ]  # fmt: skip
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(printable(text))}</td>' for text in texts)}</tr>"
        for texts in rows
    )
    failed = "".join(f"<p>{escape(printable(error.message))}</p>" for error in errors.values())
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{failed}"


ABOUT_STEPS = (
    "mark is the time in which the host launched a step, window is the time from its first to its "
    "last work on the device"
)
"""The meaning of the two spans of a step, wherever they are shown."""


_OVERLAP = (
    f"Steps overlap on the device: {ABOUT_STEPS}, and others is the part of the window in which "
    "only work of other steps, or of no step, ran."
)


_SHOWN_SHARE = 0.0005
"""The smallest share of a window that a percentage with one decimal shows."""


def outside_text(outside: Outside) -> str:
    """``531 kernels in no step; their launches are not in the file``, and how many steps have no
    work in the file; "" if there are none of either."""
    texts = []
    if outside.kernels:
        texts.append(f"{plural(outside.kernels, 'kernel')} in no step")
    if outside.kernels and outside.unlinked:
        some = f"the launches of {outside.unlinked:,}"
        whose = "their launches" if outside.unlinked == outside.kernels else some
        texts.append(f"{whose} are not in the file")
    if outside.empty_steps:
        have = noun_for(outside.empty_steps, "has", "have")
        steps = plural(outside.empty_steps, "more step")
        texts.append(f"{steps} {have} launches, but no work in the file")
    return "; ".join(texts)


def phases(steps: Iterable[StepSummary]) -> list[str]:
    """The steps of each phase that marks state, the most frequent first: their number, median
    window and median number of kernels."""
    found = grouped(steps, lambda one: str(one.phase or ""))
    return [
        f"{phase}: {plural(len(ones), 'step')}, median window "
        f"{milliseconds(statistics.median(one.window_ns for one in ones))} ms, "
        f"{statistics.median(one.kernels for one in ones):,.0f} kernels"
        for phase, ones in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
        if phase
    ]


def steps_text(files: Iterable[Summary], steps: Sequence[StepSummary]) -> str:
    """Windows and idle time of `steps` relative to those of their `files`, as ``windows: 18.342 of
    the trace's 22.937 ms; idle in them: 0.021 of 0.028 ms``.

    The sum of windows that overlap exceeds the time they span, and idle time in several of them
    would count several times; then the text gives the windows only.
    """
    names = {s.file for s in steps}
    wholes = [one for one in files if one.file in names]
    added = sum(s.window_ns for s in steps)
    spanned = sum(spanned_ns(s for s in steps if s.file == name) for name in names)
    whole = milliseconds(sum(s.window_ns for s in wholes))
    whose = noun_for(len(wholes), "trace's", "traces'")
    of_whole = f"{milliseconds(spanned)} of the {whose} {whole} ms"
    if added > spanned:
        return f"windows overlap: {milliseconds(added)} ms added up, but {of_whole} together"
    idle, of_idle = (milliseconds(sum(s.idle_ns for s in part)) for part in (steps, wholes))
    return f"windows: {of_whole}; idle in them: {idle} of {of_idle} ms"


def print_steps(
    files: Sequence[Summary],
    steps: Sequence[StepSummary],
    outside: Sequence[Outside],
    console: Console,
) -> None:
    """Print the steps of each file, one line each with percentages of their windows, then how these
    relate to the window of the file, and the kernels that are in no step."""
    if not steps:
        return
    overlap = steps_overlap(steps, _SHOWN_SHARE)
    names = [f"{s.number} {s.phase or ''}".rstrip() for s in steps]
    others = ["others"] if overlap else []
    heads = ["step", "mark", "window", "kernels", "busy", "comp.", "comm.", "exposed", *others,
             "idle", "GEMMs"]  # fmt: skip
    units = ["", "ms", "ms", "", *["%"] * (5 + len(others))]
    first = max([8, *(len(name) + 1 for name in names)]) if any(s.phase for s in steps) else 8
    widths = [first, 9, 9, 8, 6, 6, 6, 8, *[7] * len(others), 6, 6]
    for texts in (heads, units):
        _print_cells(console, widths, *texts, style="dim")
    by_file = {one.file: one for one in outside}
    several = len({s.file for s in steps}) > 1
    times = (*_OF_WINDOW, *(["others_ns"] if overlap else []), "idle_ns")
    for place, s in enumerate(steps):
        if several and (not place or steps[place - 1].file != s.file):
            print_line(console, printable(str(s.file)), style="bold")
        texts = [milliseconds(s.mark_ns), milliseconds(s.window_ns), f"{s.kernels:,}"]
        _print_cells(console, widths, names[place], *texts, *_shares(s, times),
                     f"{s.gemm_kernels:,}")  # fmt: skip
        if place + 1 == len(steps) or steps[place + 1].file != s.file:
            found = [steps_text(files, [one for one in steps if one.file == s.file])]
            found += [outside_text(by_file[s.file])] if s.file in by_file else []
            for text in filter(None, found):
                print_line(console, f"  {text}", style="dim")
    for text in phases(steps):
        print_line(console, f"  {printable(text)}", style="dim")
    if any(s.is_incomplete for s in steps):
        console.print(ABOUT_INCOMPLETE, style="dim")
    text = _OVERLAP if overlap else f"{ABOUT_STEPS[0].upper()}{ABOUT_STEPS[1:]}."
    console.print(text, style="dim")


BOUNDS = {"latency_us_median": "≤", "algbw_gbps_median": "≥", "busbw_gbps_median": "≥"}
"""Columns of kinds -> the sign before a number whose kind is not complete."""


ABOUT_BOUNDS = (
    "≤ and ≥ mark bounds: some ranks of these groups have no file, or no trace names the group. "
    "The rank that came last may be one of them."
)
"""Meaning of these signs, wherever they are shown."""


_MOST_CHARACTERS = 20
"""Characters shown of a type's name; PyTorch's longest name has 16."""


def bounded(text: str, column: str, *, complete: bool, above_link: bool = False) -> str:
    """The text of a number, preceded by the sign of a bound if it is one, and followed by ! if it
    is a bus bandwidth that exceeds the links of a GPU."""
    sign = "" if complete or not text else BOUNDS.get(column, "")
    mark = "!" if above_link and text and column == "busbw_gbps_median" else ""
    return f"{sign} {text}{mark}" if sign else f"{text}{mark}"


def print_jobs(jobs: Sequence[JobCollectives], console: Console) -> None:
    """Print each job: its kinds of collectives, its ranks, and notes about them."""
    for number, found in enumerate(jobs):
        if number:
            console.print()
        _print_job(found, console)


def _print_job(found: JobCollectives, console: Console) -> None:
    from rich.text import Text

    job, matching = found.job, found.matching
    left = sum(matching.unmatched.values())
    size = job.world_size or len(job.ranks) + len(job.missing)
    console.print(Text(printable(job.name), style="bold", overflow="fold"))
    kernels = sum(len(one.collectives) for one in job.ranks)
    ranks = f"{len(job.ranks)} of {size} ranks" if size > 1 else "1 rank"
    if not kernels:
        console.print(f"{ranks}, no communication kernel")
        return
    console.print(
        f"{ranks}, {plural(kernels, 'communication kernel')}: "
        f"{plural(len(matching.matched), 'collective')} matched, {plural(left, 'kernel')} not"
    )
    if matching.matched:
        console.print(_kinds(found))
        if not all(one.is_complete for kind in found.kinds for one in kind.ones):
            console.print(ABOUT_BOUNDS, style="dim")
    else:
        console.print(_kernels([one for rank in job.ranks for one in rank.collectives]))
    if len(job.ranks) > 1:
        console.print(_ranks(found))
    for note in found.notes:
        console.print(Text(f"note: {printable(note)}", style="dim"))


def _kinds(found: JobCollectives) -> Table:
    table = _table("operation", "type", "size", "n", "", "latency\nµs", "start\nskew µs",
                   "algbw\nGB/s", "busbw\nGB/s")  # fmt: skip
    columns = ("latency_us_median", "start_skew_us_median", "algbw_gbps_median",
               "busbw_gbps_median")  # fmt: skip
    for kind in found.kinds:
        numbers = ((column, getattr(kind, column)) for column in columns)
        table.add_row(
            *_what(kind.op, kind.dtype, kind.bytes), str(kind.group_size or "-"), f"x{kind.count}",
            *("-" if value is None else
              bounded(f"{value:.1f}", column, complete=kind.complete, above_link=kind.above_link)
              for column, value in numbers),
        )  # fmt: skip
    return table


def _kernels(kernels: Sequence[Collective]) -> Table:
    """The table of a single rank, without bandwidths, as durations include waits for others."""
    table = _table("operation", "type", "size", "", "total\nms", "min\nµs", "median\nµs")
    kinds = grouped(kernels, attrgetter("op", "dtype", "bytes"))
    for what, ones in sorted(kinds.items(), key=lambda kind: -_total_ns(kind[1])):
        times = [one.duration_ns for one in ones]
        table.add_row(
            *_what(*what), f"x{len(ones)}", f"{_total_ns(ones) / 1e6:.3f}",
            f"{min(times) / 1e3:.1f}", f"{statistics.median(times) / 1e3:.1f}",
        )  # fmt: skip
    return table


def _total_ns(ones: Iterable[Collective]) -> int:
    return sum(one.duration_ns for one in ones)


def _ranks(found: JobCollectives) -> Table:
    offsets = found.offsets_ns
    heads = ["rank", "last", "", "waited\nms", "not\nmatched"]
    table = _table(*heads, *(["clock\nµs"] if offsets else []), left=0)
    for one in found.stragglers(corrected=bool(offsets)):
        cells = [
            str(one.rank), f"x{one.last_count}", f"{one.last_share:.0%}",
            f"{one.waited_ns / 1e6:.3f}", str(found.matching.unmatched[one.rank]),
        ]  # fmt: skip
        if offsets:
            cells.append(f"{offsets[one.rank] / 1000:+.1f}")
        table.add_row(*cells)
    if offsets:
        table.caption = "corrected for the offsets of clocks"
        table.caption_justify = "left"
    return table


def _table(*heads: str, left: int = 2) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, head in enumerate(heads):
        table.add_column(
            head, justify="right" if place >= left else "left", no_wrap=True, vertical="bottom"
        )
    return table


def _what(op: str | None, dtype: str | None, size: int | None) -> list[Any]:
    """Operation, type and size. An unknown type comes from the trace, so it is not interpreted as
    markup and is cut if it is long."""
    from rich.text import Text

    amount = "-" if size is None else format_memory(size)
    return [op or "-", Text(cut(dtype or "-", _MOST_CHARACTERS)), amount]
