"""What happened, as rows for people: changes that many dispatches share are one row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gemmetry.analysis.history.causes import ChangeCause
from gemmetry.analysis.history.changes import ENOUGH_RUNS, HistoryChanges
from gemmetry.analysis.history.checking import LOST, JudgedChange, LostDispatch
from gemmetry.domain.errors import listed
from gemmetry.domain.units import counted, format_percent
from gemmetry.statistics.quantiles import median
from gemmetry.store.history.entries import HistoryRun

Happening = JudgedChange | LostDispatch

_LARGE = 5
"""How many times as large the second change is whose chance of being found is printed."""

_SHARED = (ChangeCause.HOST, ChangeCause.METHOD, ChangeCause.ENVIRONMENT)
"""Causes that move many dispatches at once."""

_NEAR = 2
"""Runs by which the places of one shared change may differ between dispatches."""


@dataclass(frozen=True, slots=True)
class HappeningRow:
    """One change, or one that several dispatches share."""

    members: tuple[Happening, ...]

    @property
    def first(self) -> Happening:
        return self.members[0]

    @property
    def name(self) -> str:
        """The dispatch, or the first of several."""
        more = len(self.members) - 1
        return f"{self.first.name} and {more} more" if more else self.first.name

    @property
    def run(self) -> HistoryRun:
        """The first run after it."""
        return self.first.run

    @property
    def device(self) -> str:
        return self.first.found.history.device

    @property
    def is_alarm(self) -> bool:
        return self.first.is_alarm

    @property
    def is_noise(self) -> bool:
        return self.cause == ChangeCause.NOISE

    @property
    def cause(self) -> str:
        return str(self.first.change.cause) if isinstance(self.first, JudgedChange) else LOST

    @property
    def text(self) -> str:
        """``1.083 times as long (1.061–1.104)``, or how it was lost."""
        if isinstance(self.first, LostDispatch):
            return f"it was ok and is {self.first.outcome} now"
        changes = [one.change for one in self.members if isinstance(one, JudgedChange)]
        shifts = [change.shift for change in changes if change.shift is not None]
        if not shifts:
            return ""
        if len(shifts) > 1:
            ratios = [shift.ratio for shift in shifts]
            spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
            every = counted(len(ratios), "dispatch", "dispatches")
            return f"{median(ratios):.3f} times as long, {spread} over {every}"
        ends = shifts[0].interval
        interval = "n/a" if ends is None else f"{ends[0]:.3f}–{ends[1]:.3f}"
        what = " relative to its reference" if changes[0].is_of_ratio else ""
        return f"{shifts[0].ratio:.3f} times as long{what} ({interval})"

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.first.change.reasons if isinstance(self.first, JudgedChange) else ()

    @property
    def remarks(self) -> list[str]:
        return [remark.text for remark in self.first.remarks]


def happening_rows(happenings: Iterable[Happening]) -> list[HappeningRow]:
    """A row for each of `happenings` in their order; those of a shared cause at the same place, in
    one direction and with the same remarks, are one row."""
    groups: list[list[Happening]] = []
    for one in happenings:
        fitting = next((group for group in groups if _belongs(one, group[0])), None)
        if fitting is None:
            groups.append([one])
        else:
            fitting.append(one)
    return [HappeningRow(tuple(group)) for group in groups]


def _belongs(one: Happening, first: Happening) -> bool:
    if not isinstance(one, JudgedChange) or not isinstance(first, JudgedChange):
        return False
    return (
        one.change.cause in _SHARED
        and one.change.cause is first.change.cause
        and one.found is first.found
        and abs(one.change.run - first.change.run) <= _NEAR
        and one.change.direction is first.change.direction
        and one.remarks == first.remarks
        and one.is_alarm == first.is_alarm
        and one.is_new == first.is_new
    )


def undecided_text(found: HistoryChanges, series: int | None = None) -> str:
    """How often a change would be found where "no change" is no verdict: of one series, or of the
    middle one of those of the device class; "" where it is one."""
    own = [series] if series in found.undecided else []
    chosen = list(found.undecided) if series is None else own
    if not chosen:
        return ""
    runs = found.runs_known
    size = found.decisive
    shares = [[found.power(one, times * size).share for one in chosen] for times in (1, _LARGE)]
    small, large = (round(100 * median(values)) for values in shares)
    of = f" for {len(chosen)} of {counted(len(found.measured), 'series', 'series')}"
    is_young = series is None and found.is_young
    return (f"too few runs to judge: {runs} of {ENOUGH_RUNS}; " if is_young else "") + (
        f"undecided{of if series is None else ''}: with {counted(runs, 'run')} a change of "
        f"{format_percent(size)} is found in {small} of 100 cases, one of "
        f"{format_percent(_LARGE * size)} in {large}"
    )


def again_text(found: HistoryChanges) -> str:
    """Which runs were left out, because they measured an old commit again; "" if none were."""
    history = found.history
    runs = [history.runs[number] for number in sorted(history.measured_again)]
    if not runs:
        return ""
    names = listed([f"{run.id} (commit {run.commit[:10]})" for run in runs], 3)
    what = "a commit" if len(runs) == 1 else "commits"
    return f"left out, as {what} measured before: {counted(len(runs), 'run')}, {names}"
