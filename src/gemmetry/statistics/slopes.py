"""The slope of one quantity over another, by medians, which outliers do not move."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from gemmetry.statistics.intervals import Interval, check_confidence, minimum_samples
from gemmetry.statistics.quantiles import Samples

MOST_POINTS = 600
"""Points of which all pairs are compared; of more, evenly spaced ones in the order of x: the pairs
of 600 give the slope to about 1/20 of the spread of single slopes."""


@dataclass(frozen=True, slots=True)
class Slope:
    """Change of y per unit of x."""

    estimate: float
    interval: Interval | None
    """None where there are too few points for the confidence."""
    points: int


def theil_sen(x: Samples, y: Samples, confidence: float = 0.95) -> Slope | None:
    """The median of the slopes of all pairs of points with different x; None if there is no such
    pair.

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


def _interval(
    slopes: np.ndarray[tuple[int], np.dtype[np.float64]],
    x: np.ndarray[tuple[int], np.dtype[np.float64]],
    confidence: float,
) -> Interval | None:
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
