"""What the engine hands to the store and takes from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmetry.domain.record import Record
from gemmetry.domain.target import Target

Samples = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lane:
    """A provider on a target: what one worker process serves."""

    id: int
    provider: str
    options: Mapping[str, Any] = field(hash=False)
    target: Target

    @property
    def place(self) -> tuple[str, str, str]:
        """Provider, target and device: what makes it the same lane in another plan."""
        return self.provider, self.target.name, self.target.device

    def __str__(self) -> str:
        return f"{self.provider} on {self.target.device or self.target.name}"


@dataclass(frozen=True, slots=True)
class PlanBatch:
    """A part of a plan as it is enumerated; ids are counted from 1 over the whole plan."""

    operations: Sequence[tuple[int, str]]
    """(id, name)."""
    configurations: Sequence[tuple[int, str]]
    """(id, name)."""
    dispatches: Sequence[tuple[int, int, int, int]]
    """(id, operation, lane, configuration)."""
    finished: Sequence[tuple[int, Record]] = ()
    """Dispatches that are done before they start (unsupported), with their records."""


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
    """Time the round took, all included; counts against the dispatch's budget."""
    document: Mapping[str, Any]
    """The round's other fields as measurement defines them, JSON values."""
