"""Whether a setting changes the time of a step: points that differ in nothing else, in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from gemmetry.analysis.sweeps.model import SweepConfiguration
from gemmetry.analysis.sweeps.ranks.cause import RELEVANT
from gemmetry.statistics.comparison import Comparison
from gemmetry.statistics.quantiles import median
from gemmetry.statistics.runs import LEAST_PAIRS, compare_pairs

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class SettingEffect:
    """The time of a step with one value of a setting, compared with another value."""

    name: str
    """``threads``, ``channels``, or the name of an axis."""
    before: str
    after: str
    pairs: int
    """Pairs of points that differ in nothing else."""
    comparison: Comparison
    """Over the pairs; the intervals of all effects of the sweep hold together with 95 %."""


def setting_effects(
    runs: Mapping[SweepConfiguration, Sequence[Sequence[float]]],
) -> tuple[SettingEffect, ...]:
    """The effect of every value of each setting, compared with its first value.

    Each pair is one observation, the ratio of the two points' means over their runs, so that even
    a sweep without repeats can show what a setting does on average.

    Args:
        runs: configuration -> times of the steps of each run.
    """
    steps = {
        one: geometric_mean(median(times) for times in found if len(times))
        for one, found in runs.items()
        if any(map(len, found))
    }
    pairs = {
        (name, before, after): found
        for name, values in _values(steps).items()
        for before, after in ((values[0], other) for other in values[1:])
        if len(found := _pairs(steps, name, before, after)) >= LEAST_PAIRS
    }
    each = 1 - (1 - CONFIDENCE) / max(1, len(pairs))
    return tuple(
        SettingEffect(
            name, before, after, len(found),
            compare_pairs(*zip(*found, strict=True), confidence=each, relevant=RELEVANT),
        )
        for (name, before, after), found in pairs.items()
    )  # fmt: skip


def _settings(one: SweepConfiguration) -> dict[str, str]:
    known = {"threads": one.threads, "channels": one.channels}
    return {name: str(v) for name, v in known.items() if v is not None} | dict(one.axes)


def _values(steps: Mapping[SweepConfiguration, float]) -> dict[str, list[str]]:
    """Setting -> its values, in the order of the points."""
    found: dict[str, dict[str, None]] = {}
    for one in sorted(steps, key=lambda c: c.order):
        for name, value in _settings(one).items():
            found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items()}


def _pairs(
    steps: Mapping[SweepConfiguration, float], name: str, before: str, after: str
) -> list[tuple[float, float]]:
    """The steps of points that differ in that setting only."""
    by_settings = {frozenset(_settings(one).items()): step for one, step in steps.items()}
    return [
        (step, by_settings[other])
        for settings, step in by_settings.items()
        if (name, before) in settings
        and (other := settings - {(name, before)} | {(name, after)}) in by_settings
    ]
