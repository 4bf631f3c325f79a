"""What a history stores of each run: one line per run and device class."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

SCHEMA = 1
"""Of the lines. A reader skips lines with another one, and names them."""


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One dispatch of one run; times are in ns per launch."""

    provider: str
    dispatch: str
    operation: str
    target: str
    distribution: str
    regime: str = "burst"
    outcome: str = "ok"
    median_ns: float | None = None
    """None where the dispatch was not measured."""
    low_ns: float | None = None
    """Of the median's 95 % interval; None where there were too few samples for one."""
    high_ns: float | None = None
    samples: int = 0
    rounds: int = 0
    method: str = ""
    """How launches were timed: ``graph``, ``events``, ``wall_clock`` or ``simulated``."""
    environment: str = ""
    """A key of :attr:`HistoryRun.environments`."""
    sm_clock_hz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()
    load_average: float | None = None
    marks: tuple[str, ...] = ()
    """Kinds of the marks on the measurement."""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What the points of one series have in common, within a device class."""
        return (self.provider, self.dispatch, self.target, self.distribution, self.regime)


def points_digest(points: Sequence[HistoryPoint]) -> str:
    """Twelve hexadecimal digits over the points of a run."""
    return hashlib.sha256(msgspec.json.encode(points)).hexdigest()[:12]


class HistoryRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run on the devices of one class."""

    schema: int
    id: str
    """Of the experiment: a later line with the same id replaces an earlier one."""
    digest: str
    """Of the points: equal if nothing was measured in the meantime."""
    device: str
    """Device class: model, memory and power limit of a GPU; model and processors of a CPU."""
    time: str
    """ISO 8601, UTC. Runs are ordered by it."""
    points: list[HistoryPoint]
    commit: str = ""
    label: str = ""
    source: str = ""
    """The experiment's folder, as it was given."""
    settings: dict[str, Any] = {}
    """Settings of the run that decide how dispatches are verified and measured."""
    environments: dict[str, dict[str, Any]] = {}
    """Id -> fields of the environment."""


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """A remark on a change; with `acknowledged`, the change is no alarm any more."""

    schema: int
    run: str
    """Id of the first run after the change, or its time or commit as the user wrote it."""
    pattern: str
    """Glob on ``provider:dispatch``."""
    text: str
    acknowledged: bool = True
    time: str = ""
    """ISO 8601, UTC: when it was written."""
