"""Steps of traces: how a terminal shows them, and sentences about them for every report."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gemmetry.analysis.traces.steps import step_windows, steps_overlap
from gemmetry.domain.units import counted, noun_for
from gemmetry.reports.texts import printable
from gemmetry.reports.traces.tables import milliseconds, print_line
from gemmetry.traces.summary import ABOUT_INCOMPLETE, Outside, Summary, bound_of

if TYPE_CHECKING:
    from rich.console import Console

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
