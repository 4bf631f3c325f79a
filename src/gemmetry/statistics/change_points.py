"""Points at which the level of a series changes: E-divisive on ranks with a permutation test, for
many series judged together. The latest values are also tested for a step, which may be one value
old (:func:`gemmetry.statistics.runs.latest_steps`).

The statistic is that of Matteson & James, "A Nonparametric Approach for Multiple Change Point
Analysis of Multivariate Data", JASA 109, 2014, section 2.2: the energy distance (Székely & Rizzo,
InterStat 5, 2004) with exponent 1 between the values before a split and those from the split up to
a second place, maximised over both. It is computed on the ranks of a segment instead of on its
values: one slow run then moves it no further than any other, and the permutation distribution is
the same for every segment of one length, so that all series share their permutations.

The slope of one quantity over another, by medians, which outliers do not move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from gemmetry.statistics.intervals import (
    Interval,
    Samples,
    check_confidence,
    minimum_samples,
    rank_sum_chances,
)
from gemmetry.statistics.runs import (
    LEAST_BEFORE,
    STEPS,
    LatestStep,
    RunNoise,
    latest_steps,
    run_noise,
)

FALSE_ALARMS = 0.05
"""Bound on the expected share of false ones among the series that are reported to change; without
any change, on the probability that any is reported (Benjamini & Hochberg, JRSS B 57, 1995)."""

FIRST_LEVEL = 0.8
"""Share of the probability of error for changes of whole series; the rest is for searches of
parts."""

LEAST_SEGMENT = 5
"""Values on either side of a split of E-divisive."""

LATEST = range(3, 8)
"""Numbers of values at the end of a series that are also compared with all values of their segment
before them. E-divisive needs about ten values after a change of one series among a thousand, as a
short block of extreme ranks moves the distance between the distributions by little; the rank-sum
test needs four, because the place is known up to these few. Ranks of fewer values are not rare
enough among many series: the step test needs one, but more of the noise."""

MOST_VALUES = 400
"""Values at the end of a series that are searched: more than a year of nightly runs. Time and
memory grow with the square."""

_BEFORE = 60
"""Maximum number of earlier values that the latest are compared with."""

_PERMUTATIONS = 2000
_TAIL = 0.1
"""Share of the permutations from which the tail is extrapolated: statistics of this kind, weighted
sums of squares of normal variables, have an exponential tail (Zolotarev, Theory of Probability and
its Applications 6, 1961)."""

_PLACES = 64
"""Maximum number of places at which to try to split a segment."""

_AROUND = 40
"""Values on either side of the split by ranks among which to search for its place."""

_GRID = 1.12
"""Ratio of the lengths for which permutations are drawn. The statistic grows with the length, so
that the next longer one errs on the safe side."""

_SEED = 20140301
"""Fixed, so that one history gives one answer."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A place in a series at which its level changes."""

    index: int
    """Index of the first value after the change."""
    p_value: float
    """P-value of any change in the segment where this one was found."""


@dataclass(frozen=True, slots=True)
class FoundChanges:
    """The changes of many series."""

    changes: tuple[tuple[ChangePoint, ...], ...]
    """Changes of each series, ordered by place."""
    error: float
    """The largest p-value that counted as a change when all series were judged together. Intervals
    about the changes with the confidence 1 - `error` cover with 1 - :data:`FALSE_ALARMS` on average
    over those that were selected (Benjamini & Yekutieli, JASA 100, 2005)."""
    noise: tuple[RunNoise, ...]
    """Noise of each kind of series, around the levels between the changes."""


def find_changes(
    series: Sequence[npt.ArrayLike],
    *,
    kinds: Sequence[int] | None = None,
    false_alarms: float = FALSE_ALARMS,
) -> FoundChanges:
    """Find the changes of all `series`, whose values are in the order of time, without gaps.

    The segments of all series are tested together, level by level: a segment that changes is
    divided into two, which are tested at the next level. The first level has four fifths of the
    probability of error, and each further one a fifth of that of the level before. The last
    :data:`MOST_VALUES` values of a series are searched.

    Args:
        kinds: of each series, a number from 0: series of one kind have similar noise (times;
            ratios). None: all are of one kind.
    """
    kinds = [0] * len(series) if kinds is None else kinds
    arrays = [np.asarray(one, dtype=np.float64) for one in series]
    found: list[list[ChangePoint]] = [[] for _ in arrays]
    segments = [
        (number, max(0, one.size - MOST_VALUES), one.size) for number, one in enumerate(arrays)
    ]
    level, error = FIRST_LEVEL * false_alarms, None
    while tested := _testable(segments, arrays):
        results = _tested(tested, arrays, kinds)
        accepted = _accepted([p_value for _, p_value in results], level)
        error = accepted if error is None else error
        segments = []
        for (which, begin, end), (split, p_value) in zip(tested, results, strict=True):
            if p_value <= accepted:
                found[which].append(ChangePoint(split, p_value))
                segments += [(which, begin, split), (which, split, end)]
        level /= 5
    ordered = tuple(tuple(sorted(one, key=lambda change: change.index)) for one in found)
    return FoundChanges(ordered, error or 0.0, _noise(arrays, ordered, kinds))


def _noise(
    arrays: Sequence[Values], changes: Sequence[Sequence[ChangePoint]], kinds: Sequence[int]
) -> tuple[RunNoise, ...]:
    """The noise of each kind: that of the latest of each series' levels that is long enough."""
    levels: dict[int, list[Values]] = {kind: [] for kind in range(max(kinds, default=0) + 1)}
    for values, found, kind in zip(arrays, changes, kinds, strict=True):
        parts = np.split(values[-MOST_VALUES:] if not found else values,
                         [change.index for change in found])  # fmt: skip
        long = [part for part in parts if part.size > LEAST_BEFORE]
        levels[kind] += [part[-_BEFORE:] for part in long[-1:]]
    return tuple(run_noise(own) for own in levels.values())


def _testable(
    segments: Sequence[tuple[int, int, int]], arrays: Sequence[Values]
) -> list[tuple[int, int, int]]:
    return [
        (number, begin, end)
        for number, begin, end in segments
        if end - begin >= (LEAST_BEFORE + 1 if end == arrays[number].size else 2 * LEAST_SEGMENT)
    ]


def _accepted(p_values: Sequence[float], level: float) -> float:
    """The largest p-value up to which Benjamini and Hochberg's procedure rejects; 0: none."""
    ordered = np.sort(p_values)
    limits = level * np.arange(1, ordered.size + 1) / max(1, ordered.size)
    below = np.flatnonzero(ordered <= limits)
    return float(limits[below[-1]]) if below.size else 0.0


def _tested(
    segments: Sequence[tuple[int, int, int]], arrays: Sequence[Values], kinds: Sequence[int]
) -> list[tuple[int, float]]:
    """Most likely place of a change and its p-value, for each segment (series, begin, end)."""
    candidates: list[list[tuple[float, range, int]]] = []
    last: dict[int, list[tuple[int, Values, float]]] = {}
    for place, (which, begin, end) in enumerate(segments):
        is_last = end == arrays[which].size
        segment = arrays[which][begin:end]
        own, inflation = _by_ranks(segment, is_last)
        candidates.append(own)
        if is_last:
            last.setdefault(kinds[which], []).append((place, segment[-_BEFORE:], inflation))
    for same in last.values():
        places, recent, inflations = zip(*same, strict=True)
        for place, step in zip(places, latest_steps(recent, inflations), strict=True):
            size = segments[place][2] - segments[place][1]
            candidates[place].append((step.p_value, _around_step(step, size), size))
    found = []
    for (which, begin, end), own in zip(segments, candidates, strict=True):
        p_value, around, until = min(own, key=lambda one: one[0])
        place = begin + _place(arrays[which][begin:end][:until], around)
        found.append((place, min(1.0, len(own) * p_value)))
    return found


def _around_step(step: LatestStep, size: int) -> range:
    """Places at which the first value after a step may be."""
    most = max(step.after + 1, step.after * 3 // 2)
    return range(max(LEAST_BEFORE, size - most), size - max(1, step.after // 2) + 1)


def _by_ranks(segment: Values, is_last: bool) -> tuple[list[tuple[float, range, int]], float]:
    """The p-values of E-divisive and of the latest values' ranks, with the splits at which the
    change may be and the end of the values after it; and the inflation of the variance of means."""
    order, size = _ranks(segment), segment.size
    candidates: list[tuple[float, range, int]] = []
    inflation = 1.0
    if size >= 2 * LEAST_SEGMENT:
        statistic, split, last = _largest(order)
        inflation = variance_inflation(order, split)
        null = null_distribution(_grid_length(size))
        around = range(max(LEAST_SEGMENT, split - _AROUND),
                       min(last - LEAST_SEGMENT, split + _AROUND) + 1)  # fmt: skip
        candidates.append((null.p_value(statistic / inflation), around, last))
    if is_last and size >= 2 * LATEST[0]:
        around = range(max(LATEST[0], size - 2 * LATEST[-1]), size - LATEST[0] + 1)
        candidates.append((_latest_p_value(order, inflation), around, size))
    return candidates, inflation


def _place(values: Values, splits: range) -> int:
    """The one of `splits` with the largest energy distance between the values on either side, of
    which the nearest count. It is that of the values: for ranks, the highest of the lower level are
    as far from the rest as those of the higher level, so that the split is often too early."""
    begin = max(0, splits[0] - _AROUND)
    window = values[begin : splits[-1] + _AROUND]
    sums = np.abs(np.subtract.outer(window, window)).cumsum(axis=0).cumsum(axis=1)
    left = np.array(splits) - begin
    right = window.size - left
    own, both = sums[left - 1, left - 1], sums[left - 1, -1]
    across = 2 * (both - own) / (left * right)
    apart = across - own / left**2 - (sums[-1, -1] - 2 * both + own) / right**2
    return int(splits[int((apart * left * right).argmax())])


def _ranks(values: Values) -> npt.NDArray[np.intp]:
    """Ranks from 0. Equal values are ranked at random: without a change every order of them is as
    likely as in the permutations."""
    jitter = np.random.default_rng(_SEED).permutation(values.size)
    ranks = np.empty(values.size, dtype=np.intp)
    ranks[np.lexsort((jitter, values))] = np.arange(values.size)
    return ranks


def variance_inflation(ranks: npt.NDArray[np.intp], split: int) -> float:
    """How much more means of neighbouring values vary than those of independent ones: (1 + r) /
    (1 - r) for a series whose neighbours correlate with r (AR(1); Bartlett, JRSS 98, 1935); at
    least 1.

    r is the smaller of two estimates, as a change of level makes either of them too large in its
    own way: the correlation within the two parts at `split`, with Kendall's correction for short
    series (Biometrika 41, 1954), which other changes in these enlarge; and one read from the mean
    squares of the differences between values one and two places apart, whose ratio is 1 + r, which
    varies more.
    """
    values = ranks.astype(np.float64)
    one, two = (float(np.mean((values[lag:] - values[:-lag]) ** 2)) for lag in (1, 2))
    by_differences = two / one - 1
    parts = [_ranks(part) + 0.5 for part in (values[:split], values[split:])]
    centred = [part / part.size - 0.5 for part in parts]
    products = sum(float(part[:-1] @ part[1:]) for part in centred)
    within = products / sum(float(part @ part) for part in centred)
    within += 2 * (1 + 3 * max(within, 0.0)) / values.size
    r = min(max(min(by_differences, within), 0.0), 0.95)
    return (1 + r) / (1 - r)


def _latest_p_value(ranks: npt.NDArray[np.intp], inflation: float) -> float:
    """The smallest two-sided p-value of the rank-sum test of the latest values against those before
    them, for all of :data:`LATEST` together. Correlated neighbours count as fewer values: the
    normal score of the p-value is divided by the root of `inflation`."""
    best, tests = 1.0, 0
    for count in LATEST:
        before = ranks[max(0, ranks.size - count - _BEFORE) : ranks.size - count]
        if before.size < count:
            break
        tests += 1
        above = int((before[:, None] < ranks[ranks.size - count :]).sum())
        extreme = min(above, before.size * count - above)
        best = min(best, 2 * float(rank_sum_chances(before.size, count)[extreme]))
    if inflation > 1 and 0 < best < 1:
        normal = NormalDist()
        best = 2 * normal.cdf(normal.inv_cdf(best / 2) / math.sqrt(inflation))
    return min(1.0, tests * best)


@dataclass(frozen=True, slots=True)
class NullDistribution:
    """The largest statistic of segments of one length without a change."""

    ordered: Values
    """Statistics of the permutations, ascending."""
    threshold: float
    """The statistic from which the tail is extrapolated."""
    rate: float
    """Rate of the exponential tail."""

    def p_value(self, statistic: float) -> float:
        """Probability of a statistic this large or larger without a change."""
        if statistic > self.threshold:
            return _TAIL * math.exp(-self.rate * (statistic - self.threshold))
        larger = self.ordered.size - int(np.searchsorted(self.ordered, statistic))
        return (larger + 1) / (self.ordered.size + 1)


@lru_cache(maxsize=64)
def null_distribution(length: int) -> NullDistribution:
    """The distribution for segments of `length` values, from permutations with a fixed seed."""
    random = np.random.default_rng([_SEED, length])
    found = np.sort([_largest(random.permutation(length))[0] for _ in range(_PERMUTATIONS)])
    threshold = float(np.quantile(found, 1 - _TAIL))
    excess = found[found > threshold] - threshold
    return NullDistribution(found, threshold, 1 / float(excess.mean()))


def _grid_length(length: int) -> int:
    """Smallest length of the grid that is at least `length`."""
    grid = 2 * LEAST_SEGMENT
    while grid < length:
        grid = math.ceil(grid * _GRID)
    return min(grid, max(length, MOST_VALUES))


def _largest(ranks: npt.NDArray[np.intp]) -> tuple[float, int, int]:
    """The largest statistic of a segment, the split at which it is reached, and the end of the
    values after it. Of more than :data:`_PLACES` values only every second, third ... place is
    tried, and the ranks are rounded in the same way.

    The energy distance of ranks is twice Cramér and von Mises' distance of their distribution
    functions. With S(t, e) the mean, over all ranks, of the product of the sums of the centred
    functions of the first t and of the first e values, the statistic
    t (e - t) / e · E(values before t, values from t to e) is twice
    e / (t (e - t)) S(t, t) - 2 / (e - t) S(t, e) + t / (e (e - t)) S(e, e).
    """
    (rows, columns, ends), (expected, before, both, after) = _weights(ranks.size)
    counts = np.bincount(rows + columns[ranks], minlength=expected.size).reshape(expected.shape)
    sums = counts.cumsum(axis=0).cumsum(axis=1) - expected
    products = sums @ sums.T
    own = products.diagonal()
    statistics = before * own[:, None] - both * products
    statistics += after * own[None, :]
    split, end = divmod(int(statistics.argmax()), len(ends))
    return float(statistics[split, end]), int(ends[split]), int(ends[end])


@lru_cache(maxsize=128)
def _weights(length: int) -> tuple[list[npt.NDArray[np.intp]], list[Values]]:
    """What the statistic of a length needs.

    Returns:
        Of each value the place in front of which it counts, times the number of columns; of each
        rank the column from which on it counts; the places that are tried, as numbers of values
        before them. Sums of the distribution functions, places × columns, without a change; and
        the weights of S(t, t), S(t, e) and S(e, e), places × places, zero where a part is too
        short.
    """
    step = -(-length // _PLACES)
    ends = np.append(np.arange(step, length, step), length)
    columns = np.arange(length) // step
    shares = np.append(np.arange(step, length, step), length) / length
    split, end = ends[:, None].astype(np.float64), ends[None, :].astype(np.float64)
    allowed = (split >= LEAST_SEGMENT) & (end - split >= LEAST_SEGMENT)
    size = np.where(allowed, end - split, np.inf) * ends.size
    rows = np.minimum(np.arange(length) // step, ends.size - 1) * ends.size
    weights = [split * shares, end / (split * size), 2 / size, split / (end * size)]
    return [rows, columns, ends], weights


@dataclass(frozen=True, slots=True)
class StepPower:
    """Power to find a step at the end of one of several series."""

    share: float
    """Share of cases, 0 to 1."""
    after: int
    """Runs after the step that this takes at most."""


def step_power(
    size: int, variance: float, noise: RunNoise, shift: float, *, tested: int, margin: float,
    most_after: int = LEAST_SEGMENT, false_alarms: float = FALSE_ALARMS,
) -> StepPower:  # fmt: skip
    """How often a step of `shift` would be found at the end of a series of `size` values with
    `variance`, among `tested` series, and shown to be larger than `margin`, by the step test alone.

    The step has the number of runs after it, at most `most_after` and half of all, with which it is
    found most often.
    """
    size = min(size, _BEFORE)
    counts = [after for after in STEPS if size - after >= LEAST_BEFORE]
    level = FIRST_LEVEL * false_alarms / tested
    others = (size >= 2 * LEAST_SEGMENT) + (size >= 2 * LATEST[0])
    best = StepPower(0.0, 0)
    for after in counts:
        if after > min(most_after, max(1, size // 2)):
            break
        share = noise.power(shift, variance, size - after, after,
                            p_value=level / len(counts) / (1 + others), margin=margin,
                            confidence=1 - level)  # fmt: skip
        best = max(best, StepPower(share, after), key=lambda one: one.share)
    return best


MOST_POINTS = 600
"""Maximum number of points to compare in pairs; of more, evenly spaced ones in the order of x: the
pairs of 600 give the slope to about 1/20 of the spread of single slopes."""


@dataclass(frozen=True, slots=True)
class Slope:
    """Change of y per unit of x."""

    estimate: float
    interval: Interval | None
    """Interval; None where there are too few points for the confidence."""
    points: int


def theil_sen(x: Samples, y: Samples, confidence: float = 0.95) -> Slope | None:
    """Median slope over all pairs of points with different x; None without such a pair.

    The interval lies between two of these slopes and is the inverse of Kendall's test, with the
    variance for ties in x (Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau",
    JASA 63, 1968, sections 6 and 7). It assumes independent points.

    Raises:
        ValueError: x and y have different lengths, or the confidence is not in (0, 1).
    """
    check_confidence(confidence)
    left, right = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if left.size != right.size:
        raise ValueError(f"{left.size} values of x, but {right.size} of y")
    count = left.size
    if count > MOST_POINTS:
        order = np.argsort(left, kind="stable")
        kept = order[np.linspace(0, count - 1, MOST_POINTS).round().astype(np.int64)]
        left, right, count = left[kept], right[kept], MOST_POINTS
    first, second = np.triu_indices(count, 1)
    gaps = left[second] - left[first]
    distinct = gaps != 0
    slopes = np.sort((right[second] - right[first])[distinct] / gaps[distinct])
    if not slopes.size:
        return None
    return Slope(float(np.median(slopes)), _interval(slopes, left, confidence), count)


def _interval(slopes: Values, x: Values, confidence: float) -> Interval | None:
    count = x.size
    if count < minimum_samples(confidence):
        return None
    ties = np.unique(x, return_counts=True)[1]
    variance = (
        count * (count - 1) * (2 * count + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()
    ) / 18
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(variance)
    low = math.floor((slopes.size - reach) / 2)
    if low < 0:
        return None
    return float(slopes[low]), float(slopes[slopes.size - 1 - low])
