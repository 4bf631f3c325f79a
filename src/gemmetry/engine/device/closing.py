"""Has a device's workers check the outputs of timed launches, and completes the candidates."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gemmetry.domain.outcome import Stage
from gemmetry.engine.device.conversation import enter, expect, note_left, refuse
from gemmetry.engine.device.grouping import by_lane
from gemmetry.engine.device.standing import Standing
from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.failures import WorkerLost, ending_of
from gemmetry.engine.jobs import Job
from gemmetry.engine.workers.process import WorkerProcess
from gemmetry.engine.workers.protocol import Answered, Close, Closed, LeftBehind
from gemmetry.engine.workers.replies import CLOSING, flaw_of_closed
from gemmetry.verification.checks import CheckOutcome, CheckResult
from gemmetry.verification.protocol import with_check


class Closer:
    """Closes the candidates of one device."""

    def __init__(self, job: Job, standing: Standing) -> None:
        self._job = job
        self._standing = standing
        self._results = standing.results

    def close_all(self) -> None:
        """Complete every open candidate with a record.

        Raises:
            DeviceLostError, StorageError, RunStopped: the run cannot continue.
        """
        standing = self._standing
        for lane, members in by_lane([*standing.open.values(), *standing.stale.values()]):
            self._close(lane, members)
        standing.open.clear()
        standing.stale.clear()

    def _close(self, lane: int, members: Sequence[Candidate]) -> None:
        """Check the outputs in each worker, and complete the candidates that are correct."""
        still_open = self._standing.open
        going_on = [candidate for candidate in members if candidate.id in still_open]
        waiting: deque[Candidate] = deque()
        try:
            for number, worker in enumerate(self._standing.crews.workers(lane)):
                waiting = deque(one for one in members if number in one.workers)
                if waiting:
                    worker.send(Close(tuple(candidate.id for candidate in waiting)))
                    self._receive_closed(worker, waiting)
        except WorkerLost as lost:
            if waiting and waiting[0].id in still_open:
                self._standing.blame(waiting[0], lost.ending)
                del still_open[waiting[0].id]
            for candidate in going_on:
                skip_recheck(candidate)
            self._standing.crews.drop(lane)
        self._results.complete_all(one for one in going_on if one.id in still_open)

    def _receive_closed(self, worker: WorkerProcess, waiting: deque[Candidate]) -> None:
        while True:
            enter(worker, Stage.VERIFY)
            match expect(worker, CLOSING, waiting):
                case Answered():
                    return
                case LeftBehind() as left:
                    note_left(waiting[0], left)
                case Closed() as closed:
                    candidate = waiting[0]
                    refuse(worker, flaw_of_closed(closed, self._job))
                    self._standing.raise_if_fatal(worker, candidate, closed.failure)
                    waiting.popleft()
                    if candidate.id in self._standing.open:
                        self._take_closed(worker, candidate, closed)
                    worker.mark_output()

    def _take_closed(self, worker: WorkerProcess, candidate: Candidate, closed: Closed) -> None:
        """Process an answer; the candidate is no longer open if something was wrong."""
        if closed.energy is not None:
            candidate.energy.append(closed.energy)
        if closed.failure is not None:
            self._standing.blame(candidate, ending_of(closed.failure, worker.output_tail()))
            del self._standing.open[candidate.id]
        elif self._results.is_wrong_after_timing(candidate, closed, worker.output_tail()):
            del self._standing.open[candidate.id]


def skip_recheck(candidate: Candidate) -> None:
    """Note that the outputs of the timed launches could not be checked."""
    check = CheckResult(
        "after_timing",
        CheckOutcome.NOT_APPLICABLE,
        "the worker was lost before its outputs were checked",
    )
    if candidate.verdict is not None and check.name not in candidate.verdict.checks:
        candidate.verdict = with_check(candidate.verdict, check)
