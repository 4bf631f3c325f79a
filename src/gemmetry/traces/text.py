"""Tables of traces on a terminal and in a notebook.

Steps of traces: how a terminal shows them, and sentences about them for every report.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gemmetry.domain.errors import RequestError
from gemmetry.domain.units import counted, noun_for
from gemmetry.results.texts import cut, elide, printable
from gemmetry.traces.names import KernelKind, classify
from gemmetry.traces.operators.gemms import GemmShape
from gemmetry.traces.summary import (
    ABOUT_INCOMPLETE,
    Outside,
    Summary,
    bound_of,
    step_windows,
    steps_overlap,
)

if TYPE_CHECKING:
    from rich.console import Console

    from gemmetry.traces.gemms import GemmRow, Workload


_GPU_TIMES = (
    ("busy", "busy_ns"),
    ("  compute", "compute_union_ns"),
    ("  communication", "comm_union_ns"),
    ("    exposed", "exposed_comm_ns"),
    ("    overlapping GEMMs", "gemm_comm_overlap_ns"),
    ("  copies", "memcpy_union_ns"),
    ("idle", "idle_ns"),
)


_NEXT_TO_THE_NAME = 60
"""Columns of a terminal that the numbers and the remark of a summary's line take."""


def print_summary(summary: Summary, console: Console) -> None:
    """Print one trace, at most 80 columns wide."""
    title = printable(summary.label)
    if summary.partial:
        title += "  (partial: events are missing)"
    print_line(console, title, style="bold")
    unknown = summary.unknown
    head = "" if "kernels" in unknown else f"{counted(summary.kernels, 'kernel')} in "
    head += f"{milliseconds(summary.window_ns)} ms"
    head += f", {counted(summary.events, 'event')}" if summary.events else ""
    print_line(console, f"  {head}")
    if not summary.window_ns:
        print_line(console, "  no work on a GPU")
        return
    print_line(console, f"  {'':<34} {'ms':>12} {'of window':>10}", style="dim")
    for label, name in _GPU_TIMES:
        if name.replace("_ns", "_us") in unknown:
            continue
        time = getattr(summary, name)
        bound = bound_of(summary, name)
        print_line(
            console,
            f"  {label:<34} {bound + milliseconds(time):>12} "
            f"{bound + _percent(time, summary.window_ns):>10}",
        )
    for label, count, time in (
        ("GEMM kernels", summary.gemm_kernels, summary.gemm_kernel_ns),
        ("communication kernels", summary.comm_kernels, summary.comm_kernel_ns),
    ):
        if "kernels" in unknown:
            continue
        text = f"sum of {count:,} {label}"
        print_line(
            console,
            f"  {text:<34} {milliseconds(time):>12} {_percent(time, summary.window_ns):>10}",
        )
    if summary.is_incomplete:
        console.print(f"  {ABOUT_INCOMPLETE}", style="dim")
    if not summary.top_gemms:
        return
    print_line(
        console, f"  {'ms':>10} {'count':>6} {'µs, min – max':>19}  GEMM kernel", style="dim"
    )
    for gemm in summary.top_gemms:
        span = f"{gemm.min_ns / 1000:,.1f} – {gemm.max_ns / 1000:,.1f}"
        name = _kernel(classify(gemm.name).short, 37)
        print_line(
            console, f"  {milliseconds(gemm.sum_ns):>10} {gemm.count:>6,} {span:>19}  {name}"
        )


def print_summaries(summaries: Sequence[Summary], console: Console) -> None:
    """Print several traces, one line each, with percentages of the window. Names are cut to the
    remaining width."""
    names = [_short_name(s) for s in summaries]
    width = min(max(map(len, names), default=0), max(26, console.width - _NEXT_TO_THE_NAME))
    print_line(console, f"{'':<{width}} {'window':>10} {'busy':>6} {'comp.':>6} {'comm.':>6} "
          f"{'exposed':>7} {'idle':>6} {'GEMMs':>5}", style="dim")  # fmt: skip
    print_line(console, f"{'':<{width}} {'ms':>10} {'%':>6} {'%':>6} {'%':>6} {'%':>7} {'%':>6}",
          style="dim")  # fmt: skip
    for group, members in _by_folder(summaries).items():
        if group:
            print_line(console, printable(group), style="bold")
        for s in members:
            name = cut(_short_name(s), width)
            mark = "partial" if s.partial else ""
            if not s.window_ns:
                remark = "no work on a GPU"
                print_line(console, f"{name:<{width}} {remark:>40} {mark}".rstrip())
                continue
            shares = [
                f"{bound_of(s, field) + f'{100 * getattr(s, field) / s.window_ns:.1f}':>{width}}"
                for field, width in (
                    ("busy_ns", 6), ("compute_union_ns", 6), ("comm_union_ns", 6),
                    ("exposed_comm_ns", 7), ("idle_ns", 6),
                )
            ]  # fmt: skip
            gemms = "" if "gemm_kernels" in s.unknown else str(s.gemm_kernels)
            print_line(
                console,
                f"{name:<{width}} {milliseconds(s.window_ns):>10} {' '.join(shares)} "
                f"{gemms:>5} {mark}".rstrip(),
            )
    if any(s.is_incomplete and s.window_ns for s in summaries):
        console.print(ABOUT_INCOMPLETE, style="dim")


def _short_name(summary: Summary) -> str:
    """The file's name without its folder."""
    return printable(_place(summary).name).replace("\n", " ")


def _place(summary: Summary) -> Path:
    """The path of the trace; one in a workbook is named as if the workbook were a folder."""
    return Path(f"{summary.file}/{summary.of}") if summary.of else summary.file


def _by_folder(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(str(_place(summary).parent), []).append(summary)
    return groups if len(groups) > 1 else {"": list(summaries)}


def print_gemms(rows: Sequence[GemmRow], console: Console, *, top: int = 20) -> None:
    """Print the `top` rows (0: all) with the most time, two lines each, at most 80 columns wide."""
    if not rows:
        print_line(console, "no GEMM kernels")
        return
    total = sum(row.sum_ns for row in rows)
    shown = rows[:top] if top else rows
    places = 1 if max(row.tflops or 0.0 for row in rows) >= 100 else 3
    has_devices = len({row.device for row in rows}) > 1
    heads = f"{'ms':>10} {'%':>5} {'count':>6} {'median µs':>10} {'MAD':>7} {'TFLOP/s':>8} "
    print_line(console, f"{heads}{'peak':>6} {'overlap':>7}", style="dim")
    for row in shown:
        tflops = "" if row.tflops is None else f"{row.tflops:.{places}f}"
        peak = "" if row.peak_fraction is None else f"{row.peak_fraction:.1%}"
        overlap = _percent(row.overlapped_ns or 0, row.sum_ns) if row.overlapped else ""
        mad = "" if row.mad_ns is None else f"{row.mad_ns / 1000:,.2f}"
        print_line(
            console,
            f"{milliseconds(row.sum_ns):>10} {100 * row.sum_ns / total if total else 0:>5.1f} "
            f"{row.count:>6,} {row.median_ns / 1000:>10,.2f} {mad:>7} "
            f"{tflops:>8} {peak:>6}{'!' if row.above_peak else ' '}{overlap:>7}",
        )
        on = f"  on {row.device or 'an unknown device'}" if has_devices else ""
        shape = f"{shape_text(row.shape, row.dtype, row.layout)}{on}{_source(row)}"
        print_line(console, f"    {cut(shape, 76)}")
        is_main = row.facts.kind is KernelKind.GEMM
        kind = "" if is_main else f"{str(row.facts.kind).replace('_', ' ')}: "
        print_line(
            console, f"    {_kernel(kind + (row.facts.short or row.kernel), 76)}", style="dim"
        )
    hidden = rows[len(shown) :]
    if hidden:
        time = milliseconds(sum(row.sum_ns for row in hidden))
        print_line(console, f"{time:>10} more in {counted(len(hidden), 'row')} (--top 0 shows all)")
    known = sum(row.sum_ns for row in rows if row.shape is not None)
    print_line(
        console,
        f"{milliseconds(total):>10} in {counted(sum(row.count for row in rows), 'GEMM kernel')}; "
        f"shapes are known for {_percent(known, total)} of it",
    )


def _source(row: GemmRow) -> str:
    """The source of the shape."""
    if row.shape is None:
        return f"  {row.operators[0]}" if row.operators else ""
    if row.inferred == row.count:
        return "  inferred"
    operator = row.operators[0] if row.operators else ""
    return f"  {operator}" + (f" ({row.inferred} inferred)" if row.inferred else "")


def print_workload(load: Workload, console: Console, *, top: int = 0) -> None:
    """Print the distinct GEMMs, at most 80 columns wide."""
    shown = load.gemms[:top] if top else load.gemms
    print_line(console, f"{'ms':>10} {'%':>5} {'calls':>7}  GEMM (batch x m x n x k)", style="dim")
    for gemm in shown:
        shape = GemmShape(gemm.m, gemm.n, gemm.k, gemm.batch)
        text = shape_text(shape, gemm.dtype, gemm.layout)
        if gemm.scaling != "none":
            text += f" scaled by {gemm.scaling}"
        print_line(
            console,
            f"{milliseconds(gemm.sum_ns):>10} {100 * gemm.share:>5.1f} {gemm.count:>7,}  {text}",
        )
        if gemm.reason:
            print_line(console, f"{'':>26}{gemm.reason}", style="dim")
    hidden = load.gemms[len(shown) :]
    if hidden:
        time, calls = sum(g.sum_ns for g in hidden), sum(g.count for g in hidden)
        print_line(
            console,
            f"{milliseconds(time):>10} {100 * time / load.sum_ns:>5.1f} {calls:>7,}  the others",
        )
    if load.unknown_ns:
        print_line(
            console,
            f"{milliseconds(load.unknown_ns):>10} {100 * load.unknown_ns / load.sum_ns:>5.1f} "
            f"{load.unknown_count:>7,}  of unknown shape",
        )


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
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = []
    for s in summaries:
        texts = (
            s.label + (" (partial)" if s.partial else ""),
            f"{s.kernels:,}",
            milliseconds(s.window_ns),
            *(
                bound_of(s, field) + _percent(getattr(s, field), s.window_ns)
                for field in ("busy_ns", "comm_union_ns", "exposed_comm_ns", "idle_ns")
            ),
            milliseconds(s.gemm_kernel_ns),
        )
        cells = "".join(f"<td>{escape(printable(text))}</td>" for text in texts)
        body.append(f"<tr>{cells}</tr>")
    failed = "".join(f"<p>{escape(printable(error.message))}</p>" for error in errors.values())
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{failed}"


def print_line(console: Console, text: str, *, style: str = "") -> None:
    """Print one line, whatever the width of the terminal and the characters it supports."""
    # This module is imported for files and frames too, where importing rich is not worth its time.
    from rich.text import Text

    console.print(Text(text, style=style), soft_wrap=True)


def _kernel(name: str, width: int) -> str:
    return elide(printable(name).replace("\n", " "), width)


def milliseconds(ns: int) -> str:
    """`ns` in ms, with three decimals."""
    return f"{ns / 1e6:,.3f}"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


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
        texts.append(f"{counted(outside.kernels, 'kernel')} in no step")
    if outside.kernels and outside.unlinked:
        whose = "their launches" if outside.unlinked == outside.kernels else (
            f"the launches of {outside.unlinked:,}"
        )  # fmt: skip
        texts.append(f"{whose} are not in the file")
    if outside.empty_steps:
        have = noun_for(outside.empty_steps, "has", "have")
        steps = counted(outside.empty_steps, "more step")
        texts.append(f"{steps} {have} launches, but no work in the file")
    return "; ".join(texts)


class PhaseTimes(NamedTuple):
    """The steps of one phase."""

    phase: str
    steps: int
    window_ns: float
    """Median window."""
    kernels: float
    """Median number of kernels."""


def phases(steps: Iterable[Summary]) -> list[PhaseTimes]:
    """The phases that marks state, each with medians over its steps; the one with the most steps
    first."""
    found: dict[str, list[Summary]] = {}
    for one in steps:
        if one.step is not None and one.step.phase:
            found.setdefault(one.step.phase, []).append(one)
    rows = [
        PhaseTimes(
            phase,
            len(ones),
            statistics.median(one.window_ns for one in ones),
            statistics.median(one.kernels for one in ones),
        )
        for phase, ones in found.items()
    ]
    return sorted(rows, key=lambda row: (-row.steps, row.phase))


def steps_text(files: Iterable[Summary], steps: Sequence[Summary]) -> str:
    """How the windows and the idle time of `steps` relate to those of their `files`, as ``windows:
    18.342 of the trace's 22.937 ms; idle in them: 0.021 of 0.028 ms``.

    The sum of windows that overlap exceeds the time they span, and idle time in several of them
    would count several times; then the text gives the windows only.
    """
    found = step_windows(files, steps)
    whose = noun_for(found.files, "trace's", "traces'")
    of_whole = (
        f"{milliseconds(found.spanned_ns)} of the {whose} {milliseconds(found.files_window_ns)} ms"
    )
    if found.added_ns > found.spanned_ns:
        return (
            f"windows overlap: {milliseconds(found.added_ns)} ms added up, but {of_whole} together"
        )
    idle, of_idle = milliseconds(found.idle_ns), milliseconds(found.files_idle_ns)
    return f"windows: {of_whole}; idle in them: {idle} of {of_idle} ms"


def print_steps(
    files: Sequence[Summary],
    steps: Sequence[Summary],
    outside: Sequence[Outside],
    console: Console,
) -> None:
    """Print the steps of each file, one line each with percentages of their windows, then how these
    relate to the window of the file, and the kernels that are in no step."""
    if not steps:
        return
    overlap = steps_overlap(steps, _SHOWN_SHARE)
    has_phases = any(s.step and s.step.phase for s in steps)
    heads = ["step", "mark", "window", "kernels", "busy", "comp.", "comm.", "exposed"]
    units = ["", "ms", "ms", "", "%", "%", "%", "%"]
    if overlap:
        heads.append("others")
        units.append("%")
    first = max([8, *(len(_step_name(s)) + 1 for s in steps)]) if has_phases else 8
    widths = [first, 9, 9, 8, 6, 6, 6, 8, *([7] if overlap else []), 6, 6]
    for texts in ([*heads, "idle", "GEMMs"], [*units, "%", ""]):
        print_line(console, _aligned(texts, widths), style="dim")
    by_file = {one.file: one for one in outside}
    several = len({s.file for s in steps}) > 1
    previous = None
    for place, s in enumerate(steps):
        if several and s.file != previous:
            print_line(console, printable(str(s.file)), style="bold")
        previous = s.file
        print_line(console, _aligned(_cells(s, overlap), widths))
        if place + 1 < len(steps) and steps[place + 1].file == s.file:
            continue
        text = steps_text(files, [one for one in steps if one.file == s.file])
        print_line(console, f"  {text}", style="dim")
        text = outside_text(by_file[s.file]) if s.file in by_file else ""
        if text:
            print_line(console, f"  {text}", style="dim")
    for row in phases(steps):
        text = (
            f"{row.phase}: {counted(row.steps, 'step')}, median window "
            f"{row.window_ns / 1e6:,.3f} ms, {row.kernels:,.0f} kernels"
        )
        print_line(console, f"  {printable(text)}", style="dim")
    if any(s.is_incomplete for s in steps):
        console.print(ABOUT_INCOMPLETE, style="dim")
    text = _OVERLAP if overlap else f"{ABOUT_STEPS[0].upper()}{ABOUT_STEPS[1:]}."
    console.print(text, style="dim")


def _step_name(s: Summary) -> str:
    """The number of the step, and its phase where its mark states one."""
    if s.step is None:
        return ""
    return f"{s.step.number} {s.step.phase}".rstrip()


def _cells(s: Summary, overlap: bool) -> list[str]:
    mark = s.step.mark_ns if s.step else 0
    times = ["busy_ns", "compute_union_ns", "comm_union_ns", "exposed_comm_ns"]
    times += ["others_ns"] if overlap else []
    shares = [
        bound_of(s, time) + f"{100 * getattr(s, time) / s.window_ns:.1f}" if s.window_ns else "–"
        for time in (*times, "idle_ns")
    ]
    kernels, gemms = f"{s.kernels:,}", f"{s.gemm_kernels:,}"
    return [_step_name(s), milliseconds(mark), milliseconds(s.window_ns), kernels, *shares, gemms]


def _aligned(texts: Sequence[str], widths: Sequence[int]) -> str:
    """The texts in columns of `widths`, the first left-aligned, the others right-aligned."""
    cells = [f"{text:>{width}}" for text, width in zip(texts[1:], widths[1:], strict=True)]
    return (f"{texts[0]:<{widths[0]}}" + "".join(cells)).rstrip()
