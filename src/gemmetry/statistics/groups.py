"""Two groups of durations of any sizes compared by ranks, exactly even where one is small."""

from __future__ import annotations

import math

import numpy as np

from gemmetry.statistics.comparison import Comparison, cliffs_delta, verdict_of
from gemmetry.statistics.intervals import check_confidence
from gemmetry.statistics.quantiles import Samples, median
from gemmetry.statistics.ranks import rank_sum_shift

MOST_OF_A_GROUP = 300
"""Larger groups are represented by this many of their quantiles, evenly spaced: all pairs of 300
with 300 are compared, and the normal approximation applies long before."""


def can_differ(first: int, second: int, confidence: float = 0.95) -> bool:
    """Whether groups of these sizes can show a difference: of the C(first + second, first) orders
    that are equally likely without one, the extreme one has to be rare enough."""
    check_confidence(confidence)
    if not first or not second:
        return False
    return 1 / math.comb(first + second, first) <= (1 - confidence) / 2


def compare_groups(
    a: Samples, b: Samples, *, confidence: float = 0.95, relevant: float = 0.0, family: int = 1
) -> Comparison:
    """Compare durations of b with durations of a (same unit, positive) as independent samples.

    The ratio is that of the medians. The interval is Mann and Whitney's of the shift between the
    logarithms (:func:`~gemmetry.statistics.ranks.rank_sum_shift`), widened to the ratio where this
    lies outside, which happens if the groups differ in shape. It needs no minimum of both sides but
    sizes that :func:`can_differ`: 3 against 21 can show a difference.

    Args:
        confidence: of all intervals of the family together (Bonferroni).
        relevant: relative differences up to this count as none (:func:`verdict_of`).
        family: number of comparisons judged together.

    Raises:
        ValueError: a side has no samples, or one is not positive.
    """
    left, right = _logarithms(a), _logarithms(b)
    each = 1 - (1 - confidence) / family
    ratio = median(b) / median(a)
    interval = None
    if can_differ(left.size, right.size, each):
        found = rank_sum_shift(left, right, confidence=each, any_sizes=True).interval
        assert found is not None  # the sizes allow one
        low, high = (math.exp(end) for end in found)
        interval = min(low, ratio), max(high, ratio)
    return Comparison(
        ratio=ratio,
        interval=interval,
        confidence=confidence,
        effect_size=cliffs_delta(a, b),
        verdict=verdict_of(interval, relevant),
        observations=min(len(a), len(b)),
        relevant=relevant,
        family=family,
    )


def _logarithms(samples: Samples) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.asarray(samples, np.float64)
    if not values.size or not (values > 0).all():
        raise ValueError("durations to compare are positive, and there is at least one a side")
    if values.size > MOST_OF_A_GROUP:
        shares = (np.arange(MOST_OF_A_GROUP) + 0.5) / MOST_OF_A_GROUP
        values = np.quantile(values, shares)
    return np.asarray(np.log(values))
