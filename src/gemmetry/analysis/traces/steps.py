"""How the steps of traces relate to the whole traces, and to each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from gemmetry.traces.summary import Summary


class StepWindows(NamedTuple):
    """Windows and idle times of steps and of their files, in ns."""

    files: int
    added_ns: int
    """Sum of the steps' windows."""
    spanned_ns: int
    """Length of their union; less than the sum where they overlap."""
    idle_ns: int
    """Sum of the steps' idle times, which count several times where windows overlap."""
    files_window_ns: int
    files_idle_ns: int


def step_windows(files: Iterable[Summary], steps: Sequence[Summary]) -> StepWindows:
    """The windows of `steps` next to those of their `files`."""
    names = {s.file for s in steps}
    wholes = [one for one in files if one.file in names]
    return StepWindows(
        files=len(wholes),
        added_ns=sum(s.window_ns for s in steps),
        spanned_ns=sum(_span(s for s in steps if s.file == name) for name in names),
        idle_ns=sum(s.idle_ns for s in steps),
        files_window_ns=sum(s.window_ns for s in wholes),
        files_idle_ns=sum(s.idle_ns for s in wholes),
    )


def _span(steps: Iterable[Summary]) -> int:
    """The length in ns of the union of the windows of one file's steps."""
    spanned, reached = 0, 0
    for start, end in sorted((s.step.start_ns, s.step.end_ns) for s in steps if s.step):
        spanned += max(0, end - max(start, reached))
        reached = max(reached, end)
    return spanned


def steps_overlap(steps: Sequence[Summary], least_share: float) -> bool:
    """Whether work of other steps, or of none, fills at least `least_share` of any step's window,
    or the windows of a file's steps overlap."""
    if any(s.others_ns >= least_share * s.window_ns > 0 for s in steps):
        return True
    windows = sorted((s.file, s.step.start_ns, s.step.end_ns) for s in steps if s.step)
    return any(
        file == after and start < end for (file, _, end), (after, start, _) in pairwise(windows)
    )
