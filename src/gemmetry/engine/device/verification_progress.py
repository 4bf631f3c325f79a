"""Counts a group's dispatches through verification for the listener."""

from __future__ import annotations

from collections.abc import Iterable

from gemmetry.domain.events import StageProgress
from gemmetry.domain.outcome import Stage
from gemmetry.engine.dispatches.candidate import Candidate

_VERIFIED = (Stage.VERIFY, Stage.MEASURE, Stage.TRACE)


class VerificationProgress:
    """Counts the dispatches that are verified (or, without verification, built).

    Each counts once, however often it is opened again because a worker was lost. A dispatch that
    ends before it is verified (skipped, rejected) is not counted, nor is one that was verified in
    an earlier run.
    """

    def __init__(self, group: Iterable[Candidate], *, verifies: bool) -> None:
        self._stage = Stage.VERIFY if verifies else Stage.BUILD
        self._waiting = {c.id for c in group if not verifies or c.verdict is None}
        self._done = 0

    def count(self, candidate: Candidate) -> StageProgress | None:
        """Note that `candidate` was opened or ended. Returns the progress to report, if any."""
        if candidate.id not in self._waiting:
            return None
        self._waiting.remove(candidate.id)
        was_reached = self._stage is Stage.BUILD or candidate.stage in _VERIFIED
        self._done += was_reached
        if self._done == 0 or (not was_reached and self._waiting):
            return None
        total = self._done + len(self._waiting)
        return StageProgress(self._stage, self._done, total, str(candidate))
