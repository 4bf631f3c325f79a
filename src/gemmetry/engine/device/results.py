"""Results of one device's dispatches that are not stored yet, and storing them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable

from gemmetry.domain.outcome import Outcome, Stage, Verification
from gemmetry.domain.record import Record, Verdict
from gemmetry.engine.device.timing_sanity import timing_check
from gemmetry.engine.dispatches.candidate import Candidate, RecordMaker
from gemmetry.engine.failures import Ending
from gemmetry.engine.jobs import Job
from gemmetry.engine.journal import Journal
from gemmetry.engine.workers.protocol import Closed
from gemmetry.measurement.energy import summarize_energy
from gemmetry.measurement.stopping import StopPolicy
from gemmetry.measurement.summary import summarize
from gemmetry.store.rows import StoredRound
from gemmetry.verification.checks import CheckOutcome
from gemmetry.verification.protocol import with_check

STORE_EVERY_S = 0.2
"""A verdict, failure or round that arrives later than this after the last commit is stored at once.
A commit takes less than a millisecond on a solid-state disk, so this costs little and limits what a
kill loses."""


class PendingResults:
    """Collects rounds, verdicts and records, and stores them together."""

    def __init__(
        self,
        job: Job,
        policy: StopPolicy,
        journal: Journal,
        records: RecordMaker,
    ) -> None:
        self._job = job
        self._journal = journal
        self._records = records
        self._policy = policy
        self.device_id, self.environment_id = records.device_id, records.environment_id
        self._finished: dict[int, Record] = {}
        self._rounds: list[StoredRound] = []
        self._verdicts: dict[int, Verdict] = {}
        self._stored_at = 0.0

    def has_ended(self, candidate: Candidate) -> bool:
        """Whether its record is waiting to be stored."""
        return candidate.id in self._finished

    def add_round(self, taken: StoredRound) -> None:
        """Add a round of a candidate that continues."""
        self._rounds.append(taken)

    def add_verdict(self, candidate: Candidate, verdict: Verdict) -> None:
        """Add the verdict of a candidate that continues."""
        self._verdicts[candidate.id] = verdict

    def complete_all(self, candidates: Iterable[Candidate]) -> None:
        """Complete candidates with records of their measurements."""
        with self._journal.completing:
            for candidate in candidates:
                self._complete(candidate)

    def _complete(self, candidate: Candidate) -> None:
        measurement = None
        if candidate.rounds and self._job.samples:
            measurement = summarize(
                candidate.rounds,
                stop_reason=self._policy.reason(candidate.rounds, candidate.seconds_spent),
                regime=self._job.settings.regime,
                target=candidate.lane.target,
                settings=self._job.settings,
            )
            measurement = dataclasses.replace(
                measurement, energy=summarize_energy(candidate.energy)
            )
            check = timing_check(
                candidate.lane.target,
                candidate.operation,
                candidate.facts.declared,
                measurement,
                candidate.rounds,
            )
            if candidate.verdict is not None:
                candidate.verdict = with_check(candidate.verdict, check)
            if check.outcome is CheckOutcome.FAILED:
                self.end(candidate, Ending(Outcome.WRONG, check.detail))
                return
        self._finished[candidate.id] = self._records.done(candidate, measurement)

    def is_wrong_after_timing(self, candidate: Candidate, closed: Closed, output_tail: str) -> bool:
        """Process the check of the timed launches of `candidate`. Returns whether it was wrong; if
        so, its record is complete."""
        if closed.check is None or candidate.verdict is None:
            return False
        candidate.verdict = with_check(candidate.verdict, closed.check)
        if closed.evidence_path is not None:
            candidate.verdict = dataclasses.replace(
                candidate.verdict, evidence_path=closed.evidence_path
            )
        if candidate.verdict.status is not Verification.FAILED:
            return False
        reason = f"correct when verified, wrong after timing: {closed.check.detail}"
        self.end(candidate, Ending(Outcome.WRONG, reason, output_tail))
        return True

    def end(self, candidate: Candidate, ending: Ending) -> None:
        """End a candidate that did not complete, with its record."""
        if ending.outcome is Outcome.SKIPPED:
            candidate.stage = Stage.BUILD  # a launch on trial is not a verification
        self._finished[candidate.id] = self._records.ended(candidate, ending)

    def store_if_due(self) -> None:
        """Store if enough time has passed; results that arrive in quick succession share a
        transaction."""
        if time.monotonic() - self._stored_at > STORE_EVERY_S:
            self.store()

    def store(self) -> None:
        """Make rounds, verdicts of continuing candidates, and records durable."""
        finished, self._finished = self._finished, {}
        rounds, self._rounds = self._rounds, []
        verdicts, self._verdicts = self._verdicts, {}
        going_on = {key: verdicts[key] for key in verdicts if key not in finished}
        self._journal.add_rounds(rounds, going_on)
        self._journal.finish(finished)
        self._stored_at = time.monotonic()
