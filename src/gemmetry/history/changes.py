"""Why a level changed: rules about a dispatch, its reference of the same run, the other dispatches
of that run, and what changed around them (docs/history.md lists the rules).

Finds the changes of all series of a device class, and judges the cause of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gemmetry.history.series import (
    NEIGHBOURS,
    ChangedSurroundings,
    DeviceHistory,
    LevelShift,
    changed_surroundings,
    changed_timing,
    clock_ratio,
    level_shift,
    nan_median,
    observed_hints,
)
from gemmetry.statistics.change_points import (
    FALSE_ALARMS,
    LEAST_SEGMENT,
    StepPower,
    find_changes,
    step_power,
)
from gemmetry.statistics.comparison import GROSS, Difference
from gemmetry.statistics.runs import RunNoise

QUORUM = 0.8
"""Share of the other dispatches that have to move as well for a cause that all of them share; a
change of few of them has at most 1 - QUORUM. In between, the cause is undecided."""

FEWEST = 3
"""Least number of dispatches from which such a share is taken."""

CLOCK = 0.01
"""Least relative change of the clock that can explain a change of times: steps of an NVIDIA GPU's
clock are 15 MHz, less than 1 % of 2 GHz (nvidia-smi -q -d SUPPORTED_CLOCKS)."""


class ChangeCause(StrEnum):
    """What changed."""

    KERNEL = "kernel"
    """This dispatch, relative to its reference of the same runs."""
    BASELINE = "baseline"
    """The reference: the ratio to it changed, but this dispatch did not; or this is the
    reference."""
    HOST = "host"
    """All dispatches moved together, or the clock explains it."""
    METHOD = "method"
    """The way of measuring changed in that run."""
    ENVIRONMENT = "environment"
    """Software or hardware changed in that run, and the provider's dispatches moved together."""
    NOISE = "noise"
    """The change is smaller than what counts, or the level returned."""
    UNDECIDED = "undecided"
    """The runs do not show which of these it is."""


CAUSES: dict[ChangeCause, str] = {
    ChangeCause.KERNEL: "this dispatch alone, relative to its reference of the same runs",
    ChangeCause.BASELINE: "the reference moved, not the dispatches compared with it",
    ChangeCause.HOST: "all dispatches moved together, or the clock did",
    ChangeCause.METHOD: "the way of measuring changed in that run",
    ChangeCause.ENVIRONMENT: "software or hardware changed, and all of the provider moved",
    ChangeCause.NOISE: "smaller than what counts, or the level returned",
    ChangeCause.UNDECIDED: "the runs do not show the cause",
}


@dataclass(frozen=True, slots=True)
class MovedShare:
    """How many of some dispatches moved as the one in question did."""

    moved: int
    of: int

    @property
    def is_all(self) -> bool:
        return self.of >= FEWEST and self.moved >= QUORUM * self.of

    @property
    def is_few(self) -> bool:
        return self.of >= FEWEST and self.of - self.moved >= QUORUM * self.of

    def __str__(self) -> str:
        return f"{self.moved} of {self.of}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFacts:
    """What the rules see of one change."""

    own: LevelShift | None
    """Of the dispatch's time."""
    relative: LevelShift | None = None
    """Of its ratio to the reference; None without one."""
    reference: LevelShift | None = None
    """Of the reference's time."""
    adjusted: tuple[LevelShift | None, LevelShift | None] = (None, None)
    """Of its time and of the reference's, both relative to the level of their runs."""
    is_reference: bool = False
    others: MovedShare = MovedShare(0, 0)
    """Of all other dispatches of the runs."""
    provider: MovedShare = MovedShare(0, 0)
    """Of the provider's dispatches, this one included."""
    own_method: str = ""
    """How the dispatch's own way of timing changed, e.g. "timed by graph instead of events"."""
    method: tuple[str, ...] = ()
    """What else of the way of measuring changed in that run."""
    environment: tuple[str, ...] = ()
    """What of software and hardware changed in that run."""
    clock: float | None = None
    """Clock after the change over that before it."""
    hints: tuple[str, ...] = ()
    """Observations that explain, but decide nothing: new reasons for throttling, higher load."""
    returned: int = 0
    """Number of runs after which the level returned to that before; 0: it did not."""


Judgement = tuple[ChangeCause, tuple[str, ...]]


def judge(facts: ChangeFacts) -> Judgement:
    """The cause, and sentences that give the reasons for it."""
    cause, why = _cause(facts)
    reasons = [
        why,
        *(f"changed in that run: {text}" for text in _switched(facts) if text not in why),
    ]
    return cause, (*reasons, *facts.hints)


def _cause(facts: ChangeFacts) -> tuple[ChangeCause, str]:
    own, relative = facts.own, facts.relative
    if facts.returned:
        return ChangeCause.NOISE, f"the level returned after {facts.returned} runs"
    has_moved = own is not None and own.has_moved
    is_apart = relative is not None and relative.has_moved
    if not has_moved and not is_apart:
        shown = [one for one in (own, relative) if one is not None]
        if any(one.verdict is Difference.UNDECIDED for one in shown) or not shown:
            return (
                ChangeCause.UNDECIDED,
                "too few runs were measured since, or they differ too much",
            )
        return ChangeCause.NOISE, "the difference is not shown to be more than what counts"
    if not has_moved:
        return _by_ratio(facts)
    if facts.own_method:
        return ChangeCause.METHOD, facts.own_method
    if relative is None:
        return _without_reference(facts)
    assert own is not None
    if relative.is_like(own):
        return _shared(facts) or _not_separable(facts) or (
            ChangeCause.KERNEL, "it moved relative to its reference of the same runs")  # fmt: skip
    if relative.verdict is Difference.UNDECIDED:
        return ChangeCause.UNDECIDED, "the ratio to its reference varies too much to decide"
    common = _shared(facts) or _of_the_host(facts)
    if common:
        return common
    return ChangeCause.UNDECIDED, (
        f"its reference moved as well, but only {facts.others} other dispatches did"
    )


def _by_ratio(facts: ChangeFacts) -> tuple[ChangeCause, str]:
    """The cause of a change of the ratio where the dispatch's own time does not show one: it may
    vary too much from run to run, so the level of all dispatches of each run is taken out."""
    relative, reference = facts.relative, facts.reference
    assert relative is not None
    opposite = {Difference.SLOWER: Difference.FASTER, Difference.FASTER: Difference.SLOWER}
    against = opposite[relative.verdict]
    own, other = facts.adjusted
    moved = [one is not None and one.has_moved for one in (own, other)]
    if reference is not None and reference.verdict is against and not moved[0]:
        return ChangeCause.BASELINE, "its reference moved, it did not"
    if moved == [False, True] and other is not None and other.verdict is against:
        return (
            ChangeCause.BASELINE,
            "its reference moved relative to the other dispatches, it did not",
        )
    if moved == [True, False] and own is not None and own.is_like(relative):
        return _shared(facts) or _not_separable(facts) or (
            ChangeCause.KERNEL, "it moved relative to its reference and to the other dispatches"
        )  # fmt: skip
    return ChangeCause.UNDECIDED, "the ratio changed, but not clearly through either of the two"


def _without_reference(facts: ChangeFacts) -> tuple[ChangeCause, str]:
    found = _shared(facts) or _of_the_host(facts)
    if found:
        return found
    if not facts.others.is_few:
        return ChangeCause.UNDECIDED, f"{facts.others} other dispatches of these runs moved as well"
    unclear = _not_separable(facts)
    if unclear:
        return unclear
    why = f"only {facts.others} other dispatches of these runs moved"
    if facts.is_reference:
        return ChangeCause.BASELINE, f"{why}, and others are compared with it"
    return ChangeCause.KERNEL, why


def _shared(facts: ChangeFacts) -> tuple[ChangeCause, str] | None:
    """A change of method or environment that all of the provider moved with."""
    if not facts.provider.is_all:
        return None
    for cause, found in (
        (ChangeCause.METHOD, facts.method),
        (ChangeCause.ENVIRONMENT, facts.environment),
    ):
        if found:
            return cause, f"{found[0]}; {facts.provider} dispatches of the provider moved"
    return None


def _not_separable(facts: ChangeFacts) -> tuple[ChangeCause, str] | None:
    """Where something changed around a provider with too few dispatches to separate the two."""
    if _switched(facts) and facts.provider.of < FEWEST:
        few = "the provider has too few dispatches to separate the two"
        return ChangeCause.UNDECIDED, f"{_switched(facts)[0]} in that run, and {few}"
    return None


def _of_the_host(facts: ChangeFacts) -> tuple[ChangeCause, str] | None:
    if facts.others.is_all:
        return ChangeCause.HOST, f"{facts.others} other dispatches moved together with it"
    if facts.clock is not None and facts.own is not None:
        clock, time = math.log(facts.clock), math.log(facts.own.ratio)
        if abs(clock) >= CLOCK and 0.5 <= -clock / time <= 1.5:
            return ChangeCause.HOST, f"the clock changed by {100 * (facts.clock - 1):+.1f} %"
    return None


def _switched(facts: ChangeFacts) -> tuple[str, ...]:
    return (*facts.method, *facts.environment)


Values = npt.NDArray[np.float64]

TRANSIENT = 7
"""Most runs of an excursion, a week of nightly runs: if the level is then what it was before, both
of its ends are noise."""

SURE = 0.8
"""Share of cases in which a change has to be found for "no change" to be a verdict."""

_NEAR = 3
"""Runs within which a change of a time and one of its ratio are the same change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesChange:
    """A change of one series, in the history of one device class."""

    series: int
    run: int
    """The first run after it."""
    end: int
    """The run of the next change of the series; the number of runs if there is none."""
    begin: int
    """The run of the change before it; 0 if there is none."""
    p_value: float
    facts: ChangeFacts
    cause: ChangeCause
    reasons: tuple[str, ...]

    @property
    def shift(self) -> LevelShift | None:
        """What the cause rests on: the shift of the dispatch's time where it moved, else that of
        its ratio to the reference."""
        own, relative = self.facts.own, self.facts.relative
        if own is not None and (own.has_moved or relative is None or not relative.has_moved):
            return own
        return relative

    @property
    def is_of_ratio(self) -> bool:
        """Whether :attr:`shift` is that of the ratio to the reference."""
        return self.shift is not self.facts.own

    @property
    def direction(self) -> Difference:
        return Difference.UNDECIDED if self.shift is None else self.shift.verdict


ENOUGH_RUNS = 2 * LEAST_SEGMENT
"""Runs that the detector needs: with fewer only a step at the end is sought, and no split into
segments."""


@dataclass(frozen=True)
class HistoryChanges:
    """All changes of one device class."""

    history: DeviceHistory
    changes: Sequence[SeriesChange]
    """By run, then by series."""
    tested: int
    """Number of series that were tested together, of times and of ratios."""
    confidence: float
    """Of each interval."""
    threshold: float
    noise: tuple[RunNoise, RunNoise]
    """Of times, and of ratios to references."""

    def power(self, series: int, size: float, most_after: int = LEAST_SEGMENT) -> StepPower:
        """How often a relative change of `size` of a series would be found, and judged to be its
        own, when it is at most `most_after` runs old: its ratio to its reference has to show it,
        and its time, or its time relative to the level of all dispatches, as well."""
        logs, reference = self.history.logs, self.history.references[series]
        sources = [
            (logs[series], self.noise[0]),
            (logs[series] - self.history.level, self.noise[0]),
        ]
        if reference is not None:
            sources.append((logs[series] - logs[reference], self.noise[1]))
        changes = [one.run for one in self.changes if one.series == series]
        found = []
        for values, noise in sources:
            parts = [part[np.isfinite(part)] for part in np.split(values, changes)]
            levels = [part for part in parts if part.size]
            squares = sum(float(((part - part.mean()) ** 2).sum()) for part in levels)
            known = sum(part.size for part in levels)
            variance = squares / max(1, known - len(levels))
            found.append(step_power(known, variance, noise, math.log1p(size), tested=self.tested,
                                    margin=math.log1p(self.threshold),
                                    most_after=most_after))  # fmt: skip
        if reference is None:
            return found[0]
        own = max(found[:2], key=lambda one: one.share)
        return min(own, found[2], key=lambda one: one.share)

    @cached_property
    def decisive(self) -> float:
        """The relative change that a series has to have runs enough for: as in every verdict, a
        gross one (:data:`gemmetry.statistics.comparison.GROSS` times what counts as none)."""
        return GROSS * self.threshold

    @cached_property
    def undecided(self) -> dict[int, StepPower]:
        """Series with too few runs, or runs that differ too much, for "no change" to be a verdict:
        a change of :attr:`decisive` would be found in fewer than :data:`SURE` of all cases."""
        powers = {series: self.power(series, self.decisive) for series in self.measured}
        return {series: shown for series, shown in powers.items() if shown.share < SURE}

    @property
    def measured(self) -> list[int]:
        """Series with a time in any run."""
        return np.flatnonzero(np.isfinite(self.history.logs).any(axis=1)).tolist()

    @property
    def is_undecided(self) -> bool:
        """Whether that holds of half of the series: that none changed is no verdict."""
        return 2 * len(self.undecided) >= max(1, len(self.measured))

    @property
    def runs_known(self) -> int:
        """Number of runs without those that measured an old commit again."""
        return len(self.history.runs) - len(self.history.measured_again)

    @property
    def is_young(self) -> bool:
        """Whether there are fewer runs than :data:`ENOUGH_RUNS`."""
        return self.runs_known < ENOUGH_RUNS


def history_changes(
    history: DeviceHistory, *, threshold: float, false_alarms: float = FALSE_ALARMS,
) -> HistoryChanges:  # fmt: skip
    """The changes of all series, of their times and of their ratios to their references.

    Args:
        threshold: relative changes up to this count as none.
        false_alarms: see :func:`gemmetry.statistics.change_points.find_changes`.
    """
    sources = [(series, history.logs[series]) for series in range(len(history.keys))]
    sources += [
        (series, history.logs[series] - history.logs[reference])
        for series, reference in enumerate(history.references)
        if reference is not None
    ]
    runs = [np.flatnonzero(np.isfinite(values)) for _, values in sources]
    found = find_changes(
        [values[places] for (_, values), places in zip(sources, runs, strict=True)],
        kinds=[int(number >= len(history.keys)) for number in range(len(sources))],
        false_alarms=false_alarms,
    )
    places: dict[int, list[tuple[int, float]]] = {}
    for (series, _), own_runs, changes in zip(sources, runs, found.changes, strict=True):
        places.setdefault(series, []).extend(
            (int(own_runs[change.index]), change.p_value) for change in changes
        )
    confidence = 1 - (found.error or false_alarms)
    noise = (found.noise[0], found.noise[-1])
    judged = _Judging(history, confidence, threshold, noise)
    result = [change for series, at in places.items() for change in judged.changes(series, at)]
    result.sort(key=lambda change: (change.run, change.series))
    return HistoryChanges(history, result, len(sources), confidence, threshold, noise)


@dataclass(frozen=True)
class _Judging:
    """Judges the changes of a history one by one."""

    history: DeviceHistory
    confidence: float
    threshold: float
    noise: tuple[RunNoise, RunNoise]
    """Of times, and of ratios."""
    _known: dict[int, tuple[Values, ChangedSurroundings]] = field(default_factory=dict)

    def changes(self, series: int, places: Sequence[tuple[int, float]]) -> list[SeriesChange]:
        """The changes of a series at `places`: (run, p-value), of its times and its ratios."""
        merged: list[tuple[int, float]] = []
        for run, p_value in sorted(places):
            if merged and run - merged[-1][0] <= _NEAR:
                merged[-1] = min(merged[-1], (run, p_value), key=lambda one: one[1])
            else:
                merged.append((run, p_value))
        ends = [*(run for run, _ in merged), len(self.history.runs)]
        returned = self._returned(series, ends)
        found = []
        for number, (run, p_value) in enumerate(merged):
            begin = merged[number - 1][0] if number else 0
            facts = self._facts(series, begin, run, ends[number + 1], returned[number])
            cause, reasons = judge(facts)
            found.append(SeriesChange(series=series, run=run, begin=begin, end=ends[number + 1],
                                      p_value=p_value, facts=facts, cause=cause,
                                      reasons=reasons))  # fmt: skip
        return found

    def _returned(self, series: int, ends: Sequence[int]) -> list[int]:
        """For each change, the number of runs of the short excursion that it begins or ends."""
        logs = self.history.logs[series]
        lengths = [0] * (len(ends) - 1)
        for number in range(len(ends) - 2):
            first, second, last = ends[number], ends[number + 1], ends[number + 2]
            length = int(np.isfinite(logs[first:second]).sum())
            begin = ends[number - 1] if number else 0
            shift = self._shift(logs, begin, first, second, last, self.noise[0])
            is_back = shift is not None and shift.verdict is Difference.NONE_SHOWN
            if is_back and length <= TRANSIENT and not lengths[number]:
                lengths[number] = lengths[number + 1] = length
        return lengths

    def _facts(self, series: int, begin: int, run: int, end: int, returned: int) -> ChangeFacts:
        history, logs = self.history, self.history.logs
        reference = history.references[series]

        def shift(values: Values, noise: RunNoise = self.noise[0]) -> LevelShift | None:
            return self._shift(values, begin, run, run, end, noise)

        own = shift(logs[series])
        relative = other = None
        adjusted: tuple[LevelShift | None, LevelShift | None] = (None, None)
        if reference is not None:
            relative = shift(logs[series] - logs[reference], self.noise[1])
            other = shift(logs[reference])
            if relative is not None and relative.has_moved and not (own and own.has_moved):
                adjusted = (shift(logs[series] - history.level),
                            shift(logs[reference] - history.level))  # fmt: skip
        moving = own if own is not None and own.has_moved else relative
        others, provider = self._shares(series, run, moving)
        around = self._around(run)[1]
        return ChangeFacts(
            own=own,
            relative=relative,
            reference=other,
            adjusted=adjusted,
            is_reference=series in history.references,
            others=others,
            provider=provider,
            own_method=changed_timing(history, series, run),
            method=around.method,
            environment=around.environment,
            clock=clock_ratio(history, series, run),
            hints=observed_hints(history, series, run),
            returned=returned,
        )

    def _shift(
        self, values: Values, begin: int, first: int, second: int, end: int, noise: RunNoise
    ) -> LevelShift | None:
        return level_shift(values[begin:first], values[second:end], confidence=self.confidence,
                           relevant=self.threshold, noise=noise)  # fmt: skip

    def _around(self, run: int) -> tuple[Values, ChangedSurroundings]:
        """By how much each series moved at a run (the median of the logarithms of the runs after it
        less that of those before), and what changed around them."""
        if run not in self._known:
            logs = self.history.logs
            before = logs[:, max(0, run - NEIGHBOURS) : run]
            steps = nan_median(logs[:, run : run + NEIGHBOURS], 1) - nan_median(before, 1)
            self._known[run] = np.asarray(steps), changed_surroundings(self.history, run)
        return self._known[run]

    def _shares(
        self, series: int, run: int, shift: LevelShift | None
    ) -> tuple[MovedShare, MovedShare]:
        """How many of the other dispatches, and of the provider's, moved in the direction of
        `shift`, by at least half of it and by more than the threshold."""
        if shift is None or not shift.has_moved:
            return MovedShare(0, 0), MovedShare(0, 0)
        steps = self._around(run)[0]
        known = np.isfinite(steps)
        size = math.log(shift.ratio)
        least = max(abs(size) / 2, math.log1p(self.threshold))
        moved = known & (np.sign(size) * np.nan_to_num(steps) >= least)
        others = np.ones(steps.size, dtype=bool)
        others[series] = False
        own = np.array([key[0] == self.history.keys[series][0] for key in self.history.keys])
        return (
            MovedShare(int((moved & others).sum()), int((known & others).sum())),
            MovedShare(int((moved & own).sum()), int((known & own).sum())),
        )
