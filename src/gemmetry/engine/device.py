"""Checks that a measured time is possible: no kernel is faster than its device, and the clock by
which its process measures runs as fast as that of the parent.

Results of one device's dispatches that are not stored yet, and storing them.

Steps of a conversation with a worker that opening, sampling and closing share.

Tracks which candidates of a device are open, and which is to blame for a failure.

Decides which dispatches are open at the same time: those of one operation, or of several small
ones, as far as the device's memory allows.

Counts a group's dispatches through verification for the listener.

Has the workers of a device open candidates: build, verify and prepare them.

Samples the open candidates of a device in rounds, until all of them have enough.

Has a device's workers check the outputs of timed launches, and completes the candidates.

Processes the dispatches of one device until each has a record.

The dispatches of a group are open at the same time, in warm workers of which only one works at a
time: this thread alone communicates with the device's workers, and so ensures that only one
measures. If a worker is lost, the dispatch that it was working on fails; the other dispatches that
it held are opened again in a new worker.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from gemmetry.domain import units
from gemmetry.domain.dispatch import Target
from gemmetry.domain.errors import DeviceLostError, Outcome, Stage, StorageError, Verification
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Doing, Measurement, Record, StageProgress, Trait, Verdict
from gemmetry.engine.bench import LaunchBudget
from gemmetry.engine.candidates import Candidate, RecordMaker, merge_facts
from gemmetry.engine.failures import Ending, WorkerLost, ending_of
from gemmetry.engine.jobs import Job
from gemmetry.engine.journal import Journal
from gemmetry.engine.slots import Slot
from gemmetry.engine.store.experiment import Experiment
from gemmetry.engine.store.rows import StoredRound
from gemmetry.engine.workers.process import Crews, WorkerProcess
from gemmetry.engine.workers.protocol import (
    CLOSING,
    MOST_LEFT,
    OPENING,
    SAMPLING,
    Answered,
    Close,
    Closed,
    Entered,
    Failure,
    Frame,
    LeftBehind,
    Open,
    Opened,
    Reply,
    Sample,
    Sampled,
    Trying,
    flaw_of_closed,
    flaw_of_entered,
    flaw_of_opened,
    flaw_of_sampled,
)
from gemmetry.hardware.host import free_memory_bytes
from gemmetry.hardware.roofline import SpeedLimit, speed_limit
from gemmetry.measurement.energy import summarize_energy
from gemmetry.measurement.launches import CACHE_FACTOR, FEWEST_SETS, MAX_SETS
from gemmetry.measurement.marks import summarize
from gemmetry.measurement.stopping import Round, StopPolicy
from gemmetry.verification.checks import CheckOutcome, CheckResult
from gemmetry.verification.protocol import with_check

NAME = "timing_sanity"

CLOCK_RATIO = 2.0
PARENT_S, PROCESS_S = (0.5, 0.05), (0.02, 0.001)
"""Two clocks disagree if one of them counts :data:`CLOCK_RATIO` times the seconds of the other and
more: the first number in all, and the second in each round. The parent may notice a reply a tenth
of a second late on a busy machine; within one process clocks are read microseconds apart."""


def timing_check(
    target: Target,
    operation: Operation,
    declared: Collection[Trait],
    measurement: Measurement,
    rounds: Sequence[Round] = (),
) -> CheckResult:
    """The check ``timing_sanity``: failed where the median is shorter than the device's compute
    peak allows (``hardware/roofline.py``), so that a launch that did not do its work, or whose
    work was not timed, is reported as ``wrong`` instead of fast; and where clocks disagree."""
    flaw = _flaw_of_clocks([one for one in rounds if one.waited_s > 0 and one.elapsed_s > 0])
    if flaw:
        return CheckResult(NAME, CheckOutcome.FAILED, f"its clock cannot be right: {flaw}")
    limit = speed_limit(target, operation, declared)
    if not isinstance(limit, SpeedLimit):
        return CheckResult(NAME, CheckOutcome.NOT_APPLICABLE, limit)
    shortest_ns = operation.flops / limit.flops_per_s * 1e9
    if measurement.median_ns >= shortest_ns:
        return CheckResult(NAME)
    speed = "no time at all"
    if measurement.median_ns > 0:
        speed = f"{operation.flops / measurement.median_ns / 1e3:.4g} TFLOP/s"
    return CheckResult(
        NAME,
        CheckOutcome.FAILED,
        f"faster than the device: {units.format_ns(measurement.median_ns)} per launch is "
        f"{speed}, and no correct kernel takes less than {units.format_ns(shortest_ns)}: "
        f"{limit.source}",
    )


def _flaw_of_clocks(rounds: Sequence[Round]) -> str:
    """Which clocks disagree about the same rounds; "" if none do."""
    waited_s = sum(one.waited_s for one in rounds)
    elapsed_s = sum(one.elapsed_s for one in rounds)
    timed = [one for one in rounds if one.method != "simulated"]
    samples_s = sum(sum(one.samples_ns) * one.launches_per_sample for one in timed) / 1e9
    around_s = sum(one.seconds for one in timed if one.method == "wall_clock")
    for less, less_s, more, more_s, allowed_s in (
        ("the process counted", elapsed_s, "its parent waited", waited_s, PARENT_S),
        ("the parent waited", waited_s, "the samples add up to", samples_s, PARENT_S),
        (
            "the samples add up to",
            samples_s,
            "the process counted",
            around_s,
            PROCESS_S,
        ),
    ):
        once_s, each_s = allowed_s
        if more_s > CLOCK_RATIO * less_s + once_s + each_s * len(rounds):
            return f"{less} {less_s:.3g} s, and {more} {more_s:.3g} s, for {len(rounds)} rounds"
    return ""


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


MAX_GROUP = 64
"""The most dispatches that are open at once. More would lengthen a round, and with it the drift
between the first and the last candidate, beyond the seconds over which a machine is steady."""

SMALL_OPERATION_FLOPS = 1e8
"""Operations up to this size share a group: a launch takes at most milliseconds, and starting a
group costs as much."""

ASSUMED_CACHE_BYTES = 256 << 20
"""The last-level cache assumed while grouping, which is that of AMD's MI300X (Infinity Cache), the
largest of current devices. Sets of inputs are sized by the actual cache."""

UNKNOWN_GPU_BUDGET_BYTES = 4 << 30
"""The budget of the first group on a GPU, before its free memory is known."""


class Budget:
    """The memory that open executables of one device may use together, each in `processes`
    processes."""

    def __init__(
        self,
        target: Target,
        job: Job,
        processes: int = 1,
        *,
        devices: int = 1,
    ) -> None:
        """`devices`: how many share the work."""
        self.most_shared = max(1, MAX_GROUP // devices)
        """The most dispatches of different operations in a group. Small operations would otherwise
        all be the work of one device."""
        self._job = job
        self._settings = job.settings
        self._processes = processes
        self._free_bytes: int | None = None
        if not target.is_gpu:
            self._free_bytes = free_memory_bytes()

    def observe(self, free_bytes: int) -> None:
        """Note the device's free memory; the largest value seen is that of the idle device."""
        if free_bytes > 0:
            self._free_bytes = max(self._free_bytes or 0, free_bytes)

    @property
    def limit_bytes(self) -> int:
        """``settings.memory_budget_bytes``, or half of the free memory."""
        if self._settings.memory_budget_bytes > 0:
            return self._settings.memory_budget_bytes
        if self._free_bytes is None:
            return UNKNOWN_GPU_BUDGET_BYTES * self._processes
        return self._free_bytes // 2

    def needed_bytes(self, candidate: Candidate) -> int:
        """An estimate for one open dispatch: its rotating sets of inputs, see
        measurement/launches.py."""
        one_set = max(1, candidate.operation.bytes)
        sets = 1
        if self._settings.cold_cache and self._job.samples:
            wanted = math.ceil(CACHE_FACTOR * ASSUMED_CACHE_BYTES / one_set)
            sets = min(max(FEWEST_SETS, wanted), MAX_SETS)
        return one_set * sets * self._processes


def groups(candidates: Iterable[Candidate], budget: Budget) -> Iterator[list[Candidate]]:
    """Split candidates (in plan order) into groups. An operation is split only where it does not
    fit in a group of its own, so that its candidates are compared in the same rounds."""
    group: list[Candidate] = []
    used = 0
    for _, one_operation in groupby(candidates, key=lambda candidate: candidate.operation_name):
        members = list(one_operation)
        whole = sum(map(budget.needed_bytes, members))
        if group and (
            len(group) + len(members) > budget.most_shared or used + whole > budget.limit_bytes
        ):
            yield group
            group, used = [], 0
        for candidate in members:
            needed = budget.needed_bytes(candidate)
            fits = len(group) < MAX_GROUP and used + needed <= budget.limit_bytes
            if group and not (fits and _share(group[-1], candidate)):
                yield group
                group, used = [], 0
            group.append(candidate)
            used += needed
    if group:
        yield group


def longest_first(candidates: Iterable[Candidate], most_shared: int) -> list[Candidate]:
    """The candidates in the order of groups that several devices finish at about the same time
    (Graham, *SIAM J. Appl. Math.* 17, 1969): groups that take long first, which are those with more
    dispatches, as each is sampled to about the same width, then those of larger operations. What
    runs alone stays last. `most_shared`: see :class:`Budget`."""
    units: list[list[Candidate]] = []
    for _, one_operation in groupby(candidates, lambda one: (one.runs_alone, one.operation_name)):
        members = list(one_operation)
        shares = units and _share(units[-1][-1], members[0])
        if shares and len(units[-1]) + len(members) <= most_shared:
            units[-1] += members
        else:
            units.append(members)
    units.sort(key=lambda of: (of[0].runs_alone, -len(of), -max(c.operation.flops for c in of)))
    return [candidate for members in units for candidate in members]


def _share(last: Candidate, candidate: Candidate) -> bool:
    if candidate.runs_alone or last.runs_alone:
        return False
    same = candidate.operation_name == last.operation_name
    small = max(candidate.operation.flops, last.operation.flops) <= SMALL_OPERATION_FLOPS
    return same or small


def by_lane(candidates: Sequence[Candidate]) -> Iterator[tuple[int, list[Candidate]]]:
    """`candidates` by the number of their lane, in the given order."""
    ordered = sorted(candidates, key=lambda candidate: candidate.lane.id)
    for lane, members in groupby(ordered, key=lambda candidate: candidate.lane.id):
        yield lane, list(members)


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


class RoundRobin:
    """Has the workers of one device take turns."""

    def __init__(
        self, seed: int, policy: StopPolicy, standing: Standing, opener: Opener, journal: Journal
    ) -> None:
        """`seed` determines the order within rounds."""
        self._seed = seed
        self._policy = policy
        self._standing = standing
        self._results = standing.results
        self._opener = opener
        self._journal = journal
        self._turn = 0

    def run(self, group_seed: int) -> None:
        """Sample all open candidates until the policy stops; store each round.

        Raises:
            DeviceLostError, StorageError, RunStopped: the run cannot continue.
        """
        number = 0
        total = len(self._standing.open)
        while wanted := self._wanted():
            # Rounds of the same turn are compared in pairs, so no two runs may share a turn.
            self._turn = time.time_ns()
            self._journal.publish(StageProgress(Stage.MEASURE, total - len(wanted), total, ""))
            order = sorted(wanted)
            # The order changes each round, so that no candidate always follows the same neighbour.
            # It is seeded, so that a run can be repeated.
            random.Random(f"{self._seed}:{group_seed}:{number}").shuffle(order)
            # Looked up again each time, because a lost worker may have ended candidates.
            for place, keys in groupby(order, key=self._place):
                requests = [(key, wanted[key]) for key in keys if self._place(key) == place]
                if requests and place is not None:
                    self._sample(*place, requests)
            self._results.store()
            number += 1

    def _wanted(self) -> dict[int, int]:
        """The number of samples that the next round takes of each candidate that needs any."""
        counts = (
            (key, self._policy.next_count(one.rounds, one.seconds_spent, one.sample_s))
            for key, one in self._standing.open.items()
        )
        return {key: count for key, count in counts if count}

    def _place(self, key: int) -> tuple[int, int] | None:
        """The lane and number of the worker that samples a candidate next; None if it has ended."""
        candidate = self._standing.open.get(key)
        return None if candidate is None else (candidate.lane.id, candidate.next_worker)

    def _sample(self, lane: int, number: int, requests: Sequence[tuple[int, int]]) -> None:
        """Sample one worker's part of a round; if the worker is lost, the rest follows in the next
        round."""
        worker = self._standing.crews.workers(lane)[number]
        waiting = deque(self._standing.open[key] for key, _ in requests)
        try:
            worker.send(Sample(tuple(requests)))
            waits_since = time.perf_counter()
            while True:
                rounds = waiting[0].rounds if waiting else ()
                longest_s = max((taken.seconds for taken in rounds), default=None)
                enter(worker, Stage.MEASURE, longest_s)
                match expect(worker, SAMPLING, waiting):
                    case Answered():
                        return
                    case Sampled() as sampled:
                        candidate = waiting[0]
                        refuse(worker, flaw_of_sampled(sampled))
                        self._standing.raise_if_fatal(worker, candidate, sampled.failure)
                        self._standing.answered = waiting.popleft()
                        now = time.perf_counter()
                        self._take_sampled(worker, number, candidate, sampled, now - waits_since)
                        waits_since = now
                        self._results.store_if_due()
                        worker.mark_output()
        except WorkerLost as lost:
            self._standing.blame_for_loss(waiting, lost.ending)
            self._opener.open(lane, self._standing.drop_crew(lane))

    def _take_sampled(
        self,
        worker: WorkerProcess,
        number: int,
        candidate: Candidate,
        sampled: Sampled,
        waited_s: float,
    ) -> None:
        if sampled.failure is not None:
            del self._standing.open[candidate.id]
            candidate.workers.remove(number)
            self._standing.stale[candidate.id] = candidate
            self._standing.blame(candidate, ending_of(sampled.failure, worker.output_tail()))
        elif sampled.round is not None:
            taken = dataclasses.replace(
                sampled.round,
                turn=self._turn,
                waited_s=waited_s,
                process=worker.started_ns,
                device_id=self._results.device_id,
            )
            stored = candidate.add_round(taken)
            self._results.add_round(
                dataclasses.replace(stored, environment=self._results.environment_id)
            )


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
