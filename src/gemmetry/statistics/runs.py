"""The noise of nightly runs, as many series show it together, and steps at the end of a series.

A history has one run each night of many dispatches, and asks whether the latest few differ from
those before. Five runs of one dispatch say little about their spread, and nothing about how often a
run is far off; the runs of all dispatches do. :func:`latest_steps` is Student's test with a
variance shrunk towards that of all series (Smyth, "Linear Models and Empirical Bayes Methods for
Assessing Differential Expression in Microarray Experiments", Statistical Applications in Genetics
and Molecular Biology 3, 2004), whose tail is that of the same statistic of earlier runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gemmetry.domain.tables import grouped
from gemmetry.statistics.intervals import Interval

Values = npt.NDArray[np.float64]
Variance = TypeVar("Variance", float, Values)

STEPS = (1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 20)
"""Numbers of latest runs that are compared with the runs before them."""

LEAST_BEFORE = 3
"""Minimum number of runs before a step."""

_TAIL = 0.1
"""Share of the earlier statistics to which a tail is fitted."""

_LEAST_IN_TAIL = 12
"""Statistics in that tail; of fewer, no tail can be estimated, and noise is taken to be normal."""

_SMALLEST = 1e-18
"""Minimum variance of logarithms: steps of 1e-9 are the resolution of a median in ns."""

_MOST_DEGREES = 1e6
_TRUST = 0.1
"""Chance of more dispersed variances at which the worth of the common one is read, so that few
series are trusted little."""


def student_quantile(share: float, degrees: int) -> float:
    """The value below which `share` (0.5 to 1) of Student's distribution lies, to 12 digits, by
    bisection.

    Raises:
        ValueError: a share outside [0.5, 1), or no degrees of freedom.
    """
    if not 0.5 <= share < 1 or degrees < 1:
        raise ValueError(f"no quantile of {share} with {degrees} degrees of freedom")
    low, high = 0.0, 1.0
    while _student_below(high, degrees) < share:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if _student_below(middle, degrees) < share:
            low = middle
        else:
            high = middle
    return high


def _student_below(value: float, degrees: int) -> float:
    """Share of Student's distribution below `value` >= 0 (Abramowitz & Stegun 26.7.3 and 26.7.4:
    finite sums for whole degrees of freedom)."""
    angle = math.atan2(value, math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    total, term = 0.0, cosine if degrees % 2 else 1.0
    for k in range(degrees % 2, degrees - 1, 2):
        total += term
        term *= cosine**2 * (k + 1) / (k + 2)
    inside = 2 * (angle + sine * total) / math.pi if degrees % 2 else sine * total
    return 0.5 + inside / 2


@dataclass(frozen=True, slots=True)
class NoiseTail:
    """Frequency of extreme scores of unchanged runs: normally, or as observed."""

    threshold: float = math.inf
    """The score that a share of :data:`_TAIL` exceeds; infinite: normal noise is assumed."""
    scale: float = 1.0
    shape: float = 0.0
    """Shape of the generalised Pareto distribution of the tail (Pickands, Annals of Statistics 3,
    1975); 0: an exponential tail."""

    def p_value(self, score: float) -> float:
        """Two-sided p-value of a score, at least that of a normal one."""
        size = abs(score)
        normal = 2 * NormalDist().cdf(-size)
        if size <= self.threshold:
            return normal
        excess, shape = (size - self.threshold) / self.scale, self.shape
        tail = (1 + shape * excess) ** (-1 / shape) if shape else math.exp(-excess)
        return max(normal, _TAIL * tail)

    def score(self, p_value: float) -> float:
        """The least score (above 0) with at most this two-sided p-value."""
        normal = -NormalDist().inv_cdf(max(p_value, 1e-300) / 2)
        if math.isinf(self.threshold) or p_value >= _TAIL:
            return normal
        share = _TAIL / max(p_value, 1e-300)
        excess = math.log(share) if not self.shape else (share**self.shape - 1) / self.shape
        return max(normal, self.threshold + self.scale * excess)


@dataclass(frozen=True, slots=True)
class RunNoise:
    """The noise of single runs (logarithms), as all series of one kind show it together."""

    variance: float = 0.0
    """Common to all series."""
    degrees: float = 0.0
    """Degrees of freedom of the common estimate, next to a series' own; 0: no common estimate."""
    tail: NoiseTail = NoiseTail()

    def shrunk(self, variance: Variance, degrees: float) -> tuple[Variance, float]:
        """A series' own variance shrunk towards the common one, and its degrees of freedom."""
        total = min(self.degrees + degrees, _MOST_DEGREES)
        common = self.degrees / (self.degrees + degrees)
        return np.maximum(common * self.variance + (1 - common) * variance, _SMALLEST), total

    def interval(self, before: Values, after: Values, confidence: float) -> Interval | None:
        """Interval for the mean of `after` less that of `before`; None where nothing is known of
        the spread, or fewer than :data:`LEAST_BEFORE` runs are before."""
        own = before.size + after.size - 2
        if before.size < LEAST_BEFORE or not after.size:
            return None
        squares = sum(float(((side - side.mean()) ** 2).sum()) for side in (before, after))
        variance, degrees = self.shrunk(squares / own, own)
        reach = student_of_score(self.tail.score(1 - confidence), degrees)
        reach *= math.sqrt(variance * (1 / before.size + 1 / after.size))
        shift = float(after.mean() - before.mean())
        return shift - reach, shift + reach

    def power(
        self, shift: float, variance: float, before: int, after: int, *, p_value: float,
        margin: float, confidence: float,
    ) -> float:  # fmt: skip
        """Probability that a step of `shift` (logarithm) has a p-value of at most `p_value` and an
        interval with `confidence` beyond `margin` (normal approximation of the noncentral t
        distribution; Johnson & Welch, Biometrika 31, 1940)."""
        variance, degrees = self.shrunk(variance, before + after - 2)
        unit = math.sqrt(variance * (1 / before + 1 / after))
        significant, sure = (
            student_of_score(self.tail.score(one), degrees) for one in (p_value, 1 - confidence)
        )
        needed = max(significant, sure + margin / unit)
        beyond = abs(shift) / unit - needed * (1 - 1 / (4 * degrees))
        return NormalDist().cdf(beyond / math.sqrt(1 + needed**2 / (2 * degrees)))


@dataclass(frozen=True, slots=True)
class LatestStep:
    """The most significant step at the end of one series."""

    p_value: float
    """Over all of :data:`STEPS` together; 1: none was tested."""
    after: int
    """Runs after the step; 0: none was tested."""


def latest_steps(series: Sequence[Values], inflations: Sequence[float]) -> list[LatestStep]:
    """Compare the latest 1, 2, 3 ... runs of each of `series` (logarithms of one kind of times)
    with the runs before them.

    The statistic is Student's for two means, with a variance shrunk towards that of all series. Its
    p-value is that of a normal score, and at least what the same statistic of windows of as many
    earlier runs shows: these contain how often runs are far off, and how much neighbours resemble
    each other. Where all series together have too few earlier runs for that, noise is taken to be
    normal. The newest run and most of the latest ones have to differ by half the step, so that one
    run that was far off is no step once the level has returned.

    Args:
        series: values in the order of time, without gaps.
        inflations: of each, the factor by which the variance of means is larger than that of
            independent runs.
    """
    sizes, blocks = _by_size(series)
    found = [LatestStep(1.0, 0)] * len(series)
    tests = {size: sum(size - after >= LEAST_BEFORE for after in STEPS) for size in sizes}
    for after in STEPS:
        ready = {size: rows for size, rows in blocks.items() if size - after >= LEAST_BEFORE}
        if not ready:
            break
        noise, scores = _noise_of(ready, sizes, inflations, after)
        for size, own in scores.items():
            for number, score in zip(sizes[size], own.tolist(), strict=True):
                p_value = min(1.0, tests[size] * noise.tail.p_value(score))
                if p_value < found[number].p_value:
                    found[number] = LatestStep(p_value, after)
    return found


def run_noise(series: Sequence[Values]) -> RunNoise:
    """The noise of runs around the levels of `series`, each of which has one level."""
    sizes, blocks = _by_size([values for values in series if values.size > LEAST_BEFORE])
    return _noise_of(blocks, sizes, [1.0] * len(series), 1)[0]


def _by_size(series: Sequence[Values]) -> tuple[dict[int, list[int]], dict[int, Values]]:
    """The numbers of the series of each length, and their values."""
    sizes = grouped(range(len(series)), lambda number: series[number].size)
    return sizes, {size: np.array([series[n] for n in own]) for size, own in sizes.items()}


def _noise_of(
    blocks: Mapping[int, Values], members: Mapping[int, Sequence[int]],
    inflations: Sequence[float], after: int,
) -> tuple[RunNoise, dict[int, Values]]:  # fmt: skip
    """Noise over all `blocks`, each the series of one length, and scores of their latest runs."""
    sides = {size: _latest_sides(rows, after) for size, rows in blocks.items()}
    variances = [(shown[1], size - 2.0) for size, shown in sides.items()]
    common = _common_variance(variances)
    earlier, scores = [], {}
    for size, rows in blocks.items():
        root = np.sqrt([inflations[number] for number in members[size]])
        gaps, own, consistent = sides[size]
        scores[size] = np.where(
            consistent, _scores(common, gaps, own, after, size - after) / root, 0.0
        )
        if size - 2 * after >= LEAST_BEFORE:
            gaps, own = _window_sides(rows[:, : size - after], after)
            shown = _scores(common, gaps, own, after, size - 2 * after) / root[:, None]
            earlier.append(np.abs(shown).ravel())
    tail = _tail_of(np.concatenate(earlier)) if earlier else NoiseTail()
    return RunNoise(common.variance, common.degrees, tail), scores


def _latest_sides(rows: Values, after: int) -> tuple[Values, Values, npt.NDArray[np.bool_]]:
    """Excess of the mean of each row's latest runs, the variance within both sides, and whether the
    newest and most of the latest differ by half of that."""
    old, new = rows[:, :-after], rows[:, -after:]
    means = old.mean(axis=1, keepdims=True), new.mean(axis=1, keepdims=True)
    squares = ((old - means[0]) ** 2).sum(axis=1) + ((new - means[1]) ** 2).sum(axis=1)
    gaps = means[1] - means[0]
    beyond = (new - means[0]) * np.sign(gaps) >= np.abs(gaps) / 2
    consistent = beyond[:, -1] & (2 * beyond.sum(axis=1) > after)
    return gaps[:, 0], squares / (rows.shape[1] - 2), consistent


def _window_sides(rows: Values, width: int) -> tuple[Values, Values]:
    """Excess of each window of `width` runs of each row over the mean of all other runs, and the
    variance within both."""
    size = rows.shape[1]
    centred = rows - rows.mean(axis=1, keepdims=True)
    sums, squares = (
        np.concatenate([np.zeros((rows.shape[0], 1)), one.cumsum(axis=1)], axis=1)
        for one in (centred, centred**2)
    )
    inside = sums[:, width:] - sums[:, :-width]
    outside, others = sums[:, -1:] - inside, size - width
    within = squares[:, -1:] - inside**2 / width - outside**2 / others
    return inside / width - outside / others, np.maximum(within, 0) / (size - 2)


def _scores(common: RunNoise, gaps: Values, variances: Values, after: int, before: int) -> Values:
    """Normal scores of Student's statistics with shrunk variances."""
    shrunk, total = common.shrunk(variances, after + before - 2)
    statistics = gaps / np.sqrt(shrunk * (1 / after + 1 / before))
    return np.asarray(np.sign(gaps) * _wallace(total) * np.sqrt(
        total * np.log1p(statistics**2 / total)
    ))  # fmt: skip


def _wallace(degrees: float) -> float:
    """The factor of Wallace's normal approximation of Student's distribution (Annals of
    Mathematical Statistics 30, 1959): z = (8 d + 1) / (8 d + 3) sqrt(d log(1 + t² / d))."""
    return (8 * degrees + 1) / (8 * degrees + 3)


def student_of_score(score: float, degrees: float) -> float:
    """The value of Student's distribution that is as extreme as a normal `score` (Wallace)."""
    exponent = (score / _wallace(degrees)) ** 2 / degrees
    return math.copysign(math.sqrt(degrees * math.expm1(min(exponent, 700.0))), score)


def _tail_of(scores: Values) -> NoiseTail:
    """The tail of the sizes of `scores`: a generalised Pareto distribution by probability-weighted
    moments (Hosking & Wallis, Technometrics 29, 1987), no shorter than exponential."""
    count = int(_TAIL * scores.size)
    if count < _LEAST_IN_TAIL:
        return NoiseTail()
    ordered = np.sort(scores)
    threshold = float(ordered[-count - 1])
    excess = ordered[-count:] - threshold
    mean = float(excess.mean())
    weighted = float((excess * (np.arange(count, 0, -1) - 0.65) / count).mean())
    if mean <= 0:
        return NoiseTail()
    shape = max(0.0, 2 - mean / max(mean - 2 * weighted, 1e-12))
    return NoiseTail(threshold, mean * (1 - min(shape, 0.9)), min(shape, 0.9))


def _common_variance(variances: Sequence[tuple[Values, float]]) -> RunNoise:
    """The variance that all series have in common and how much it is worth, by the moments of the
    logarithms of their own (Smyth 2004, section 6.2).

    Args:
        variances: arrays of variances, each with their degrees of freedom.
    """
    parts, expected, total = [], 0.0, 0.0
    for own, degrees in variances:
        known = own[own > _SMALLEST]
        parts.append(np.log(known) - _digamma(degrees / 2) + math.log(degrees / 2))
        expected += known.size * _trigamma(degrees / 2)
        total += known.size * degrees
    logs = np.concatenate(parts) if parts else np.empty(0)
    count = logs.size
    if count < 2:
        return RunNoise()
    part = 2 / (9 * (count - 1))
    lowest = 1 - part + NormalDist().inv_cdf(_TRUST) * math.sqrt(part)
    # Wilson & Hilferty's quantile of chi-square gives the upper limit of the dispersion.
    dispersion = float(logs.var(ddof=1)) / max(lowest, 0.05) ** 3 - expected / count
    degrees = 2 * _trigamma_inverse(dispersion) if dispersion > 0 else math.inf
    degrees = min(degrees, total, _MOST_DEGREES)
    mean = float(logs.mean()) + _digamma(degrees / 2) - math.log(degrees / 2)
    return RunNoise(math.exp(mean), degrees)


def _digamma(value: float) -> float:
    """Abramowitz & Stegun 6.3.5 and 6.3.18."""
    shift = 0.0
    while value < 8:
        shift -= 1 / value
        value += 1
    square = 1 / value**2
    series = square * (1 / 12 - square * (1 / 120 - square / 252))
    return shift + math.log(value) - 0.5 / value - series


def _trigamma(value: float) -> float:
    """Abramowitz & Stegun 6.4.6 and 6.4.12."""
    shift = 0.0
    while value < 8:
        shift += 1 / value**2
        value += 1
    square = 1 / value**2
    series = square / value * (1 / 6 - square * (1 / 30 - square / 42))
    return shift + 1 / value + square / 2 + series


def _trigamma_inverse(value: float) -> float:
    """The positive number whose trigamma is `value`, by bisection of its logarithm."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _trigamma(math.exp(middle)) > value else (low, middle)
    return math.exp((low + high) / 2)
