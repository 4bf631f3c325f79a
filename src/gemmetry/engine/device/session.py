"""Processes the dispatches of one device until each has a record.

The dispatches of a group are open at the same time, in warm workers of which only one works at a
time: this thread alone communicates with the device's workers, and so ensures that only one
measures. If a worker is lost, the dispatch that it was working on fails; the other dispatches that
it held are opened again in a new worker.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from gemmetry.domain.errors import DeviceLostError
from gemmetry.engine.device.closing import Closer
from gemmetry.engine.device.grouping import Budget, by_lane
from gemmetry.engine.device.opening import Opener
from gemmetry.engine.device.results import PendingResults
from gemmetry.engine.device.sampling import RoundRobin
from gemmetry.engine.device.standing import Standing
from gemmetry.engine.dispatches.candidate import Candidate, RecordMaker
from gemmetry.engine.journal import Journal
from gemmetry.engine.slots.slot import Slot
from gemmetry.engine.workers.crew import Crews
from gemmetry.measurement.stopping import StopPolicy


class DeviceSession:
    """One device's workers and their work."""

    def __init__(self, slot: Slot, budget: Budget, journal: Journal, records: RecordMaker) -> None:
        """`budget` limits the memory of a group, on this device and on others of the target."""
        target, context = slot.target, slot.context
        job = self._job = context.job
        self._slot = slot
        self._journal = journal
        self._experiment = journal.experiment
        records = dataclasses.replace(
            records, environment_id=slot.environment_id, device_id=slot.device_id
        )
        policy = StopPolicy(context.settings, target)
        self._results = PendingResults(job, policy, journal, records)
        processes = job.process_count(target)
        self._crews = Crews(context, processes)
        self._standing = Standing(self._crews, self._results, journal.experiment)
        self._opener = Opener(job, self._standing, budget, journal)
        self._rounds = RoundRobin(
            context.settings.seed, policy, self._standing, self._opener, journal
        )
        self._closer = Closer(job, self._standing)

    def start(self, candidates: Iterable[Candidate]) -> None:
        """Start the workers that `candidates` need, without waiting for them."""
        group = list(candidates)
        self._slot.adopt(group)
        self._crews.start(candidate.lane for candidate in group)

    def measure(self, groups: Iterable[Sequence[Candidate]]) -> None:
        """Process every candidate until it has a record, group by group.

        Raises:
            DeviceLostError: the device is gone; results are stored, and unfinished dispatches
                remain for a resumed run.
            StorageError: the journal cannot be written.
            RunStopped: the run is being ended.
        """
        try:
            for group in groups:
                self._slot.adopt(group)
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
        self._restore(group)
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

    def _restore(self, group: Sequence[Candidate]) -> None:
        """Continue with what an earlier run stored, if this device took all of it. Otherwise the
        whole group starts again, because its candidates are compared on one device."""
        numbers = [candidate.id for candidate in group]
        rounds = self._experiment.rounds(numbers)
        if not all(map(self._slot.continues, rounds.values())):
            dropped = self._experiment.drop_rounds(numbers)
            self._journal.warn(
                f"{dropped} earlier samples of unfinished dispatches come from another device; "
                f"they are discarded and taken again on {self._slot.device_id}."
            )
            rounds = {}
        # Without rounds, a verdict may come from another device.
        is_known = self._slot.is_only or rounds
        verdicts = self._experiment.verdicts(numbers) if is_known else {}
        for candidate in group:
            if not candidate.rounds:
                candidate.restore(rounds.get(candidate.id, ()))
            candidate.verdict = candidate.verdict or verdicts.get(candidate.id)
