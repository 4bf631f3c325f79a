"""Tests by signs and ranks, which assume no shape of the distribution, with shifts and intervals.

Null distributions are exact, that of ranks up to :data:`EXACT_UP_TO` values and given the ties that
occurred (counted by convolution), with a normal approximation beyond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from gemmetry.statistics.intervals import median_interval
from gemmetry.statistics.quantiles import Samples

EXACT_UP_TO = 60
"""Values (of both sides together) up to which null distributions are counted out; the normal
approximation is then right to three decimals at the levels used here."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift between two sides, estimated and tested."""

    estimate: float
    low: float
    high: float
    p_greater: float
    """Chance of signs or ranks this high or higher if the shift were at most the margin."""
    p_less: float
    """Chance of signs or ranks this low or lower if the shift were at least minus the margin."""


def sign_shift(differences: Samples, *, confidence: float, margin: float = 0.0) -> Shift:
    """Shift of paired differences: the sign test with the median of the differences.

    The interval lies between two of the differences and is the test turned around (Hollander, Wolfe
    & Chicken, "Nonparametric Statistical Methods", 3rd ed. 2014, sections 3.4-3.6). All it takes is
    that under no shift either side is ahead with the same chance, which pairs have whose two sides
    come in random order. Wilcoxon's signed ranks would need fewer pairs where the differences are
    normally distributed, and more where a part of them is far off, as ratios of rounds are when the
    clock changes in between: of 24 rounds of an 8192³ product on an H200 at its power limit the
    sign test finds a difference in 80 % of cases in which signed ranks find it in 68 %. Differences
    equal to the margin are left out.

    Args:
        differences: b - a of each pair.
        confidence: of the interval; too few pairs for it give [min, max].
        margin: shifts up to this size, to either side, count as none (>= 0).

    Raises:
        ValueError: no differences.
    """
    values = _checked(differences)
    low, high = median_interval(values, confidence)
    return Shift(
        estimate=float(np.median(values)),
        low=low,
        high=high,
        p_greater=_sign_p(values - margin),
        p_less=_sign_p(-values - margin),
    )


def rank_sum_shift(a: Samples, b: Samples, *, confidence: float, margin: float = 0.0) -> Shift:
    """Shift from a to b, unpaired: Mann and Whitney's rank-sum test with the Hodges-Lehmann
    estimate, the median of all differences between the sides (Hollander, Wolfe & Chicken 2014,
    sections 4.1-4.3). The arguments are those of :func:`sign_shift`.

    Raises:
        ValueError: a side has no values.
    """
    left, right = _checked(a), _checked(b)
    gaps = np.sort(np.subtract.outer(right, left).ravel())
    rank = _interval_rank(left.size, right.size, confidence)
    return Shift(
        estimate=float(np.median(gaps)),
        low=float(gaps[rank - 1]),
        high=float(gaps[gaps.size - rank]),
        p_greater=_rank_sum_p(left, right - margin),
        p_less=_rank_sum_p(-left, -right - margin),
    )


def holm(p_values: list[float]) -> list[float]:
    """Adjusted p-values that hold the chance of *any* false alarm in the family: Holm, "A Simple
    Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6, 1979.
    It assumes nothing about how the tests depend on each other."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _sign_p(differences: Values) -> float:
    """P(as many positive differences or more), no shift given."""
    kept = differences[differences != 0]
    above, total = int((kept > 0).sum()), int(kept.size)
    return float(sum(math.comb(total, count) for count in range(above, total + 1)) / 2**total)


def _rank_sum_p(left: Values, right: Values) -> float:
    """P(the ranks of the right side sum to this or more), no shift given."""
    ranks = _doubled_ranks(np.concatenate([left, right]))
    observed = int(ranks[left.size :].sum())
    total = ranks.size
    if total <= EXACT_UP_TO:
        chances = _sums_of_size(tuple(ranks.tolist()), right.size)
        return float(chances[observed:].sum())
    mean = right.size * ranks.mean()
    variance = left.size * right.size / (total - 1) * float(ranks.var())
    return _upper_tail(observed, mean, variance)


def _interval_rank(first: int, second: int, confidence: float) -> int:
    """How many of the ordered gaps may be cut off at each end, plus one."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")
    tail, total = (1 - confidence) / 2, first + second
    if total <= EXACT_UP_TO:
        # Of doubled ranks only even sums occur; the least is that of the lowest ranks.
        chances = _sums_of_size(tuple(range(2, 2 * total + 1, 2)), second)[::2]
        chances = chances[second * (second + 1) // 2 :]
        return max(1, int(np.searchsorted(np.cumsum(chances), tail * (1 + 1e-12), side="right")))
    spread = math.sqrt(first * second * (total + 1) / 12)
    return max(1, math.floor(first * second / 2 + NormalDist().inv_cdf(tail) * spread))


def _upper_tail(observed: int, mean: float, variance: float) -> float:
    if variance == 0:
        return 1.0
    # Ranks are doubled, so half a rank of continuity correction is 1.
    return 1 - NormalDist().cdf((observed - 1 - mean) / math.sqrt(variance))


def _doubled_ranks(values: Values) -> npt.NDArray[np.int64]:
    """Twice the ranks, ties sharing the mean of theirs; twice, so that they are integers."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((2 * last - counts + 1)[inverse], dtype=np.int64)


@lru_cache(maxsize=256)
def _sums_of_size(ranks: tuple[int, ...], size: int) -> Values:
    """Chance of each sum of a random subset of `ranks` of `size` members."""
    counts = np.zeros((size + 1, sum(ranks) + 1))
    counts[0, 0] = 1.0
    for rank in ranks:
        counts[1:, rank:] += counts[:-1, : counts.shape[1] - rank].copy()
    return np.asarray(counts[size] / counts[size].sum())


def _checked(samples: Samples) -> Values:
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("a side has nothing to compare")
    return values
