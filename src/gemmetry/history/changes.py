"""Finds the changes of the dispatches of a device class, and judges the cause of each.

The runs of a device class are series: one for each dispatch, in arrays of series × runs. A change
is a shift of the level from the runs before it to those after it. Rules judge why a level changed:
by the dispatch, its reference, the other dispatches of that run, and what changed around them.
docs/history.md lists them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gemmetry.domain.errors import Outcome, UnknownNameError
from gemmetry.domain.record import flat_fields, shown
from gemmetry.history.folder import HistoryPoint, HistoryRun
from gemmetry.providers.base import baseline_names
from gemmetry.statistics.change_points import (
    FALSE_ALARMS,
    LEAST_SEGMENT,
    StepPower,
    find_changes,
    step_power,
)
from gemmetry.statistics.comparison import GROSS, Difference, ratio_interval, verdict_of
from gemmetry.statistics.intervals import EXACT_UP_TO, Interval, stratified_shift
from gemmetry.statistics.runs import RunNoise

Values = npt.NDArray[np.float64]
SeriesKey = tuple[str, str, str, str, str, str]
"""(provider, dispatch, target, distribution, regime, launches), see :attr:`HistoryPoint.key`."""

_READINGS = ("median_ns", "low_ns", "high_ns", "sm_clock_hz", "load_average")


@dataclass(frozen=True, eq=False)
class DeviceHistory:
    """All series of one device class. Arrays have the shape series × runs; NaN: not measured."""

    device: str
    runs: Sequence[HistoryRun]
    keys: Sequence[SeriesKey]
    operations: Sequence[str]
    """Operations of each series."""
    median_ns: Values
    low_ns: Values
    high_ns: Values
    sm_clock_hz: Values
    load_average: Values
    points: Sequence[Sequence[HistoryPoint | None]]
    """Points of each series, one for each run."""
    references: Sequence[int | None]
    """The series that each is compared with: of the same problem, measured in turn with it."""

    @cached_property
    def logs(self) -> Values:
        """Logarithms of the medians; NaN also in runs of :attr:`measured_again`."""
        logs = np.log(self.median_ns)
        logs[:, sorted(self.measured_again)] = np.nan
        return logs

    @cached_property
    def measured_again(self) -> frozenset[int]:
        """Runs whose commit is not new (:func:`measured_again`): they show nothing of their time,
        and no change is looked for in them."""
        return measured_again(self.runs)

    def first_new(self, latest: int) -> int:
        """The first of the `latest` runs, of those that are not :attr:`measured_again`."""
        fresh = [number for number in range(len(self.runs)) if number not in self.measured_again]
        return fresh[-latest] if len(fresh) >= latest else 0

    def level_of(self, series: int, since: int) -> Values:
        """The medians (ns) from the run `since` on, without runs of :attr:`measured_again`."""
        logs = self.logs[series, since:]
        return np.exp(logs[np.isfinite(logs)])

    @cached_property
    def level(self) -> Values:
        """Common slowdown of all dispatches of a run: the median, over the series, of the logarithm
        of the time over the series' own median."""
        return nan_median(self.logs - nan_median(self.logs, 1)[:, None], 0)

    @cached_property
    def short_names(self) -> list[str]:
        """``provider:dispatch``, with the conditions that several series differ in: distribution,
        regime, launches."""
        differing = [n for n in (3, 4, 5) if len({key[n] for key in self.keys}) > 1]
        return [" ".join([f"{key[0]}:{key[1]}", *(key[n] for n in differing)]) for key in self.keys]

    def outcome(self, series: int, run: int) -> str | None:
        """Outcome in a run; None where the run did not have the dispatch."""
        point = self.points[series][run]
        return None if point is None else point.outcome

    def matches(self, series: int, pattern: str) -> bool:
        """Whether a series is one of those that `pattern` stands for (:func:`name_matches`)."""
        return name_matches(f"{self.keys[series][0]}:{self.keys[series][1]}", pattern)

    @cached_property
    def lost(self) -> dict[int, int]:
        """Series that were ok when they were last measured, and whose last outcome is worse -> the
        first run in which they were no longer ok."""
        found = {}
        fine = (Outcome.OK, Outcome.SKIPPED, Outcome.UNSUPPORTED)
        for series, points in enumerate(self.points):
            runs = [(number, point.outcome) for number, point in enumerate(points)
                    if point is not None and number not in self.measured_again]  # fmt: skip
            oks = [place for place, (_, outcome) in enumerate(runs) if outcome == Outcome.OK]
            if oks and runs[-1][1] not in fine:
                found[series] = runs[oks[-1] + 1][0]
        return found

    @cached_property
    def facts(self) -> list[dict[str, Any]]:
        """The settings and the commonest environment of each run, as flat fields."""
        found = []
        for run in self.runs:
            used = Counter(point.environment for point in run.points).most_common(1)
            environment = run.environments.get(used[0][0], {}) if used else {}
            fields = flat_fields(run.settings, "settings:")
            fields |= flat_fields(environment, "environment:")
            found.append({name: value for name, value in fields.items() if name not in _IGNORED})
        return found


def measured_again(runs: Sequence[HistoryRun]) -> frozenset[int]:
    """The numbers of the `runs` (in the order of time) whose commit an earlier one measured, and
    another commit was measured in between: an old commit that was measured again."""
    found, known, latest = set(), set(), ""
    for number, run in enumerate(runs):
        if run.commit in known and run.commit != latest:
            found.add(number)
        elif run.commit:
            known.add(run.commit)
            latest = run.commit
    return frozenset(found)


def device_history(
    device: str, runs: Sequence[HistoryRun], baseline: str | None = None
) -> DeviceHistory:
    """The series of the `runs` of one device class, in the order of their time.

    Args:
        baseline: provider, or ``provider:configuration``, that is the reference of each problem;
            None: the best vendor library that the problem was measured with.

    Raises:
        UnknownNameError: no series is of that baseline.
    """
    places: dict[SeriesKey, int] = {}
    operations: list[str] = []
    columns: list[list[HistoryPoint | None]] = []
    for number, run in enumerate(runs):
        for point in run.points:
            place = places.setdefault(point.key, len(places))
            if place == len(columns):
                columns.append([None] * len(runs))
                operations.append(point.operation)
            columns[place][number] = point
    empty, read = (np.nan,) * len(_READINGS), attrgetter(*_READINGS)
    rows = [[empty if point is None else read(point) for point in column] for column in columns]
    values = np.array(rows, dtype=np.float64).reshape(len(columns), len(runs), len(_READINGS))
    values[~(values[:, :, 0] > 0), 0] = np.nan
    readings = dict(zip(_READINGS, np.moveaxis(values, 2, 0).copy(), strict=True))
    keys = list(places)
    measured = np.isfinite(readings["median_ns"]).sum(axis=1)
    return DeviceHistory(device, runs, keys, operations, **readings, points=columns,
                         references=_references(keys, operations, measured, baseline))  # fmt: skip


def name_matches(name: str, pattern: str) -> bool:
    """Whether ``provider:dispatch`` contains `pattern`, or matches it as a glob."""
    return pattern in name or fnmatchcase(name, pattern)


def _references(
    keys: Sequence[SeriesKey], operations: Sequence[str], measured: Sequence[int],
    baseline: str | None,
) -> list[int | None]:  # fmt: skip
    """The reference of each series: of the baseline's series of its problem, the one with the most
    points, and of those the one that comes first."""
    provider, _, configuration = (baseline or "").partition(":")
    ranked = [provider] if baseline else baseline_names({key[0] for key in keys})
    candidates = [
        (ranked.index(key[0]), -measured[n], n)
        for n, key in enumerate(keys)
        if key[0] in ranked and (not configuration or key[1] == f"{operations[n]}_{configuration}")
    ]
    if baseline and not candidates:
        raise UnknownNameError("baseline", baseline, {key[0] for key in keys})
    problems = [(operations[n], *key[2:]) for n, key in enumerate(keys)]
    best: dict[tuple[str, ...], int] = {}
    for *_, n in sorted(candidates):
        best.setdefault(problems[n], n)
    found = [best.get(problem) for problem in problems]
    return [None if reference == n else reference for n, reference in enumerate(found)]


def nan_median(values: Values, axis: int) -> Values:
    """The median without NaN; NaN where nothing else is there."""
    ordered = np.sort(values, axis=axis)  # NaN come last
    count = np.expand_dims(np.isfinite(values).sum(axis=axis), axis)
    ends = [np.take_along_axis(ordered, np.clip(place, 0, values.shape[axis] - 1), axis)
            for place in ((count - 1) // 2, count // 2)]  # fmt: skip
    return np.asarray((ends[0] + ends[1]).squeeze(axis) / 2)


_MOST_AFTER = EXACT_UP_TO // 2
"""Runs after a change, nearest to it, that count: half of those for which the distribution of ranks
is computed exactly, as far away runs may have drifted."""


class LevelShift(NamedTuple):
    """The ratio of the level after a change to that before it; above 1 is slower."""

    ratio: float
    interval: Interval | None
    """Interval; None where too few runs were measured for the confidence."""
    verdict: Difference
    """Read from the interval."""

    @property
    def has_moved(self) -> bool:
        """Whether a shift is shown."""
        return self.verdict in (Difference.SLOWER, Difference.FASTER)


def level_shift(
    before: Values, after: Values, *, confidence: float, relevant: float,
    noise: RunNoise | None = None,
) -> LevelShift | None:  # fmt: skip
    """The shift between two windows of logarithms (NaN: not measured), by the rank-sum test of the
    runs nearest to the change, or by Student's with `noise` where these are too few for ranks; None
    where a side was not measured at all."""
    second = after[np.isfinite(after)][:_MOST_AFTER]
    first = before[np.isfinite(before)]
    first = first[max(0, first.size - (EXACT_UP_TO - second.size)) :]
    if not first.size or not second.size:
        return None
    shift, ends = stratified_shift([(first, second)], confidence)
    if ends is None and noise is not None:
        shift = float(second.mean() - first.mean())
        ends = noise.interval(first, second, confidence)
    interval = None if ends is None else ratio_interval(shift, *ends)
    return LevelShift(math.exp(shift), interval, verdict_of(interval, relevant))


NEIGHBOURS = 10
"""The number of runs compared on either side of a change."""

_AGREE = 0.8
"""Share of the runs of a side that have to agree on a value."""

_NEAR = 2
"""Runs by which the place of a change may be wrong."""

_OF_THE_METHOD = ("packages.gemmetry",)
"""Fields of an environment that decide how times are measured."""

_IGNORED = ("environment:git_revision",)
"""Fields that are expected to differ in every run."""


class ChangedConditions(NamedTuple):
    """Changes, as texts such as ``torch 2.9.0 → 2.10.0``."""

    method: tuple[str, ...]
    environment: tuple[str, ...]


def changed_conditions(history: DeviceHistory, run: int) -> ChangedConditions:
    """Lasting changes at about the run `run`: settings of the runs and the version of gemmetry, and
    fields of their environments. What differs from run to run does not count."""
    facts = history.facts
    before, after = (facts[max(0, run - NEIGHBOURS) : run], facts[run : run + NEIGHBOURS])
    around = range(max(1, run - _NEAR), min(len(facts), run + _NEAR + 1))
    method: list[str] = []
    environment: list[str] = []
    for name in dict.fromkeys(key for one in (*before[-1:], *after[:1]) for key in one):
        old, new = (_agreed([one.get(name) for one in side]) for side in (before, after))
        values = {at: _hashable(facts[at].get(name)) for at in (around[0] - 1, *around)}
        if not old or not new or old[0] == new[0] or not any(
            values[at] == new[0] != values[at - 1] for at in around
        ):  # fmt: skip
            continue
        kind, _, plain = name.partition(":")
        is_method = kind == "settings" or plain in _OF_THE_METHOD
        text = f"{plain.removeprefix('packages.')} {shown(old[0])} → {shown(new[0])}"
        (method if is_method else environment).append(text)
    return ChangedConditions(tuple(method), tuple(environment))


def changed_timing(history: DeviceHistory, series: int, run: int) -> str:
    """Change of a dispatch's way of timing; "" if there is none."""
    old, new = (_agreed([point.method for point in side]) for side in _sides(history, series, run))
    return f"timed by {new[0]} instead of {old[0]}" if old and new and old != new else ""


def clock_ratio(history: DeviceHistory, series: int, run: int) -> float | None:
    """The median clock after a change over that before it; None where it was not observed."""
    clocks = history.sm_clock_hz[series]
    old, new = (nan_median(side, 0) for side in (clocks[max(0, run - NEIGHBOURS) : run],
                                                 clocks[run : run + NEIGHBOURS]))  # fmt: skip
    return float(new / old) if np.isfinite(new / old) else None


def observed_hints(history: DeviceHistory, series: int, run: int) -> tuple[str, ...]:
    """Reasons for throttling that are new, and a load that at least doubled."""
    before, after = _sides(history, series, run)
    found = []
    for reason in dict.fromkeys(name for point in after for name in point.throttle):
        shares = [sum(reason in point.throttle for point in side) / max(1, len(side))
                  for side in (before, after)]  # fmt: skip
        if shares[0] < 0.5 <= shares[1]:
            found.append(f"throttled since: {reason}")
    loads = [[p.load_average for p in side if p.load_average is not None]
             for side in (before, after)]  # fmt: skip
    if all(loads):
        old, new = (float(np.median(side)) for side in loads)
        if new >= 2 * old and new - old >= 0.5:
            found.append(f"load average per processor {old:.2f} → {new:.2f}")
    return tuple(found)


def _sides(
    history: DeviceHistory, series: int, run: int
) -> tuple[list[HistoryPoint], list[HistoryPoint]]:
    points = history.points[series]
    return (
        [p for p in points[:run] if p is not None and p.median_ns][-NEIGHBOURS:],
        [p for p in points[run:] if p is not None and p.median_ns][:NEIGHBOURS],
    )


def _agreed(values: Sequence[Any]) -> list[Any]:
    """The value that nearly all share, in a list; empty if there is none."""
    if not values:
        return []
    value, count = Counter(map(_hashable, values)).most_common(1)[0]
    return [value] if count >= _AGREE * len(values) else []


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


QUORUM = 0.8
"""Share of the other dispatches that have to move as well for a cause that all of them share; a
change of few of them has at most 1 - QUORUM. In between, the cause is undecided."""

FEWEST = 3
"""Minimum number of dispatches for such a share."""

CLOCK = 0.01
"""Minimum relative change of the clock that can explain a change of times: steps of an NVIDIA GPU's
clock are 15 MHz, less than 1 % of 2 GHz (nvidia-smi -q -d SUPPORTED_CLOCKS)."""


class ChangeCause(StrEnum):
    """Cause of a change; :data:`CAUSES` describes each."""

    KERNEL = "kernel"
    BASELINE = "baseline"
    HOST = "host"
    METHOD = "method"
    ENVIRONMENT = "environment"
    NOISE = "noise"
    UNDECIDED = "undecided"


CAUSES: dict[ChangeCause, str] = {
    ChangeCause.KERNEL: "this dispatch alone, relative to its reference of the same runs",
    ChangeCause.BASELINE: "the reference moved, not the dispatches compared with it",
    ChangeCause.HOST: "all dispatches moved together, or the clock did",
    ChangeCause.METHOD: "the way of measuring changed in that run",
    ChangeCause.ENVIRONMENT: "software or hardware changed, and all of the provider moved",
    ChangeCause.NOISE: "smaller than what counts, or the level returned",
    ChangeCause.UNDECIDED: "the runs do not show the cause",
}


class MovedShare(NamedTuple):
    """Number of other dispatches that moved as the given one did, and their total."""

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
    """Facts of one change, for the rules."""

    own: LevelShift | None
    """Shift of the dispatch's time."""
    relative: LevelShift | None = None
    """Shift of the ratio to the reference; None without one."""
    reference: LevelShift | None = None
    """Shift of the reference's time."""
    adjusted: tuple[LevelShift | None, LevelShift | None] = (None, None)
    """Shifts of the dispatch's time and of the reference's, both relative to the level of their
    runs."""
    is_reference: bool = False
    others: MovedShare = MovedShare(0, 0)
    """Share of all other dispatches of the runs that moved."""
    provider: MovedShare = MovedShare(0, 0)
    """Share of the provider's dispatches that moved, including this one."""
    own_method: str = ""
    """Change of the dispatch's own way of timing, e.g. "timed by graph instead of events"."""
    method: tuple[str, ...] = ()
    """Other changes of the measuring method in that run."""
    environment: tuple[str, ...] = ()
    """Changes of software and hardware in that run."""
    clock: float | None = None
    """Clock after the change over that before it."""
    hints: tuple[str, ...] = ()
    """Observations that explain, but decide nothing: new reasons for throttling, higher load."""
    returned: int = 0
    """Number of runs after which the level returned to that before; 0: it did not."""


def judge(facts: ChangeFacts) -> tuple[ChangeCause, tuple[str, ...]]:
    """The cause, and sentences that give the reasons for it."""
    cause, why = _cause(facts)
    changed = (f"changed in that run: {text}" for text in _switched(facts) if text not in why)
    return cause, (why, *changed, *facts.hints)


def _cause(facts: ChangeFacts) -> tuple[ChangeCause, str]:
    own, relative = facts.own, facts.relative
    if facts.returned:
        return ChangeCause.NOISE, f"the level returned after {facts.returned} runs"
    if own is None or not own.has_moved:
        if relative is not None and relative.has_moved:
            return _by_ratio(facts, relative)
        shown = [one.verdict for one in (own, relative) if one is not None]
        if not shown or Difference.UNDECIDED in shown:
            why = "too few runs were measured since, or they differ too much"
            return ChangeCause.UNDECIDED, why
        return ChangeCause.NOISE, "the difference is not shown to be more than what counts"
    if facts.own_method:
        return ChangeCause.METHOD, facts.own_method
    if relative is not None and relative.verdict is own.verdict:
        return _shared(facts) or _not_separable(facts) or (
            ChangeCause.KERNEL, "it moved relative to its reference of the same runs")  # fmt: skip
    if relative is not None and relative.verdict is Difference.UNDECIDED:
        return ChangeCause.UNDECIDED, "the ratio to its reference varies too much to decide"
    if common := _shared(facts) or _of_the_host(facts, own):
        return common
    if relative is not None:
        why = f"its reference moved as well, but only {facts.others} other dispatches did"
        return ChangeCause.UNDECIDED, why
    if not facts.others.is_few:
        return ChangeCause.UNDECIDED, f"{facts.others} other dispatches of these runs moved as well"
    why = f"only {facts.others} other dispatches of these runs moved"
    return _not_separable(facts) or (
        (ChangeCause.BASELINE, f"{why}, and others are compared with it")
        if facts.is_reference else (ChangeCause.KERNEL, why)
    )  # fmt: skip


def _by_ratio(facts: ChangeFacts, relative: LevelShift) -> tuple[ChangeCause, str]:
    """The cause of a change of the ratio where the dispatch's own time does not show one: it may
    vary too much from run to run, so the level of all dispatches of each run is taken out."""
    opposite = {Difference.SLOWER: Difference.FASTER, Difference.FASTER: Difference.SLOWER}
    against = opposite[relative.verdict]
    own, other = (one.verdict if one is not None and one.has_moved else None
                  for one in facts.adjusted)  # fmt: skip
    if facts.reference is not None and facts.reference.verdict is against and own is None:
        return ChangeCause.BASELINE, "its reference moved, it did not"
    if own is None and other is against:
        why = "its reference moved relative to the other dispatches, it did not"
        return ChangeCause.BASELINE, why
    if own is relative.verdict and other is None:
        return _shared(facts) or _not_separable(facts) or (
            ChangeCause.KERNEL, "it moved relative to its reference and to the other dispatches"
        )  # fmt: skip
    return ChangeCause.UNDECIDED, "the ratio changed, but not clearly through either of the two"


def _shared(facts: ChangeFacts) -> tuple[ChangeCause, str] | None:
    """A change of method or environment that all of the provider moved with."""
    if not facts.provider.is_all or not _switched(facts):
        return None
    cause = ChangeCause.METHOD if facts.method else ChangeCause.ENVIRONMENT
    return cause, f"{_switched(facts)[0]}; {facts.provider} dispatches of the provider moved"


def _not_separable(facts: ChangeFacts) -> tuple[ChangeCause, str] | None:
    """Undecided: something changed around a provider with too few dispatches."""
    if _switched(facts) and facts.provider.of < FEWEST:
        few = "the provider has too few dispatches to separate the two"
        return ChangeCause.UNDECIDED, f"{_switched(facts)[0]} in that run, and {few}"
    return None


def _of_the_host(facts: ChangeFacts, own: LevelShift) -> tuple[ChangeCause, str] | None:
    if facts.others.is_all:
        return ChangeCause.HOST, f"{facts.others} other dispatches moved together with it"
    if facts.clock is not None:
        clock, time = math.log(facts.clock), math.log(own.ratio)
        if abs(clock) >= CLOCK and 0.5 <= -clock / time <= 1.5:
            return ChangeCause.HOST, f"the clock changed by {100 * (facts.clock - 1):+.1f} %"
    return None


def _switched(facts: ChangeFacts) -> tuple[str, ...]:
    return (*facts.method, *facts.environment)


TRANSIENT = 7
"""Maximum length of an excursion in runs, a week of nightly runs: if the level then returns, both
ends are noise."""

SURE = 0.8
"""Share of cases in which a change has to be found for "no change" to be a verdict."""

_SAME = 3
"""Runs within which a change of a time and one of its ratio are the same change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesChange:
    """A change of one series, in the history of one device class."""

    series: int
    run: int
    """The first run after it."""
    p_value: float
    facts: ChangeFacts
    cause: ChangeCause
    reasons: tuple[str, ...]

    @property
    def shift(self) -> LevelShift | None:
        """Evidence of the cause: the shift of the dispatch's time where it moved, else that of its
        ratio to the reference."""
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
    places: Mapping[int, Sequence[tuple[int, float]]]
    """Series -> runs and p-values of the changes that were found of its times and its ratios."""
    tested: int
    """Number of series that were tested together, of times and of ratios."""
    confidence: float
    """Confidence of each interval."""
    threshold: float
    noise: tuple[RunNoise, RunNoise]
    """Noise of times, and of ratios to references."""
    _known: dict[int, tuple[Values, ChangedConditions]] = field(default_factory=dict)

    @cached_property
    def changes(self) -> list[SeriesChange]:
        """Changes by run, then by series."""
        found = [one for series, at in self.places.items() for one in self._of_series(series, at)]
        return sorted(found, key=lambda change: (change.run, change.series))

    def power(self, series: int, size: float, most_after: int = LEAST_SEGMENT) -> StepPower:
        """How often a relative change of `size` of a series would be found, and judged to be its
        own, when it is at most `most_after` runs old: its ratio to its reference has to show it,
        and its time, or its time relative to the level of all dispatches, as well."""
        logs, reference = self.history.logs, self.history.references[series]
        sources = [(logs[series], self.noise[0]),
                   (logs[series] - self.history.level, self.noise[0])]  # fmt: skip
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
        share = attrgetter("share")
        own = max(found[:2], key=share)
        return found[0] if reference is None else min(own, found[2], key=share)

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
        """Whether half of the measured series are undecided: no verdict that none changed then."""
        return 2 * len(self.undecided) >= max(1, len(self.measured))

    @property
    def runs_known(self) -> int:
        """Number of runs without those that measured an old commit again."""
        return len(self.history.runs) - len(self.history.measured_again)

    @property
    def is_young(self) -> bool:
        """Whether there are fewer runs than :data:`ENOUGH_RUNS`."""
        return self.runs_known < ENOUGH_RUNS

    def _of_series(self, series: int, places: Sequence[tuple[int, float]]) -> list[SeriesChange]:
        """The changes of a series at `places`."""
        merged: list[tuple[int, float]] = []
        for run, p_value in sorted(places):
            if merged and run - merged[-1][0] <= _SAME:
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
            found.append(SeriesChange(series=series, run=run, facts=facts, p_value=p_value,
                                      cause=cause, reasons=reasons))  # fmt: skip
        return found

    def _returned(self, series: int, ends: Sequence[int]) -> list[int]:
        """For each change, the number of runs of the short excursion that it begins or ends."""
        logs = self.history.logs[series]
        lengths = [0] * (len(ends) - 1)
        windows = zip([0, *ends], ends, ends[1:], ends[2:], strict=False)
        for number, (begin, first, second, last) in enumerate(windows):
            length = int(np.isfinite(logs[first:second]).sum())
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
        has_moved = own is not None and own.has_moved
        relative = other = None
        adjusted: tuple[LevelShift | None, LevelShift | None] = (None, None)
        if reference is not None:
            relative = shift(logs[series] - logs[reference], self.noise[1])
            other = shift(logs[reference])
            if relative is not None and relative.has_moved and not has_moved:
                adjusted = (shift(logs[series] - history.level),
                            shift(logs[reference] - history.level))  # fmt: skip
        others, provider = self._shares(series, run, own if has_moved else relative)
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

    def _around(self, run: int) -> tuple[Values, ChangedConditions]:
        """Shift of each series at a run (the median of the logarithms of the runs after it less
        that of those before), and what changed around them."""
        if run not in self._known:
            logs = self.history.logs
            before = logs[:, max(0, run - NEIGHBOURS) : run]
            steps = nan_median(logs[:, run : run + NEIGHBOURS], 1) - nan_median(before, 1)
            self._known[run] = np.asarray(steps), changed_conditions(self.history, run)
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
        others = np.arange(steps.size) != series
        own = np.array([key[0] == self.history.keys[series][0] for key in self.history.keys])
        first, second = (MovedShare(int((moved & chosen).sum()), int((known & chosen).sum()))
                         for chosen in (others, own))  # fmt: skip
        return first, second


def history_changes(history: DeviceHistory, *, threshold: float) -> HistoryChanges:
    """The changes of all series, of their times and of their ratios to their references; relative
    ones up to the threshold count as none."""
    logs = history.logs
    sources = list(enumerate(logs))
    sources += [(series, logs[series] - logs[reference])
                for series, reference in enumerate(history.references)
                if reference is not None]  # fmt: skip
    runs = [np.flatnonzero(np.isfinite(values)) for _, values in sources]
    found = find_changes(
        [values[places] for (_, values), places in zip(sources, runs, strict=True)],
        kinds=[int(number >= len(history.keys)) for number in range(len(sources))],
    )
    places: dict[int, list[tuple[int, float]]] = {}
    for (series, _), own_runs, changes in zip(sources, runs, found.changes, strict=True):
        places.setdefault(series, []).extend(
            (int(own_runs[change.index]), change.p_value) for change in changes
        )
    confidence = 1 - (found.error or FALSE_ALARMS)
    noise = (found.noise[0], found.noise[-1])
    return HistoryChanges(history, places, len(sources), confidence, threshold, noise)
