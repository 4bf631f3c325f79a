"""What changed around the dispatches from the runs before a change to those after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gemmetry.analysis.history.series import DeviceHistory
from gemmetry.domain.record import shown
from gemmetry.store.history.entries import HistoryPoint, HistoryRun

NEIGHBOURS = 10
"""Runs on either side of a change whose surroundings are compared."""

_AGREE = 0.8
"""Share of the runs of a side that have to agree on a value."""

_NEAR = 2
"""Runs by which the place of a change may be wrong."""

_OF_THE_METHOD = ("packages.gemmetry",)
"""Fields of an environment that decide how times are measured."""

_IGNORED = ("git_revision",)
"""Fields that are expected to differ in every run."""


@dataclass(frozen=True, slots=True)
class ChangedSurroundings:
    """What changed, as texts such as ``torch 2.9.0 → 2.10.0``."""

    method: tuple[str, ...]
    environment: tuple[str, ...]


def changed_surroundings(history: DeviceHistory, run: int) -> ChangedSurroundings:
    """What changed once and for all at about the run `run`: settings of the runs and the version
    of gemmetry, and fields of their environments. What differs from run to run does not count."""
    facts = _facts_of(history)
    before, after = (facts[max(0, run - NEIGHBOURS) : run], facts[run : run + NEIGHBOURS])
    method: list[str] = []
    environment: list[str] = []
    for name in dict.fromkeys(key for one in (*before[-1:], *after[:1]) for key in one):
        old, new = (_agreed([one.get(name) for one in side]) for side in (before, after))
        if not old or not new or old[0] == new[0] or not _is_near(facts, run, name, new[0]):
            continue
        kind, _, plain = name.partition(":")
        is_method = kind == "settings" or plain in _OF_THE_METHOD
        text = f"{plain.removeprefix('packages.')} {shown(old[0])} → {shown(new[0])}"
        (method if is_method else environment).append(text)
    return ChangedSurroundings(tuple(method), tuple(environment))


def changed_timing(history: DeviceHistory, series: int, run: int) -> str:
    """How the way in which a dispatch was timed changed; "" if it did not."""
    before, after = _sides(history, series, run)
    old, new = (_agreed([point.method for point in side]) for side in (before, after))
    if old and new and old[0] != new[0]:
        return f"timed by {new[0]} instead of {old[0]}"
    return ""


def clock_ratio(history: DeviceHistory, series: int, run: int) -> float | None:
    """The median clock after a change over that before it; None where it was not observed."""
    clocks = history.sm_clock_hz[series]
    sides = clocks[max(0, run - NEIGHBOURS) : run], clocks[run : run + NEIGHBOURS]
    known = [side[np.isfinite(side)] for side in sides]
    if not all(side.size for side in known):
        return None
    return float(np.median(known[1]) / np.median(known[0]))


def observed_hints(history: DeviceHistory, series: int, run: int) -> tuple[str, ...]:
    """Reasons for throttling that are new, and a load that at least doubled."""
    before, after = _sides(history, series, run)
    found = []
    for reason in dict.fromkeys(name for point in after for name in point.throttle):
        shares = [sum(reason in point.throttle for point in side) / max(1, len(side))
                  for side in (before, after)]  # fmt: skip
        if shares[0] < 0.5 <= shares[1]:
            found.append(f"throttled since: {reason}")
    loads = [[p.load_average for p in side if p.load_average is not None]
             for side in (before, after)]  # fmt: skip
    if all(loads):
        old, new = (float(np.median(side)) for side in loads)
        if new >= 2 * old and new - old >= 0.5:
            found.append(f"load average per processor {old:.2f} → {new:.2f}")
    return tuple(found)


def _sides(
    history: DeviceHistory, series: int, run: int
) -> tuple[list[HistoryPoint], list[HistoryPoint]]:
    points = history.points[series]
    return (
        [p for p in points[:run] if p is not None and p.median_ns][-NEIGHBOURS:],
        [p for p in points[run:] if p is not None and p.median_ns][:NEIGHBOURS],
    )


@lru_cache(maxsize=1)
def _facts_of(history: DeviceHistory) -> list[dict[str, Any]]:
    """The flat fields of each run."""
    return [_facts(run) for run in history.runs]


def _facts(run: HistoryRun) -> dict[str, Any]:
    used = Counter(point.environment for point in run.points).most_common(1)
    environment = run.environments.get(used[0][0], {}) if used else {}
    return {**_flat(run.settings, "settings:"), **_flat(environment, "environment:")}


def _flat(fields: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif name not in _IGNORED:
            found[f"{prefix}{name}"] = tuple(value) if isinstance(value, list) else value
    return found


def _agreed(values: Sequence[Any]) -> list[Any]:
    """The value that nearly all share, in a list; empty if there is none."""
    if not values:
        return []
    value, count = Counter(map(_hashable, values)).most_common(1)[0]
    return [value] if count >= _AGREE * len(values) else []


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _is_near(facts: Sequence[Mapping[str, Any]], run: int, name: str, new: Any) -> bool:
    """Whether the value appeared within :data:`_NEAR` runs of `run`."""
    values = [_hashable(one.get(name)) for one in facts]
    around = range(max(1, run - _NEAR), min(len(facts), run + _NEAR + 1))
    return any(values[place] == new != values[place - 1] for place in around)
