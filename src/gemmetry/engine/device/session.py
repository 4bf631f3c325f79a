"""Processes the dispatches of one device until each has a record.

The dispatches of a group are open at the same time, in warm workers of which only one works at a
time: this thread alone communicates with the device's workers, and so ensures that only one
measures. If a worker is lost, the dispatch that it was working on fails; the other dispatches that
it held are opened again in a new worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmetry.domain.errors import DeviceLostError
from gemmetry.domain.target import Target
from gemmetry.engine.device.closing import Closer
from gemmetry.engine.device.grouping import Budget, by_lane
from gemmetry.engine.device.opening import Opener
from gemmetry.engine.device.results import PendingResults
from gemmetry.engine.device.sampling import RoundRobin
from gemmetry.engine.device.standing import Standing
from gemmetry.engine.dispatches.candidate import Candidate, RecordMaker
from gemmetry.engine.journal import Journal
from gemmetry.engine.workers.crew import Crews
from gemmetry.engine.workers.process import WorkerContext
from gemmetry.measurement.stopping import StopPolicy


class DeviceSession:
    """One device's workers and their work."""

    def __init__(
        self, target: Target, context: WorkerContext, journal: Journal, records: RecordMaker
    ) -> None:
        job = self._job = context.job
        self._experiment = journal.experiment
        policy = StopPolicy(context.settings, target)
        self._results = PendingResults(job, policy, journal, records)
        processes = job.process_count(target)
        self._budget = Budget(target, job, processes)
        self._crews = Crews(context, processes)
        self._standing = Standing(self._crews, self._results, journal.experiment)
        self._opener = Opener(job, self._standing, self._budget, journal)
        self._rounds = RoundRobin(
            context.settings.seed, policy, self._standing, self._opener, journal
        )
        self._closer = Closer(job, self._standing)

    def start(self, candidates: Iterable[Candidate]) -> None:
        """Start the workers that `candidates` need, without waiting for them."""
        self._crews.start(candidate.lane for candidate in candidates)

    def measure(self, candidates: Iterable[Candidate]) -> None:
        """Process every candidate until it has a record.

        Raises:
            DeviceLostError: the device is gone; results are stored, and unfinished dispatches
                remain for a resumed run.
            StorageError: the journal cannot be written.
            RunStopped: the run is being ended.
        """
        try:
            for group in self._job.groups(candidates, self._budget):
                self._measure_group(group)
            for candidate in self._standing.take_second_chances():
                self._measure_group([candidate])
        except DeviceLostError:
            self._results.store()
            raise

    def close(self) -> None:
        """End the workers."""
        self._crews.stop()

    def kill(self) -> None:
        """Kill the workers."""
        self._crews.kill()

    def _measure_group(self, group: Sequence[Candidate]) -> None:
        rounds = self._experiment.rounds(candidate.id for candidate in group)
        verdicts = self._experiment.verdicts(candidate.id for candidate in group)
        for candidate in group:
            if not candidate.rounds:
                candidate.restore(rounds.get(candidate.id, ()))
            candidate.verdict = candidate.verdict or verdicts.get(candidate.id)
        self._opener.begin(group)
        # All at once, and ready before the first dispatch: loading libraries takes seconds of
        # processor time, which must not disturb what is warmed up.
        self.start(group)
        for lane, members in by_lane(group):
            self._opener.open(lane, members)
        self._results.store()
        if self._job.samples:
            self._rounds.run(group[0].id)
        self._closer.close_all()
        self._results.store()
