"""Two groups of durations of any sizes compared by ranks, also in strata."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gemmetry.statistics.comparison import Comparison, cliffs_delta, verdict_of
from gemmetry.statistics.quantiles import Samples, median
from gemmetry.statistics.ranks import stratified_shift

MOST_OF_A_GROUP = 300
"""Larger groups are represented by this many of their quantiles, evenly spaced: all pairs of 300
with 300 are compared, and the normal approximation applies long before."""


def compare_groups(
    strata: Sequence[tuple[Samples, Samples]],
    *,
    confidence: float = 0.95,
    relevant: float = 0.0,
    family: int = 1,
) -> Comparison:
    """Compare durations of b with durations of a (same unit, positive) within strata, as
    independent samples.

    The interval is that of the shift between the logarithms
    (:func:`~gemmetry.statistics.ranks.stratified_shift`). The ratio of one stratum is that of its
    medians, and the interval is widened to it where it lies outside, which happens if the groups
    differ in shape; that of several is the median of the ratios of all pairs within strata, as
    medians over strata of different levels mean nothing. Groups of any sizes can show a difference
    as far as their orders are rare enough: 3 against 21 can.

    Args:
        strata: a and b of each; those without samples on a side do not count.
        confidence: of all intervals of the family together (Bonferroni).
        relevant: relative differences up to this count as none (:func:`verdict_of`).
        family: number of comparisons judged together.

    Raises:
        ValueError: no stratum has samples on both sides, or one is not positive.
    """
    both = [(_checked(a), _checked(b)) for a, b in strata if len(a) and len(b)]
    logs = [(np.log(_thinned(a)), np.log(_thinned(b))) for a, b in both]
    estimate, found = stratified_shift(logs, 1 - (1 - confidence) / family)
    ratio = math.exp(estimate)
    if len(both) == 1:
        ratio = median(both[0][1]) / median(both[0][0])
    interval = None
    if found is not None:
        low, high = map(math.exp, found)
        interval = min(low, ratio), max(high, ratio)
    weights = [len(a) * len(b) for a, b in both]
    effect = np.average([cliffs_delta(a, b) for a, b in both], weights=weights)
    return Comparison(
        ratio=ratio,
        interval=interval,
        confidence=confidence,
        effect_size=float(effect),
        verdict=verdict_of(interval, relevant),
        observations=min(sum(len(a) for a, _ in both), sum(len(b) for _, b in both)),
        relevant=relevant,
        family=family,
    )


def _checked(samples: Samples) -> npt.NDArray[np.float64]:
    values = np.asarray(samples, np.float64)
    if not (values > 0).all():
        raise ValueError("durations to compare are positive")
    return values


def _thinned(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if values.size <= MOST_OF_A_GROUP:
        return values
    shares = (np.arange(MOST_OF_A_GROUP) + 0.5) / MOST_OF_A_GROUP
    return np.quantile(values, shares)
