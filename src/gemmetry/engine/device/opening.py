"""Has the workers of a device open candidates: build, verify and prepare them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from gemmetry.domain.events import Doing, StageProgress
from gemmetry.domain.outcome import Outcome, Stage, Verification
from gemmetry.engine.device.conversation import DOING, enter, expect, note_left, refuse
from gemmetry.engine.device.grouping import Budget
from gemmetry.engine.device.standing import Standing
from gemmetry.engine.device.verification_progress import VerificationProgress
from gemmetry.engine.dispatches.candidate import Candidate, merge_facts
from gemmetry.engine.dispatches.launch_budget import LaunchBudget
from gemmetry.engine.failures import Ending, WorkerLost, ending_of
from gemmetry.engine.jobs import Job
from gemmetry.engine.journal import Journal
from gemmetry.engine.workers.process import WorkerProcess
from gemmetry.engine.workers.protocol import Answered, Entered, LeftBehind, Open, Opened, Trying
from gemmetry.engine.workers.replies import OPENING, flaw_of_entered, flaw_of_opened


class Opener:
    """Opens the candidates of one device."""

    def __init__(self, job: Job, standing: Standing, budget: Budget, journal: Journal) -> None:
        self._job = job
        self._standing = standing
        self._results = standing.results
        self._budget = budget
        self._journal = journal
        self._progress = VerificationProgress((), verifies=False)

    def begin(self, group: Sequence[Candidate]) -> None:
        """Count the candidates of a new group for the listener."""
        counted = group if self._job.reports_opening else ()
        self._progress = VerificationProgress(counted, verifies=self._job.settings.verify)

    def open(self, lane: int, members: Iterable[Candidate]) -> None:
        """Open candidates in the lane's workers, which are replaced whenever one is lost.

        Raises:
            DeviceLostError, StorageError, RunStopped: the run cannot continue.
        """
        waiting = deque(members)
        while waiting:
            try:
                crew = self._standing.crews.of(waiting[0].lane)
            except WorkerLost as lost:
                for candidate in waiting:
                    self._results.end(candidate, lost.ending)
                return
            requested, line = tuple(waiting), waiting
            try:
                for number, worker in enumerate(crew.workers):
                    if number > 0:
                        line = deque(one for one in requested if one.id in self._standing.open)
                    if number > 0:
                        self._announce_further(number, line)
                    if line:
                        worker.send(Open(tuple(candidate.wire for candidate in line)))
                        self._receive_opened(worker, number, line)
            except WorkerLost as lost:
                culprit = self._standing.blame_for_loss(line, lost.ending)
                if line:
                    line.popleft()
                self._results.store()  # the deadline that it may have exceeded must not pass again
                if culprit is not None:
                    self._announce(culprit)
                # After those that have not been opened yet, of which the next may cost a worker.
                waiting.extend(self._standing.drop_crew(lane))

    def _receive_opened(
        self, worker: WorkerProcess, number: int, waiting: deque[Candidate]
    ) -> None:
        enter(worker, Stage.BUILD)
        while True:
            match expect(worker, OPENING, waiting):
                case Answered():
                    return
                case Entered() as entered:
                    refuse(worker, flaw_of_entered(entered))
                    waiting[0].stage = entered.stage
                    enter(worker, entered.stage)
                    if number == 0:
                        self._journal.publish(Doing(f"{DOING[entered.stage]} {waiting[0]}"))
                case Trying():
                    what = f"trying one launch of {waiting[0]}, which is predicted to be slow"
                    self._journal.publish(Doing(what))
                    budget = LaunchBudget(self._job, verifies=waiting[0].verdict is None)
                    late = Ending(Outcome.SKIPPED, budget.overrun())
                    worker.set_limit(budget.trial_s, late)
                case LeftBehind() as left:
                    note_left(waiting[0], left)
                case Opened() as opened:
                    candidate = waiting[0]
                    refuse(worker, flaw_of_opened(opened, candidate.wire, self._job))
                    # Raises if the worker is spoiled, while the candidate can still be blamed.
                    self._standing.raise_if_fatal(worker, candidate, opened.failure)
                    self._standing.answered = waiting.popleft()
                    if number == 0:
                        self._take_opened(worker, candidate, opened)
                        self._results.store_if_due()
                        self._announce(candidate)
                    else:
                        self._take_opened_again(worker, number, candidate, opened)
                        self._announce_further(number, waiting)
                    worker.mark_output()
                    enter(worker, Stage.BUILD)

    def _take_opened(self, worker: WorkerProcess, candidate: Candidate, opened: Opened) -> None:
        candidate.facts = merge_facts(candidate.facts, opened.facts)
        candidate.trace = opened.trace
        if opened.verdict is not None:
            candidate.verdict = opened.verdict
            candidate.right_output = opened.right_output
            self._results.add_verdict(candidate, opened.verdict)
        if opened.failure is not None:
            self._standing.blame(candidate, ending_of(opened.failure, worker.output_tail()))
        elif opened.skip_reason:
            self._results.end(candidate, Ending(Outcome.SKIPPED, opened.skip_reason))
        elif candidate.verdict is not None and candidate.verdict.status is Verification.FAILED:
            reason = candidate.verdict.reason or candidate.verdict.first_bad or "wrong result"
            self._results.end(candidate, Ending(Outcome.WRONG, reason, worker.output_tail()))
        else:
            self._standing.open[candidate.id] = candidate
            candidate.sample_s = opened.sample_s
            candidate.workers[:] = [0]
            candidate.was_launched = True
            self._budget.observe(opened.free_memory_bytes)

    def _take_opened_again(
        self, worker: WorkerProcess, number: int, candidate: Candidate, opened: Opened
    ) -> None:
        """Process a further worker's answer for a candidate that the first worker has verified. A
        worker whose memory does not suffice takes no part in the rounds."""
        if opened.failure is None:
            if not opened.skip_reason:
                candidate.workers.append(number)
            return
        ending = ending_of(opened.failure, worker.output_tail())
        if ending.outcome is not Outcome.OUT_OF_MEMORY:
            self._standing.blame(candidate, ending)
            self._standing.stale[candidate.id] = self._standing.open.pop(candidate.id)

    def _announce_further(self, number: int, waiting: Sequence[Candidate]) -> None:
        """Report which dispatch a further worker opens next, if any."""
        if waiting and self._job.reports_opening:
            opened = sum(number in one.workers for one in self._standing.open.values())
            current = f"{waiting[0]} in process {number + 1}"
            self._journal.publish(
                StageProgress(Stage.BUILD, opened, opened + len(waiting), current)
            )

    def _announce(self, candidate: Candidate) -> None:
        progress = self._progress.count(candidate)
        if progress is not None:
            self._journal.publish(progress)
