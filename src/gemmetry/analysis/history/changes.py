"""Finds the changes of all series of a device class, and judges the cause of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gemmetry.analysis.history.causes import ChangeCause, ChangeFacts, MovedShare, judge
from gemmetry.analysis.history.series import DeviceHistory, nan_median
from gemmetry.analysis.history.shifts import LevelShift, level_shift
from gemmetry.analysis.history.surroundings import (
    NEIGHBOURS,
    ChangedSurroundings,
    changed_surroundings,
    changed_timing,
    clock_ratio,
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
