"""Tracks which candidates of a device are open, and which is to blame for a failure."""

from __future__ import annotations

from collections.abc import Sequence

from gemmetry.domain.errors import DeviceLostError, StorageError
from gemmetry.domain.outcome import Outcome
from gemmetry.engine.device.conversation import DOING
from gemmetry.engine.device.results import PendingResults
from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.failures import Ending, WorkerLost, ending_of
from gemmetry.engine.workers.crew import Crews
from gemmetry.engine.workers.process import WorkerProcess
from gemmetry.engine.workers.protocol import Failure
from gemmetry.store.experiment import Experiment

MOST_DEVICE_LOSSES = 2
"""A device that is lost once may have been unplugged. If it is lost again while the same dispatch
runs, that dispatch is blamed, so that a plan that contains it can complete."""


class Standing:
    """The candidates of one device that its workers hold open."""

    def __init__(self, crews: Crews, results: PendingResults, experiment: Experiment) -> None:
        self.crews = crews
        self.results = results
        self._experiment = experiment
        self.open: dict[int, Candidate] = {}
        """Candidates that continue, by number."""
        self.stale: dict[int, Candidate] = {}
        """Candidates that ended in one worker while others still hold them open."""
        self.answered: Candidate | None = None
        """The candidate with the latest answer."""
        self._second_chances: list[Candidate] = []

    def take_second_chances(self) -> list[Candidate]:
        """Return the candidates to try once more, alone."""
        found, self._second_chances = self._second_chances, []
        for candidate in found:
            candidate.runs_alone = True
        return found

    def blame(self, candidate: Candidate, ending: Ending) -> None:
        """End `candidate`, or give it a second chance alone if another may be the cause."""
        is_among_others = len(self.open) > 0 and not candidate.runs_alone
        is_doubtful = ending.outcome is Outcome.OUT_OF_MEMORY or ending.may_be_anothers
        if is_doubtful and is_among_others:
            self._second_chances.append(candidate)
        else:
            self.results.end(candidate, ending)

    def blame_for_loss(self, waiting: Sequence[Candidate], ending: Ending) -> Candidate | None:
        """Blame a candidate for the loss of a worker that should have answered for `waiting`: the
        first of these or, after its last answer, the candidate that it answered for, unless that
        has already ended. Returns the candidate that is blamed."""
        candidate = waiting[0] if waiting else self.answered
        if candidate is not None and not self.results.has_ended(candidate):
            self.open.pop(candidate.id, None)
            self.blame(candidate, ending)
        return candidate

    def raise_if_fatal(
        self, worker: WorkerProcess, candidate: Candidate, failure: Failure | None
    ) -> None:
        """Handle a failure of `candidate` that affects more than itself.

        Raises:
            DeviceLostError, StorageError: the run cannot continue. WorkerLost: its worker cannot
                continue.
        """
        if failure is None:
            return
        if failure.kind == DeviceLostError.__name__:
            times = self._experiment.count_device_loss(candidate.id)
            if times >= MOST_DEVICE_LOSSES:
                reason = f"device lost twice while {DOING[candidate.stage]} it: {failure.message}"
                self.results.end(candidate, Ending(Outcome.CRASH, reason, worker.output_tail()))
            raise DeviceLostError(
                failure.message,
                hint="The same command resumes when the device is back.",
            )
        if failure.kind == StorageError.__name__:
            # Not the fault of the dispatch, which is tried again when there is memory.
            raise StorageError(failure.message, hint=failure.hint)
        if failure.worker_is_spoiled:
            ending = ending_of(failure, worker.output_tail())
            worker.kill()
            raise WorkerLost(ending)

    def drop_crew(self, lane: int) -> list[Candidate]:
        """Forget a lane's workers, one of which is lost, and the candidates that they held open."""
        self.crews.drop(lane)
        for candidate in [one for one in self.stale.values() if one.lane.id == lane]:
            del self.stale[candidate.id]
        held = [candidate for candidate in self.open.values() if candidate.lane.id == lane]
        for candidate in held:
            del self.open[candidate.id]
            candidate.workers.clear()
        return held
