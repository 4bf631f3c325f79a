"""Confidence intervals of the median that assume nothing about the shape of the distribution."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from gemmetry.statistics.quantiles import Samples

_EXACT_UP_TO = 2000
"""Samples up to which the binomial sum is computed exactly; its normal approximation is then
within one rank."""


def median_interval(samples: Samples, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of the population's median between two order statistics.

    The number of samples below the median is binomial(n, 1/2) for every continuous distribution,
    so [x₍ⱼ₎, x₍ₙ₊₁₋ⱼ₎] covers it with a known chance; j is the largest rank whose interval has at
    least `confidence` (Conover, "Practical Nonparametric Statistics", 3rd ed., section 3.2).
    Samples must be independent; nothing else is asked of them.

    Too few samples cannot reach the confidence: below :func:`minimum_samples` (6 for 95 %) the
    interval is [min, max], which covers with 1 - 2**(1 - n) (n = 5: 94 %, n = 2: 50 %, n = 1:
    nothing, and the interval is a point). Equal samples give a zero-width interval.

    Raises:
        ValueError: no samples, or a confidence outside (0, 1).
    """
    count = len(samples)
    if count == 0:
        raise ValueError("the median of no samples has no interval")
    rank = _lower_rank(count, confidence)
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    return float(ordered[rank - 1]), float(ordered[count - rank])


def minimum_samples(confidence: float = 0.95) -> int:
    """The least n for which [min, max] covers the median with `confidence`: 1 - 2**(1 - n)."""
    _check(confidence)
    return math.ceil(1 - math.log2(1 - confidence))


@lru_cache(maxsize=4096)
def _lower_rank(count: int, confidence: float) -> int:
    """The largest j >= 1 with P(binomial(count, 1/2) < j) <= (1 - confidence) / 2, at least 1."""
    _check(confidence)
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


def _check(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")
