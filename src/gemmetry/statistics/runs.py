"""Whether one of two settings is faster, when each was run a few times.

What varies between runs of one setting (placement, clocks, neighbours) is common to all samples of
a run, so that only runs count as observations. Two or three runs per setting say little about their
own spread, but all settings of a sweep together say enough: the spread is estimated from all of
them, as in an analysis of variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gemmetry.statistics.comparison import (
    Comparison,
    Difference,
    Pairing,
    cliffs_delta,
    verdict_of,
)
from gemmetry.statistics.intervals import check_confidence


@dataclass(frozen=True, slots=True)
class RunSpread:
    """The spread of logarithms of durations between runs of one setting."""

    deviation: float
    """Standard deviation, pooled over all settings."""
    degrees: int
    """Degrees of freedom: runs less settings; 0: no setting was run twice."""


def run_spread(groups: Sequence[Sequence[float]]) -> RunSpread:
    """The pooled spread of `groups`, one per setting, with a duration (positive) per run."""
    squares, degrees = 0.0, 0
    for group in groups:
        logs = [math.log(value) for value in group]
        mean = sum(logs) / len(logs) if logs else 0.0
        squares += sum((one - mean) ** 2 for one in logs)
        degrees += max(0, len(logs) - 1)
    return RunSpread(math.sqrt(squares / degrees) if degrees else 0.0, degrees)


def compare_runs(
    a: Sequence[float],
    b: Sequence[float],
    spread: RunSpread,
    *,
    confidence: float = 0.95,
    relevant: float = 0.0,
    family: int = 1,
) -> Comparison:
    """Compare the runs of setting b with those of setting a (durations in the same unit).

    The ratio is that of the geometric means, its interval Student's for two means with a common
    variance (Montgomery, "Design and Analysis of Experiments", 8th ed. 2013, section 3.5). It
    assumes that the logarithms vary equally and normally in all settings. Without a repeated
    setting there is no interval, and the comparison is undecided.

    Args:
        confidence: of all intervals of the family together (Bonferroni).
        relevant: relative differences up to this count as none (:func:`verdict_of`).
        family: number of comparisons judged together.

    Raises:
        ValueError: a side has no runs.
    """
    check_confidence(confidence)
    if not a or not b:
        raise ValueError("a setting without runs cannot be compared")
    shift = sum(map(math.log, b)) / len(b) - sum(map(math.log, a)) / len(a)
    interval, note = None, ""
    if spread.degrees:
        tail = (1 - confidence) / family / 2
        reach = student_quantile(1 - tail, spread.degrees) * spread.deviation
        reach *= math.sqrt(1 / len(a) + 1 / len(b))
        interval = math.exp(shift - reach), math.exp(shift + reach)
    else:
        note = "no point was run twice, so the spread between runs is not known; repeat the runs"
    verdict = verdict_of(interval, relevant)
    if interval is not None and verdict is Difference.UNDECIDED:
        note = "runs of one point differ too much for a verdict; repeat them more often"
    return Comparison(
        ratio=math.exp(shift),
        interval=interval,
        confidence=confidence,
        effect_size=cliffs_delta(a, b),
        verdict=verdict,
        note=note,
        pairing=Pairing.RUNS,
        observations=min(len(a), len(b)),
        relevant=relevant,
        family=family,
    )


def compare_pairs(
    a: Sequence[float], b: Sequence[float], *, confidence: float = 0.95, relevant: float = 0.0
) -> Comparison:
    """Compare b with a over pairs (durations of one setting each): the geometric mean of the
    ratios, with Student's interval of their mean logarithm. With one pair there is no interval.

    Args:
        relevant: relative differences up to this count as none (:func:`verdict_of`).

    Raises:
        ValueError: no pairs, or sides of different lengths.
    """
    check_confidence(confidence)
    if not a or len(a) != len(b):
        raise ValueError("pairs need as many durations on both sides, and at least one")
    logs = [math.log(right / left) for left, right in zip(a, b, strict=True)]
    shift, count = sum(logs) / len(logs), len(logs)
    interval = None
    if count > 1:
        deviation = math.sqrt(sum((one - shift) ** 2 for one in logs) / (count - 1))
        reach = student_quantile((1 + confidence) / 2, count - 1) * deviation / math.sqrt(count)
        interval = math.exp(shift - reach), math.exp(shift + reach)
    return Comparison(
        ratio=math.exp(shift),
        interval=interval,
        confidence=confidence,
        effect_size=sum((one < 0) - (one > 0) for one in logs) / count,
        verdict=verdict_of(interval, relevant),
        pairing=Pairing.RUNS,
        observations=count,
        relevant=relevant,
    )


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
