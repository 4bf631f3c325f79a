"""Is one of two dispatches faster? Ratio of medians with an interval, effect size, verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from gemmetry.statistics.intervals import minimum_samples
from gemmetry.statistics.quantiles import Samples, median, quantile

RESAMPLES = 2000
"""Bootstrap resamples; the ends of a 95 % interval then vary by about 1/20 of its width between
seeds (Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, section 14.5)."""

_SEED = 20240229
"""Fixed, so that comparing the same samples twice says the same."""

_CHUNK_ELEMENTS = 1 << 21


class Difference(StrEnum):
    """What two samples show, seen from the second one."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE_SHOWN = "no difference shown"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Durations of b compared with those of a."""

    ratio: float
    """median(b) / median(a): below 1 where b is faster."""
    ratio_low: float
    ratio_high: float
    confidence: float
    effect_size: float
    """Cliff's delta, P(b < a) - P(b > a), from -1 (b always slower) to 1 (b always faster)."""
    verdict: Difference
    note: str = ""
    """Why nothing can be shown, where that is so whatever the numbers."""


def compare_medians(a: Samples, b: Samples, *, confidence: float = 0.95) -> Comparison:
    """Compare durations of b with durations of a (same unit, positive).

    The interval of the ratio is a percentile bootstrap of the two medians, independently
    resampled (Efron & Tibshirani 1993, chapter 13), with a fixed seed. b is ``faster`` or
    ``slower`` when the interval excludes 1. With fewer samples than an interval of this
    confidence needs (6 for 95 %), nothing is ever called a difference.

    Raises:
        ValueError: a side has no samples, or one is not positive and finite.
    """
    left, right = _checked(a, "a"), _checked(b, "b")
    needed = minimum_samples(confidence)
    ratio = median(right) / median(left)
    low, high = _bootstrap_ratio(left, right, confidence)
    verdict, note = Difference.NONE_SHOWN, ""
    if min(left.size, right.size) < needed:
        note = f"{min(left.size, right.size)} samples: at least {needed} a side are needed"
    elif high < 1:
        verdict = Difference.FASTER
    elif low > 1:
        verdict = Difference.SLOWER
    return Comparison(ratio, low, high, confidence, cliffs_delta(left, right), verdict, note)


def cliffs_delta(a: Samples, b: Samples) -> float:
    """P(b < a) - P(b > a) over all pairs (Cliff, Psychological Bulletin 114, 1993)."""
    ordered = np.sort(np.asarray(a, dtype=np.float64))
    values = np.asarray(b, dtype=np.float64)
    below = np.searchsorted(ordered, values, side="left").sum()
    above = ordered.size * values.size - np.searchsorted(ordered, values, side="right").sum()
    return float(above - below) / (ordered.size * values.size)


def _checked(samples: Samples, name: str) -> npt.NDArray[np.float64]:
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError(f"{name} has no samples to compare")
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"{name} has durations that are not positive and finite")
    return values


def _bootstrap_ratio(
    left: npt.NDArray[np.float64], right: npt.NDArray[np.float64], confidence: float
) -> tuple[float, float]:
    rng = np.random.default_rng(_SEED)
    ratios = _resampled_medians(rng, right) / _resampled_medians(rng, left)
    tail = (1 - confidence) / 2
    return quantile(ratios, tail), quantile(ratios, 1 - tail)


def _resampled_medians(
    rng: np.random.Generator, samples: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    medians = np.empty(RESAMPLES)
    step = max(1, _CHUNK_ELEMENTS // samples.size)
    for start in range(0, RESAMPLES, step):
        count = min(step, RESAMPLES - start)
        drawn = samples[rng.integers(0, samples.size, (count, samples.size))]
        medians[start : start + count] = np.median(drawn, axis=1)
    return medians
