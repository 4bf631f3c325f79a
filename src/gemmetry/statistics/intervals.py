"""Quantiles of a sample.

Distribution-free confidence intervals of the median.

Tests by signs and ranks, which assume no shape of the distribution, with shifts and intervals: null
distributions are exact, that of ranks up to :data:`EXACT_UP_TO` values (counted by convolution),
with a normal approximation beyond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Samples: TypeAlias = Sequence[float] | npt.NDArray[np.float64]


def quantile(samples: Samples, share: float) -> float:
    """The value below which `share` (0 to 1) of the samples lie, linear between neighbours.

    Definition 7 of Hyndman & Fan, "Sample Quantiles in Statistical Packages", The American
    Statistician 50 (1996): the h-th smallest with h = (n - 1)·share + 1.

    Raises:
        ValueError: no samples, or a share outside [0, 1].
    """
    if len(samples) == 0:
        raise ValueError("no samples have no quantile")
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies between 0 and 1, not at {share}")
    return float(np.quantile(np.asarray(samples, dtype=np.float64), share))


def median(samples: Samples | npt.NDArray[np.int64]) -> float:
    """The middle sample, or the mean of the two middle ones.

    Raises:
        ValueError: no samples.
    """
    if len(samples) == 0:
        raise ValueError("no samples have no median")
    # numpy's own median takes tens of µs, and comparisons of rounds need thousands of medians.
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    middle = len(ordered) // 2
    return float(
        ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    )


Interval: TypeAlias = tuple[float, float]
"""Lower and upper end."""

_EXACT_UP_TO = 2000
"""Samples up to which the binomial sum is computed exactly; its normal approximation is then
within one rank."""


def median_interval(samples: Samples, confidence: float = 0.95) -> Interval | None:
    """The interval of the population's median between two order statistics; None where there are
    too few samples for the confidence.

    The number of samples below the median is binomial(n, 1/2) for every continuous distribution,
    so [x₍ⱼ₎, x₍ₙ₊₁₋ⱼ₎] covers it with a known probability; j is the largest rank whose interval has
    at least `confidence` (Conover, "Practical Nonparametric Statistics", 3rd ed., section 3.2).
    Samples must be independent; nothing else is required of them.

    Even [min, max] covers with no more than 1 - 2**(1 - n) (n = 5: 94 %, n = 2: 50 %, n = 1:
    nothing), so that :func:`minimum_samples` are needed (6 for 95 %). Equal samples, which coarse
    clocks produce, have an interval of zero width.

    Raises:
        ValueError: no samples, or a confidence outside (0, 1).
    """
    count = len(samples)
    if count == 0:
        raise ValueError("the median of no samples has no interval")
    if count < minimum_samples(confidence):
        return None
    rank = _lower_rank(count, confidence)
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    return float(ordered[rank - 1]), float(ordered[count - rank])


SERIES = 12
"""Minimum number of rounds in which dependence between neighbours is counted: in fewer, it may be
chance."""

MOST_DEPENDENT = 0.8
"""Autocorrelation of neighbours that is counted at most: an estimate from few rounds."""


def rounds_interval(
    rounds: Sequence[Samples], confidence: float = 0.95
) -> tuple[Interval | None, float]:
    """The interval of the median of samples taken in rounds, and their effective number of
    independent samples. The interval is None where that number is too small for the confidence
    (:func:`minimum_samples`).

    Samples of one round share the state of the machine, so they carry less information than as many
    independent ones. The ratio is the design effect: the variance, between rounds, of the share of
    samples below the median, over what independent samples would have (Woodruff, "Confidence
    Intervals for Medians and Other Position Measures", JASA 47, 1952; Kish, "Survey Sampling",
    1965, section 8.2). The interval takes the order statistics at the depth that
    :func:`median_interval` has for the effective count. That lies between the number of rounds and
    that of samples, or below both where successive rounds resemble each other: at its power limit a
    GPU's clock swings within tenths of a second. The variance estimate of R rounds has R - 1
    degrees of freedom, for which the first term of Student's quantile corrects (Abramowitz & Stegun
    26.7.5).

    One round, or independent rounds of one sample each, give :func:`median_interval`.

    Raises:
        ValueError: no samples, or a confidence outside (0, 1).
    """
    parts = [np.asarray(samples, dtype=np.float64) for samples in rounds if len(samples)]
    samples = np.concatenate(parts) if parts else np.empty(0)
    count = samples.size
    if len(parts) < 2:
        return median_interval(samples, confidence), float(count)
    effective = _effective_count(parts, samples, confidence)
    whole = int(effective)
    if whole < minimum_samples(confidence):
        return None, effective
    rank = max(1, int(_lower_rank(whole, confidence) / whole * count))
    ordered = np.sort(samples)
    return (float(ordered[rank - 1]), float(ordered[count - rank])), effective


def _effective_count(
    parts: Sequence[npt.NDArray[np.float64]], samples: npt.NDArray[np.float64], confidence: float
) -> float:
    count, rounds = samples.size, len(parts)
    middle = float(np.median(samples))
    # Samples equal to the median count half: coarse clocks produce many of them.
    shares = np.array([(part < middle).mean() + (part == middle).mean() / 2 for part in parts])
    weights = np.array([part.size / count for part in parts])
    parts_of_sum = weights * (shares - 0.5)
    dependence = _dependence(parts_of_sum)
    least = max(rounds / dependence, min(rounds, minimum_samples(confidence)))
    if count == rounds:
        return least
    variance = rounds / (rounds - 1) * float((parts_of_sum**2).sum()) * dependence
    normal = NormalDist().inv_cdf((1 + confidence) / 2)
    student = 1 + (normal**2 + 1) / (4 * (rounds - 1))
    design_effect = variance * student**2 / (0.25 / count)
    return float(min(count, max(least, count / max(design_effect, 1e-9))))


def _dependence(values: npt.NDArray[np.float64]) -> float:
    """How many times the variance of a sum is that of independent addends: (1 + r) / (1 - r) for
    autocorrelations r, r², r³ ... of neighbours at distances 1, 2, 3 ... (Bartlett, JRSS 98, 1935);
    1 where r is negative."""
    own = float(values @ values)
    if values.size < SERIES or own == 0:
        return 1.0
    r = min(max(float(values[1:] @ values[:-1]) / own, 0.0), MOST_DEPENDENT)
    return (1 + r) / (1 - r)


def half_width(interval: Interval | None, median: float) -> float | None:
    """Half the width of a median's interval over the median: 0.005 is ±0.5 %. None where there is
    no interval or the median is not positive."""
    if interval is None or median <= 0:
        return None
    return (interval[1] - interval[0]) / 2 / median


def minimum_samples(confidence: float = 0.95) -> int:
    """The least n for which [min, max] covers the median with `confidence`: 1 - 2**(1 - n)."""
    check_confidence(confidence)
    return math.ceil(1 - math.log2(1 - confidence))


@lru_cache(maxsize=4096)
def _lower_rank(count: int, confidence: float) -> int:
    """The largest j >= 1 with P(binomial(count, 1/2) < j) <= (1 - confidence) / 2, at least 1."""
    check_confidence(confidence)
    tail = (1 - confidence) / 2
    if count > _EXACT_UP_TO:
        below = NormalDist().inv_cdf(tail) * math.sqrt(count) / 2
        return max(1, math.floor(count / 2 + below))
    # Integers: the sum of binomial coefficients is compared without any rounding.
    allowed = int(tail * 2**count) if count < 1000 else math.floor(tail * 2**53) << (count - 53)
    rank, coefficient, cumulative = 0, 1, 1
    while cumulative <= allowed:
        rank += 1
        coefficient = coefficient * (count - rank + 1) // rank
        cumulative += coefficient
    return max(1, rank)


def check_confidence(confidence: float) -> None:
    """Reject an invalid confidence.

    Raises:
        ValueError: the confidence is not in (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, unlike {confidence}")


EXACT_UP_TO = 60
"""Number of values, over both sides, up to which null distributions are computed exactly; the
normal approximation is then right to three decimals at 95 %, and cautious further out, because its
tails are longer."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift between two sides: estimate, interval, and the test whose inverse is the interval.
    The p-values are exact for values without ties; ties count against a difference."""

    estimate: float
    interval: Interval | None
    """Interval; None where there are too few values for the confidence."""
    p_greater: float
    """Probability of signs or ranks this high or higher if the shift were at most the margin; at
    most (1 - confidence) / 2 exactly where the interval lies above the margin."""
    p_less: float
    """Probability of signs or ranks this low or lower if the shift were at least minus the
    margin."""


def sign_shift(differences: Samples, *, confidence: float, margin: float = 0.0) -> Shift:
    """Shift of paired differences: the sign test with the median of the differences.

    The interval lies between two of the differences and is the inverse of the test (Hollander,
    Wolfe & Chicken, "Nonparametric Statistical Methods", 3rd ed. 2014, sections 3.4-3.6). The only
    assumption is that without a shift either side is larger with the same probability, which holds
    for pairs whose two sides run in random order. Wilcoxon's signed ranks would need fewer pairs
    where the differences are normally distributed, and more where some of them are far off, as
    ratios of rounds are when the clock frequency changes in between: of 24 rounds of an 8192³
    product on an H200 at its power limit the sign test finds a difference in 80 % of cases in which
    signed ranks find it in 68 %.

    Args:
        differences: b - a of each pair.
        confidence: of the interval; :func:`minimum_samples` pairs are needed for it.
        margin: shifts up to this size, in either direction, count as none (>= 0).

    Raises:
        ValueError: no differences.
    """
    values = _ranks_checked(differences)
    return Shift(
        estimate=float(np.median(values)),
        interval=median_interval(values, confidence),
        p_greater=_sign_p(values.size, int((values <= margin).sum())),
        p_less=_sign_p(values.size, int((values >= -margin).sum())),
    )


def rank_sum_shift(a: Samples, b: Samples, *, confidence: float, margin: float = 0.0) -> Shift:
    """Shift from a to b, unpaired: Mann and Whitney's rank-sum test with the Hodges-Lehmann
    estimate, the median of all differences between the sides (Hollander, Wolfe & Chicken 2014,
    sections 4.1-4.3). The arguments are those of :func:`sign_shift`; an interval needs
    :func:`minimum_a_side` values per side.

    Raises:
        ValueError: a side has no values.
    """
    left, right = _ranks_checked(a), _ranks_checked(b)
    sizes = left.size, right.size
    gaps = np.sort(np.subtract.outer(right, left).ravel())
    interval = None
    if min(sizes) >= minimum_a_side(confidence):
        rank = max(1, _stratified_rank([sizes], (1 - confidence) / 2))
        interval = float(gaps[rank - 1]), float(gaps[gaps.size - rank])
    return Shift(
        estimate=float(np.median(gaps)),
        interval=interval,
        p_greater=_rank_sum_p(*sizes, int((gaps <= margin).sum())),
        p_less=_rank_sum_p(*sizes, int((gaps >= -margin).sum())),
    )


def stratified_shift(
    strata: Sequence[tuple[Samples, Samples]], confidence: float
) -> tuple[float, Interval | None]:
    """Shift from a to b where only the values of one stratum can be compared: the median of the
    differences within strata, and its interval.

    The interval is the inverse of the rank-sum test whose statistic is the sum over the strata
    (van Elteren, "On the Combination of Independent Two Sample Tests of Wilcoxon", 1960, with equal
    weights). Sides may have any sizes; the interval is None where even the most extreme order of
    all strata is too likely for the confidence without a shift.

    Args:
        strata: a and b of each; those without values on a side do not count.

    Raises:
        ValueError: no stratum has values on both sides.
    """
    check_confidence(confidence)
    both = [(_ranks_checked(a), _ranks_checked(b)) for a, b in strata if len(a) and len(b)]
    if not both:
        raise ValueError("no stratum has values on both sides")
    gaps = np.sort(np.concatenate([np.subtract.outer(b, a).ravel() for a, b in both]))
    sizes = [(a.size, b.size) for a, b in both]
    rank = _stratified_rank(sizes, (1 - confidence) / 2)
    interval = None
    if rank and can_shift(sizes, confidence):
        interval = float(gaps[rank - 1]), float(gaps[gaps.size - rank])
    return float(np.median(gaps)), interval


def can_shift(sizes: Sequence[tuple[int, int]], confidence: float = 0.95) -> bool:
    """Whether strata of these sizes can show a shift: of the C(first + second, first) orders of
    each, equally likely without one, the extreme ones together have to be rare enough."""
    check_confidence(confidence)
    orders = math.prod(math.comb(first + second, first) for first, second in sizes)
    # Without rounding: numbers of orders are soon larger than any float.
    return orders >= math.ceil(2 / (1 - confidence) * (1 - 1e-12))


def _stratified_rank(sizes: Sequence[tuple[int, int]], tail: float) -> int:
    """Number of the ordered gaps that may be cut off at each end, plus one; 0: none may."""
    if sum(map(sum, sizes)) <= EXACT_UP_TO:
        chances = np.ones(1)
        for first, second in sizes:
            chances = np.convolve(chances, _gap_chances(first, second))
        return int(np.searchsorted(np.cumsum(chances), tail * (1 + 1e-12), side="right"))
    middle = sum(_gaps_below(*size)[0] for size in sizes)
    spread = math.sqrt(sum(_gaps_below(*size)[1] ** 2 for size in sizes))
    return max(0, math.floor(middle + NormalDist().inv_cdf(tail) * spread))


def minimum_a_side(confidence: float = 0.95) -> int:
    """The least n for which n values against n can show a shift: of the C(2n, n) orders that are
    equally likely without one, two are the extreme ones (4 for 95 %, 8 for 99.95 %)."""
    check_confidence(confidence)
    tail, count = (1 - confidence) / 2, 1
    while 1 / math.comb(2 * count, count) > tail:
        count += 1
    return count


@lru_cache(maxsize=1024)
def rank_sum_chances(first: int, second: int) -> Values:
    """Probability that at most 0, 1, 2 ... of all gaps between `first` values and `second` others
    are below 0 if there is no shift: the exact distribution function of Mann and Whitney's U."""
    return np.minimum(1.0, np.cumsum(_gap_chances(first, second)))


def _sign_p(total: int, against: int) -> float:
    """P(at most `against` of `total` differences are not beyond the margin) if there is no
    shift."""
    return float(sum(math.comb(total, count) for count in range(against + 1)) / 2**total)


def _rank_sum_p(first: int, second: int, against: int) -> float:
    """P(at most `against` of all gaps between the sides are not beyond the margin) if there is no
    shift."""
    if first + second <= EXACT_UP_TO:
        return float(min(1.0, _gap_chances(first, second)[: against + 1].sum()))
    middle, spread = _gaps_below(first, second)
    return NormalDist().cdf((against + 1 - middle) / spread)


def _gaps_below(first: int, second: int) -> tuple[float, float]:
    """Mean and standard deviation of the number of gaps below 0 if there is no shift."""
    return first * second / 2, math.sqrt(first * second * (first + second + 1) / 12)


@lru_cache(maxsize=256)
def _gap_chances(first: int, second: int) -> Values:
    """Probability of each number of gaps below 0 (Mann and Whitney's U, 0 to first·second) if there
    is no shift: that of each sum of `second` ranks, less the smallest such sum."""
    total = first + second
    counts = np.zeros((second + 1, total * (total + 1) // 2 + 1))
    counts[0, 0] = 1.0
    for rank in range(1, total + 1):
        counts[1:, rank:] += counts[:-1, :-rank].copy()
    least = second * (second + 1) // 2
    found = counts[second, least : least + first * second + 1]
    return np.asarray(found / found.sum())


def _ranks_checked(samples: Samples) -> Values:
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("a side has nothing to compare")
    return values
