"""Steps of traces: how a terminal shows them, and sentences about them for every report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gemmetry.analysis.traces.steps import step_windows, steps_overlap
from gemmetry.domain.units import counted, noun_for
from gemmetry.reports.texts import printable
from gemmetry.reports.traces.tables import milliseconds, print_line
from gemmetry.traces.summary import Outside, Summary

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
    """``531 kernels in no step; their launches are not in the file``; "" if there are none."""
    if not outside.kernels:
        return ""
    text = f"{counted(outside.kernels, 'kernel')} in no step"
    if not outside.unlinked:
        return text
    whose = "their launches" if outside.unlinked == outside.kernels else (
        f"the launches of {outside.unlinked:,}"
    )  # fmt: skip
    return f"{text}; {whose} are not in the file"


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
    heads = ["step", "mark", "window", "kernels", "busy", "comp.", "comm.", "exposed"]
    units = ["", "ms", "ms", "", "%", "%", "%", "%"]
    if overlap:
        heads.append("others")
        units.append("%")
    widths = [8, 9, 9, 8, 6, 6, 6, 8, *([7] if overlap else []), 6, 6]
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
    text = _OVERLAP if overlap else f"{ABOUT_STEPS[0].upper()}{ABOUT_STEPS[1:]}."
    console.print(text, style="dim")


def _cells(s: Summary, overlap: bool) -> list[str]:
    number, mark = (str(s.step.number), s.step.mark_ns) if s.step else ("", 0)
    times = [s.busy_ns, s.compute_union_ns, s.comm_union_ns, s.exposed_comm_ns]
    times += [s.others_ns] if overlap else []
    shares = [f"{100 * time / s.window_ns:.1f}" if s.window_ns else "–" for time in
              (*times, s.idle_ns)]  # fmt: skip
    kernels, gemms = f"{s.kernels:,}", f"{s.gemm_kernels:,}"
    return [number, milliseconds(mark), milliseconds(s.window_ns), kernels, *shares, gemms]


def _aligned(texts: Sequence[str], widths: Sequence[int]) -> str:
    """The texts in columns of `widths`, the first left-aligned, the others right-aligned."""
    cells = [f"{text:>{width}}" for text, width in zip(texts[1:], widths[1:], strict=True)]
    return (f"{texts[0]:<{widths[0]}}" + "".join(cells)).rstrip()
