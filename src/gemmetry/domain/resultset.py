"""Stored results, as used by reports and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmetry.domain.environment import Environment
from gemmetry.domain.record import Record


def _no_samples(_record: Record) -> Sequence[float]:
    return ()


def _no_rounds(_record: Record) -> Mapping[int, Sequence[float]]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSet:
    """One experiment's results, loaded; a report is a pure function of these."""

    title: str
    records: Sequence[Record]
    environments: Mapping[str, Environment] = field(default_factory=dict)
    samples: Callable[[Record], Sequence[float]] = _no_samples
    """Raw samples of a record in ns per launch, in the order they were taken."""
    rounds: Callable[[Record], Mapping[int, Sequence[float]]] = _no_rounds
    """The same samples by turn, i.e. by interleaved round: dispatches that share a turn were
    sampled in it one after the other. Empty where turns were not stored."""
    command: str = ""
    """The command line that created the experiment."""
    path: str = ""
    created: str = ""
    """ISO 8601, UTC."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The plan's document."""
