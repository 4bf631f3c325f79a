"""The runs of one device class as series: one for each dispatch, in arrays of series × runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.outcome import Outcome
from gemmetry.providers.traits import baseline_names
from gemmetry.store.history.entries import HistoryPoint, HistoryRun

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
