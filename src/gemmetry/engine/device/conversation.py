"""Steps of a conversation with a worker that opening, sampling and closing share."""

from __future__ import annotations

from collections.abc import Sequence

from gemmetry.domain.outcome import Stage
from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.workers.process import WorkerProcess
from gemmetry.engine.workers.protocol import Frame, LeftBehind, Reply
from gemmetry.engine.workers.replies import MOST_LEFT

DOING = {
    Stage.BUILD: "building", Stage.VERIFY: "verifying", Stage.MEASURE: "measuring",
    Stage.TRACE: "tracing",
}  # fmt: skip
"""A stage, as named in messages."""


def enter(worker: WorkerProcess, stage: Stage, expected_s: float | None = None) -> None:
    """Start the deadline of `stage`, which is shorter if it is expected to end soon."""
    worker.set_deadline(stage, DOING[stage], expected_s=expected_s)


def expect(
    worker: WorkerProcess, kinds: tuple[type[Frame], ...], waiting: Sequence[Candidate]
) -> Reply:
    """A reply of one of `kinds` about the first of `waiting`, or the end of the replies.

    Raises:
        WorkerLost, RunStopped: see :meth:`gemmetry.engine.workers.process.WorkerProcess.expect`.
    """
    return worker.expect(kinds, (waiting[0].id,) if waiting else ())


def refuse(worker: WorkerProcess, flaw: str) -> None:
    """End a worker whose reply is flawed.

    Raises:
        WorkerLost: `flaw` is not "".
    """
    if flaw:
        raise worker.distrust(flaw)


def note_left(candidate: Candidate, left: LeftBehind) -> None:
    """Keep the names of processes that `candidate` left running."""
    candidate.left_behind = (*candidate.left_behind, *left.processes)[:MOST_LEFT]
