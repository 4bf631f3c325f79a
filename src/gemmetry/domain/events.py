"""Events that the engine sends to its listeners (progress bars, logs, tests) during a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from gemmetry.domain.outcome import Stage
from gemmetry.domain.record import Record


@dataclass(frozen=True, slots=True)
class PlanReady:
    """The plan is stored: `total` dispatches, of which `kept` are done from an earlier run."""

    total: int
    kept: int
    samples_kept: int
    experiment: str


@dataclass(frozen=True, slots=True)
class StageProgress:
    """`done` of `total` dispatches of the current batch have completed `stage`."""

    stage: Stage
    done: int
    total: int
    current: str = ""


@dataclass(frozen=True, slots=True)
class Doing:
    """The run begins something that may take long; `text` says what: ``verifying torch:matmul_…``.
    It ends with the next event."""

    text: str


@dataclass(frozen=True, slots=True)
class DispatchFinished:
    """A dispatch has its outcome; the record is durable when this is sent."""

    record: Record


@dataclass(frozen=True, slots=True)
class Message:
    """A message to display; `level` is info or warning."""

    text: str
    level: str = "info"


Event: TypeAlias = PlanReady | StageProgress | Doing | DispatchFinished | Message
Listener: TypeAlias = Callable[[Event], None]


def ignore_events(_event: Event) -> None:
    """A listener for callers that need no progress reports."""
