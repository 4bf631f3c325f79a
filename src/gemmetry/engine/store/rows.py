"""Rows that the engine writes to the store and reads from it.

Converts records stored by earlier versions to this version's form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmetry.domain.dispatch import Target
from gemmetry.domain.record import Record
from gemmetry.statistics.intervals import minimum_samples

Samples = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lane:
    """A provider on a target, served by one worker process."""

    id: int
    provider: str
    options: Mapping[str, Any] = field(hash=False)
    target: Target

    @property
    def place(self) -> tuple[str, str, str]:
        """Provider, target and device, which identify the lane across plans."""
        return self.provider, self.target.name, self.target.device

    def __str__(self) -> str:
        return f"{self.provider} on {self.target.device or self.target.name}"


@dataclass(frozen=True, slots=True)
class PlanBatch:
    """A part of a plan, in the order of enumeration; ids count from 1 over the whole plan."""

    operations: Sequence[tuple[int, str]]
    """(id, name)."""
    configurations: Sequence[tuple[int, str]]
    """(id, name)."""
    dispatches: Sequence[tuple[int, int, int, int]]
    """(id, operation, lane, configuration)."""
    finished: Sequence[tuple[int, Record]] = ()
    """Records of dispatches that are finished before they start (unsupported)."""


@dataclass(frozen=True, slots=True)
class PlannedDispatch:
    """A dispatch of the stored plan that has no record yet."""

    id: int
    operation: str
    lane: int
    configuration: str

    @property
    def name(self) -> str:
        return f"{self.operation}_{self.configuration}"


@dataclass(frozen=True, slots=True)
class StoredRound:
    """One sampling round of one dispatch."""

    dispatch: int
    round: int
    samples: Samples
    """ns per launch, in the order they were taken."""
    seconds: float
    """Total time of the round; counts against the dispatch's budget."""
    document: Mapping[str, Any]
    """The round's other fields, as defined by measurement, as JSON values."""
    environment: str = ""
    """The id of the environment in which it was taken; "": that of the writer."""


def without_unfounded_interval(record: Record) -> Record:
    """The record without an interval of the median for which it has too few samples: earlier
    versions stored [min, max] instead, which is a point for a single sample."""
    m = record.measurement
    if m is None or m.ci_low_ns is None:
        return record
    worth = m.sample_count if m.effective_samples is None else m.effective_samples
    if int(worth) >= minimum_samples():
        return record
    return replace(record, measurement=replace(m, ci_low_ns=None, ci_high_ns=None))
