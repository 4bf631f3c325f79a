"""Quantiles of a sample.

Distribution-free confidence intervals of the median.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    that of samples; the variance estimate of R rounds has R - 1 degrees of freedom, for which the
    first term of Student's quantile corrects (Abramowitz & Stegun 26.7.5).

    One round, or rounds of one sample each, give :func:`median_interval`.

    Raises:
        ValueError: no samples, or a confidence outside (0, 1).
    """
    parts = [np.asarray(samples, dtype=np.float64) for samples in rounds if len(samples)]
    samples = np.concatenate(parts) if parts else np.empty(0)
    count = samples.size
    if len(parts) < 2 or count == len(parts):
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
    variance = rounds / (rounds - 1) * float((weights**2 * (shares - 0.5) ** 2).sum())
    normal = NormalDist().inv_cdf((1 + confidence) / 2)
    student = 1 + (normal**2 + 1) / (4 * (rounds - 1))
    design_effect = variance * student**2 / (0.25 / count)
    return float(min(count, max(rounds, count / max(design_effect, 1e-9))))


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
