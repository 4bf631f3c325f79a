"""When enough samples are taken, and how many to take next."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target, TargetKind
from gemmetry.statistics.intervals import median_interval

GPU_INTERVAL_WIDTH = 0.005
"""Asked relative half-width of the median's interval on a GPU, where nothing says otherwise."""

CPU_INTERVAL_WIDTH = 0.02
"""The same on a CPU (and the pretend device), whose clock and neighbours vary more."""

FIRST_ROUNDS = 3
"""Rounds over which the least number of samples is spread, so that the candidates of a comparison
take turns even where ten samples suffice. The pretend device does not drift and needs one."""

_MAX_GROWTH = 2
"""A round takes at most this many times the samples there are: estimates from few are poor."""


def asked_width(settings: RunSettings, target: Target) -> float:
    """Relative half-width of the median's 95 % interval at which sampling ends."""
    if settings.interval_width is not None:
        return settings.interval_width
    return GPU_INTERVAL_WIDTH if target.is_gpu else CPU_INTERVAL_WIDTH


def relative_half_width(samples: Sequence[float]) -> float:
    """Half of the median's 95 % interval over the median; infinite where it is not defined."""
    if len(samples) < 2:
        return math.inf
    low, high = median_interval(samples)
    median = float(np.median(samples))
    return (high - low) / 2 / median if median > 0 else math.inf


class StopPolicy:
    """Stops when the interval is narrow enough, the time is spent, or the samples are too many.

    ``settings.repetitions`` replaces all of that by an exact number of samples.
    """

    def __init__(self, settings: RunSettings, target: Target) -> None:
        self._settings = settings
        self._width = asked_width(settings, target)
        least = settings.min_samples if settings.repetitions is None else settings.repetitions
        rounds = 1 if target.kind is TargetKind.NULL else FIRST_ROUNDS
        self._first_size = max(1, math.ceil(min(least, settings.max_samples) / rounds))

    def next_count(self, samples: Sequence[float], seconds_spent: float) -> int:
        """Size of the next round; 0 ends sampling.

        Args:
            samples: all samples so far, ns per launch.
            seconds_spent: wall-clock time their rounds took.
        """
        settings, taken = self._settings, len(samples)
        if settings.repetitions is not None:
            return max(0, min(settings.repetitions - taken, self._first_size))
        if taken == 0:
            return self._first_size
        if seconds_spent >= settings.time_budget_s or taken >= settings.max_samples:
            return 0
        affordable = int(
            (settings.time_budget_s - seconds_spent) * taken / max(seconds_spent, 1e-9)
        )
        room = min(affordable, settings.max_samples - taken)
        if taken < settings.min_samples:
            return min(settings.min_samples - taken, self._first_size, room)
        width = relative_half_width(samples)
        if width <= self._width:
            return 0
        return min(self._needed(taken, width), room)

    def reason(self, samples: Sequence[float], seconds_spent: float) -> str:
        """Why sampling ended: ``interval``, ``time_budget`` or ``max_samples``."""
        settings, taken = self._settings, len(samples)
        if settings.repetitions is not None:
            return "max_samples"
        if taken >= settings.min_samples and relative_half_width(samples) <= self._width:
            return "interval"
        return "max_samples" if taken >= settings.max_samples else "time_budget"

    def _needed(self, taken: int, width: float) -> int:
        """Samples still missing if the width shrinks with the square root of their number."""
        if not math.isfinite(width):
            return taken
        missing = math.ceil(taken * (width / self._width) ** 2) - taken
        return max(self._settings.min_samples, min(missing, _MAX_GROWTH * taken))
