"""The runs of one device class as series: one for each dispatch, in arrays of series × runs.

By how much a level shifts from the runs before a change to those after it.

What changed around the dispatches from the runs before a change to those after it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmetry.domain.errors import Outcome, UnknownNameError
from gemmetry.domain.record import shown
from gemmetry.history.folder import HistoryPoint, HistoryRun
from gemmetry.providers.base import baseline_names
from gemmetry.statistics.comparison import Difference, verdict_of
from gemmetry.statistics.intervals import EXACT_UP_TO, Interval, stratified_shift
from gemmetry.statistics.runs import RunNoise

Values = npt.NDArray[np.float64]
SeriesKey = tuple[str, str, str, str, str]
"""(provider, dispatch, target, distribution, regime), see :attr:`HistoryPoint.key`."""

_READINGS = ("median_ns", "low_ns", "high_ns", "sm_clock_hz", "load_average")


@dataclass(frozen=True, eq=False)
class DeviceHistory:
    """All series of one device class. Arrays have the shape series × runs; NaN: not measured."""

    device: str
    runs: Sequence[HistoryRun]
    keys: Sequence[SeriesKey]
    operations: Sequence[str]
    """Of each series."""
    median_ns: Values
    low_ns: Values
    high_ns: Values
    sm_clock_hz: Values
    load_average: Values
    points: Sequence[Sequence[HistoryPoint | None]]
    """Of each series, one for each run."""
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
        """How much slower or faster than usual all dispatches of a run were: the median, over the
        series, of the logarithm of the time over the series' own median."""
        apart = self.logs - nan_median(self.logs, 1)[:, None]
        return nan_median(apart, 0)

    @cached_property
    def short_names(self) -> list[str]:
        """``provider:dispatch``, with the distribution and regime of those that several series
        differ in."""
        several = [len({key[place] for key in self.keys}) > 1 for place in (3, 4)]
        return [
            " ".join([f"{key[0]}:{key[1]}", *(key[3 + n] for n in (0, 1) if several[n])])
            for key in self.keys
        ]

    def outcome(self, series: int, run: int) -> str | None:
        """None where the run did not have the dispatch."""
        point = self.points[series][run]
        return None if point is None else point.outcome

    def matches(self, series: int, pattern: str) -> bool:
        """Whether a series is one of those that `pattern` stands for (:func:`name_matches`)."""
        return name_matches(f"{self.keys[series][0]}:{self.keys[series][1]}", pattern)

    @cached_property
    def lost(self) -> list[int]:
        """Series that were ok when they were last measured, and whose last outcome is worse."""
        found = []
        for series, points in enumerate(self.points):
            outcomes = [point.outcome for number, point in enumerate(points)
                        if point is not None and number not in self.measured_again]  # fmt: skip
            fine = (Outcome.OK, Outcome.SKIPPED, Outcome.UNSUPPORTED)
            if Outcome.OK in outcomes and outcomes[-1] not in fine:
                found.append(series)
        return found

    def lost_at(self, series: int) -> int:
        """The first run in which a series of :attr:`lost` was no longer ok."""
        outcomes = [point and point.outcome if number not in self.measured_again else None
                    for number, point in enumerate(self.points[series])]  # fmt: skip
        last_ok = max(run for run, outcome in enumerate(outcomes) if outcome == Outcome.OK)
        return next(run for run in range(last_ok + 1, len(outcomes)) if outcomes[run] is not None)


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
    empty = (np.nan,) * len(_READINGS)
    rows = [[empty if p is None else (p.median_ns, p.low_ns, p.high_ns, p.sm_clock_hz,
             p.load_average) for p in column] for column in columns]  # fmt: skip
    values = np.array(rows, dtype=np.float64).reshape(len(columns), len(runs), len(_READINGS))
    values[~(values[:, :, 0] > 0), 0] = np.nan
    readings = dict(zip(_READINGS, np.moveaxis(values, 2, 0).copy(), strict=True))
    keys = list(places)
    measured = np.isfinite(readings["median_ns"]).sum(axis=1)
    references = _references(keys, operations, measured, baseline)
    return DeviceHistory(device, runs, keys, operations, **readings, points=columns,
                         references=references)  # fmt: skip


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
    problems: dict[tuple[str, ...], list[int]] = {}
    for number, key in enumerate(keys):
        problems.setdefault((operations[number], *key[2:]), []).append(number)
    found: list[int | None] = [None] * len(keys)
    has_baseline = False
    for problem, members in problems.items():
        candidates = [
            (ranked.index(keys[n][0]), -measured[n], n)
            for n in members
            if keys[n][0] in ranked
            and (not configuration or keys[n][1] == f"{problem[0]}_{configuration}")
        ]
        if candidates:
            has_baseline = True
            reference = min(candidates)[2]
            for number in members:
                found[number] = None if number == reference else reference
    if baseline and not has_baseline:
        raise UnknownNameError("baseline", baseline, {key[0] for key in keys})
    return found


def nan_median(values: Values, axis: int) -> Values:
    """The median without NaN; NaN where nothing else is there."""
    ordered = np.sort(values, axis=axis)  # NaN come last
    count = np.isfinite(values).sum(axis=axis)
    low, high = np.maximum(0, (count - 1) // 2), count // 2
    low = np.minimum(low, values.shape[axis] - 1)
    high = np.minimum(high, values.shape[axis] - 1)
    ends = [np.take_along_axis(ordered, np.expand_dims(place, axis), axis) for place in (low, high)]
    return np.asarray((ends[0] + ends[1]).squeeze(axis) / 2)


_MOST_AFTER = EXACT_UP_TO // 2
"""Runs after a change, nearest to it, that count: half of those for which the distribution of ranks
is computed exactly, as far away runs may have drifted."""


@dataclass(frozen=True, slots=True)
class LevelShift:
    """The ratio of the level after a change to that before it; above 1 is slower."""

    ratio: float
    interval: Interval | None
    """None where too few runs were measured for the confidence."""
    verdict: Difference
    """Read from the interval."""

    @property
    def has_moved(self) -> bool:
        """Whether a shift is shown."""
        return self.verdict in (Difference.SLOWER, Difference.FASTER)

    def is_like(self, other: LevelShift) -> bool:
        """Whether both moved in one direction."""
        return self.has_moved and self.verdict is other.verdict


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
    interval = None if ends is None else (math.exp(ends[0]), math.exp(min(ends[1], 700.0)))
    return LevelShift(math.exp(shift), interval, verdict_of(interval, relevant))


NEIGHBOURS = 10
"""Runs on either side of a change whose surroundings are compared."""

_AGREE = 0.8
"""Share of the runs of a side that have to agree on a value."""

_NEAR = 2
"""Runs by which the place of a change may be wrong."""

_OF_THE_METHOD = ("packages.gemmetry",)
"""Fields of an environment that decide how times are measured."""

_IGNORED = ("git_revision",)
"""Fields that are expected to differ in every run."""


@dataclass(frozen=True, slots=True)
class ChangedSurroundings:
    """What changed, as texts such as ``torch 2.9.0 → 2.10.0``."""

    method: tuple[str, ...]
    environment: tuple[str, ...]


def changed_surroundings(history: DeviceHistory, run: int) -> ChangedSurroundings:
    """What changed once and for all at about the run `run`: settings of the runs and the version
    of gemmetry, and fields of their environments. What differs from run to run does not count."""
    facts = _facts_of(history)
    before, after = (facts[max(0, run - NEIGHBOURS) : run], facts[run : run + NEIGHBOURS])
    method: list[str] = []
    environment: list[str] = []
    for name in dict.fromkeys(key for one in (*before[-1:], *after[:1]) for key in one):
        old, new = (_agreed([one.get(name) for one in side]) for side in (before, after))
        if not old or not new or old[0] == new[0] or not _is_near(facts, run, name, new[0]):
            continue
        kind, _, plain = name.partition(":")
        is_method = kind == "settings" or plain in _OF_THE_METHOD
        text = f"{plain.removeprefix('packages.')} {shown(old[0])} → {shown(new[0])}"
        (method if is_method else environment).append(text)
    return ChangedSurroundings(tuple(method), tuple(environment))


def changed_timing(history: DeviceHistory, series: int, run: int) -> str:
    """How the way in which a dispatch was timed changed; "" if it did not."""
    before, after = _sides(history, series, run)
    old, new = (_agreed([point.method for point in side]) for side in (before, after))
    if old and new and old[0] != new[0]:
        return f"timed by {new[0]} instead of {old[0]}"
    return ""


def clock_ratio(history: DeviceHistory, series: int, run: int) -> float | None:
    """The median clock after a change over that before it; None where it was not observed."""
    clocks = history.sm_clock_hz[series]
    sides = clocks[max(0, run - NEIGHBOURS) : run], clocks[run : run + NEIGHBOURS]
    known = [side[np.isfinite(side)] for side in sides]
    if not all(side.size for side in known):
        return None
    return float(np.median(known[1]) / np.median(known[0]))


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


@lru_cache(maxsize=1)
def _facts_of(history: DeviceHistory) -> list[dict[str, Any]]:
    """The flat fields of each run."""
    return [_facts(run) for run in history.runs]


def _facts(run: HistoryRun) -> dict[str, Any]:
    used = Counter(point.environment for point in run.points).most_common(1)
    environment = run.environments.get(used[0][0], {}) if used else {}
    return {**_flat(run.settings, "settings:"), **_flat(environment, "environment:")}


def _flat(fields: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif name not in _IGNORED:
            found[f"{prefix}{name}"] = tuple(value) if isinstance(value, list) else value
    return found


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


def _is_near(facts: Sequence[Mapping[str, Any]], run: int, name: str, new: Any) -> bool:
    """Whether the value appeared within :data:`_NEAR` runs of `run`."""
    values = [_hashable(one.get(name)) for one in facts]
    around = range(max(1, run - _NEAR), min(len(facts), run + _NEAR + 1))
    return any(values[place] == new != values[place - 1] for place in around)
