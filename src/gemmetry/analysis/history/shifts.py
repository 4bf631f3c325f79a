"""By how much a level shifts from the runs before a change to those after it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmetry.statistics.comparison import Difference, verdict_of
from gemmetry.statistics.intervals import Interval
from gemmetry.statistics.ranks import EXACT_UP_TO, stratified_shift
from gemmetry.statistics.runs import RunNoise

Values = npt.NDArray[np.float64]

_MOST_AFTER = EXACT_UP_TO // 2
"""Runs after a change, nearest to it, that count: half of those for which the distribution of ranks
is computed exactly, as far away runs may have drifted."""


@dataclass(frozen=True, slots=True)
class LevelShift:
    """The ratio of the level after a change to that before it; above 1 is slower."""

    ratio: float
    interval: Interval | None
    """None where too few runs were measured for the confidence."""
    verdict: Difference
    """Read from the interval."""

    @property
    def has_moved(self) -> bool:
        """Whether a shift is shown."""
        return self.verdict in (Difference.SLOWER, Difference.FASTER)

    def is_like(self, other: LevelShift) -> bool:
        """Whether both moved in one direction."""
        return self.has_moved and self.verdict is other.verdict


def level_shift(
    before: Values, after: Values, *, confidence: float, relevant: float,
    noise: RunNoise | None = None,
) -> LevelShift | None:  # fmt: skip
    """The shift between two windows of logarithms (NaN: not measured), by the rank-sum test of the
    runs nearest to the change, or by Student's with `noise` where these are too few for ranks; None
    where a side was not measured at all."""
    second = after[np.isfinite(after)][:_MOST_AFTER]
    first = before[np.isfinite(before)]
    first = first[max(0, first.size - (EXACT_UP_TO - second.size)) :]
    if not first.size or not second.size:
        return None
    shift, ends = stratified_shift([(first, second)], confidence)
    if ends is None and noise is not None:
        shift = float(second.mean() - first.mean())
        ends = noise.interval(first, second, confidence)
    interval = None if ends is None else (math.exp(ends[0]), math.exp(min(ends[1], 700.0)))
    return LevelShift(math.exp(shift), interval, verdict_of(interval, relevant))
