"""Tests by signs and ranks, which assume no shape of the distribution, with shifts and intervals.

Null distributions are exact, that of ranks up to :data:`EXACT_UP_TO` values (counted by
convolution), with a normal approximation beyond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from gemmetry.statistics.intervals import Interval, check_confidence, median_interval
from gemmetry.statistics.quantiles import Samples

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
    """None where there are too few values for the confidence."""
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
    values = _checked(differences)
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
    left, right = _checked(a), _checked(b)
    sizes = left.size, right.size
    gaps = np.sort(np.subtract.outer(right, left).ravel())
    interval = None
    if min(sizes) >= minimum_a_side(confidence):
        rank = _interval_rank(*sizes, confidence)
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
    both = [(_checked(a), _checked(b)) for a, b in strata if len(a) and len(b)]
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
    """How many of the ordered gaps may be cut off at each end, plus one; 0: none may."""
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


def _interval_rank(first: int, second: int, confidence: float) -> int:
    """How many of the ordered gaps may be cut off at each end, plus one."""
    tail = (1 - confidence) / 2
    if first + second <= EXACT_UP_TO:
        chances = np.cumsum(_gap_chances(first, second))
        return max(1, int(np.searchsorted(chances, tail * (1 + 1e-12), side="right")))
    middle, spread = _gaps_below(first, second)
    return max(1, math.floor(middle + NormalDist().inv_cdf(tail) * spread))


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


def _checked(samples: Samples) -> Values:
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("a side has nothing to compare")
    return values
