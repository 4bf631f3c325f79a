"""The work of one device: opening, sampling and closing its dispatches until each has a record.

The dispatches of a group are open at the same time, in warm workers. On a GPU they build and
verify at the same time, also across groups; whatever is timed has the device alone, because this
thread then sends one request at a time. If a worker is lost, the dispatch that it was
working on fails; the other dispatches that it held are opened again in a new worker.

Checks that a measured time is possible: no kernel is faster than its device, and the clock by
which its process measures runs as fast as that of the parent.
"""

from __future__ import annotations

import dataclasses
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain, groupby
from typing import Any

import msgspec

from gemmetry.domain import units
from gemmetry.domain.dispatch import Target
from gemmetry.domain.errors import DeviceLostError, Outcome, Stage, StorageError, Verification
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Doing, Measurement, Record, StageProgress, Trait, Verdict
from gemmetry.domain.tables import grouped
from gemmetry.engine import protocol
from gemmetry.engine.candidates import Candidate, LaunchBudget, RecordMaker, job_of, merge_facts
from gemmetry.engine.compiling import compile_failures
from gemmetry.engine.journal import Journal
from gemmetry.engine.process import WorkerPool, WorkerProcess
from gemmetry.engine.schema import Lane, StoredRound
from gemmetry.engine.slots import Budget, Slot
from gemmetry.hardware.roofline import SpeedLimit, speed_limit
from gemmetry.measurement.energy import LEAD_NS, TAIL_NS
from gemmetry.measurement.marks import summarize
from gemmetry.measurement.stopping import Round, StopPolicy, is_outclassed, median_of_rounds
from gemmetry.verification.checks import CheckOutcome, CheckResult
from gemmetry.verification.protocol import with_check

SETUP_BYTES = 40e6
"""What verification takes in addition where a worker does not know a configuration yet, as bytes of
operands and result: 1 s in addition to 27 s for each GB (bf16, 16 processors of an H200's host)."""

MOST_VERIFIED_BYTES = 4e9
"""The most bytes of operands and results, with :data:`SETUP_BYTES` for each dispatch, of the groups
that are verified together. None of them is measured before all are verified, which takes three
workers about half a minute."""

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
    if flaw := _flaw_of_clocks([one for one in rounds if one.waited_s > 0 and one.elapsed_s > 0]):
        return CheckResult(NAME, CheckOutcome.FAILED, f"its clock cannot be right: {flaw}")
    limit = speed_limit(target, operation, declared)
    if not isinstance(limit, SpeedLimit):
        return CheckResult(NAME, CheckOutcome.NOT_APPLICABLE, limit)
    shortest_ns = operation.flops / limit.flops_per_s * 1e9
    if measurement.median_ns >= shortest_ns:
        return CheckResult(NAME)
    rate = operation.flops / measurement.median_ns if measurement.median_ns > 0 else 0.0
    speed = f"{rate / 1e3:.4g} TFLOP/s" if rate else "no time at all"
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
    for less, less_s, more, more_s, (once_s, each_s) in (
        ("the process counted", elapsed_s, "its parent waited", waited_s, PARENT_S),
        ("the parent waited", waited_s, "the samples add up to", samples_s, PARENT_S),
        ("the samples add up to", samples_s, "the process counted", around_s, PROCESS_S),
    ):
        if more_s > CLOCK_RATIO * less_s + once_s + each_s * len(rounds):
            return f"{less} {less_s:.3g} s, and {more} {more_s:.3g} s, for {len(rounds)} rounds"
    return ""


_VERIFIED = (Stage.VERIFY, Stage.MEASURE, Stage.TRACE)


DOING = {
    Stage.BUILD: "building", Stage.VERIFY: "verifying", Stage.MEASURE: "measuring",
    Stage.TRACE: "tracing",
}  # fmt: skip
"""A stage, as named in messages."""

STORE_EVERY_S = 0.2
"""A verdict, failure or round that arrives later than this after the last commit is stored at once.
A commit takes less than a millisecond on a solid-state disk, so this costs little and limits what a
kill loses."""

LOADED_S = 0.005
LOADED_TURN_S = 0.08
"""A request for samples this soon after the last answer finds a GPU busy with the launches that
follow samples; no long lead must then bring it to its limit. In turns shorter than this, rounds of
one candidate would follow each other closer than the clock at a power limit changes (0.1 s)."""

_AROUND = 1.5
"""Duration of a round in multiples of its samples' duration, until a round was taken: a guess."""

MOST_DEVICE_LOSSES = 2
"""A device that is lost once may have been unplugged. If it is lost again while the same dispatch
runs, that dispatch is blamed, so that a plan that contains it can complete."""

_UNSEEN = CheckResult(
    "after_timing",
    CheckOutcome.NOT_APPLICABLE,
    "the worker was lost before its outputs were checked",
)


class DeviceSession:
    """One device's workers and their work.

    Methods raise DeviceLostError (results are stored, and unfinished dispatches remain for a
    resumed run), StorageError (the journal cannot be written) and RunStopped (the run is being
    ended).
    """

    def __init__(self, slot: Slot, budget: Budget, journal: Journal, records: RecordMaker) -> None:
        """`budget` limits the memory of a group, on this device and on others of the target."""
        self._slot, self._budget, self._journal = slot, budget, journal
        self._job, self._settings = job_of(slot.context.settings), slot.context.settings
        self._records = dataclasses.replace(records, device_id=slot.device_id)
        self._policy = StopPolicy(self._settings, slot.target)
        self.pool = WorkerPool(slot.context, self._job.process_count(slot.target))
        self._uncounted: set[int] = set()
        """The candidates of the group that progress has yet to count, and how many it has."""
        self._counted = 0
        self._group: Sequence[Candidate] = ()
        self._began_s = 0.0
        """The group that is open, and when its opening began."""
        self._opened, self._opening_s = 0, 0.0
        self._sampled_s, self._sampling_s = 0.0, 0.0
        """What estimates of the time left rest on: dispatches that were opened and the time it
        took, the duration of all samples and the time it took to take them."""
        self._sampled_at = -math.inf
        """When the latest samples arrived, which untimed launches follow on a GPU."""
        self._open: dict[int, Candidate] = {}
        """Candidates that continue, by number."""
        self._stale: dict[int, Candidate] = {}
        """Candidates that ended in one worker while others still hold them open."""
        self._ended: set[int] = set()
        """The candidates of the group that have a record."""
        self._answered: Candidate | None = None
        """The candidate with the latest answer."""
        self._waited_s = 0.0
        """The time from the request, or the answer before, to the latest answer."""
        self._second_chances: list[Candidate] = []
        self._opens_ahead = False
        self._verifiers: dict[int, dict[str, set[int]]] = {}
        """The workers of each lane that have verified a configuration, where several do."""
        self._mutex = threading.RLock()
        """For what the threads that open ahead share."""
        self._turn = 0
        # Not stored yet:
        self._finished: dict[int, Record] = {}
        self._rounds: list[StoredRound] = []
        self._verdicts: dict[int, Verdict] = {}
        self._stored_at = 0.0

    def start(self, candidates: Iterable[Candidate]) -> None:
        """Start the workers that `candidates` need, without waiting for them."""
        group = list(candidates)
        self._slot.adopt(group)
        for _, members in _by_lane(group):
            self.pool.start(members[0].lane, len(members) if self._is_opened_ahead(group) else None)

    def measure(self, groups: Iterable[Sequence[Candidate]]) -> None:
        """Process every candidate until it has a record, group by group."""
        try:
            for batch in self._batches(groups):
                self._measure_batch(batch)
                alone, self._second_chances = self._second_chances, []
                for candidate in alone:
                    candidate.runs_alone = True
                    self.pool.drop(candidate.lane.id)  # what others left there may be the cause
                    self._measure_batch([[candidate]])
        except DeviceLostError:
            self._store()
            raise

    def _batches(
        self, groups: Iterable[Sequence[Candidate]]
    ) -> Iterator[Sequence[Sequence[Candidate]]]:
        """Groups that are verified together, before the first of them is measured: while some
        workers verify what is large, the others verify what is small."""
        # Where other devices take groups too, each takes one when it needs one.
        are_together = self._settings.verify and self._slot.is_only and self._works_ahead
        batch: list[Sequence[Candidate]] = []
        for group in groups:
            self._slot.adopt(group)
            # What may have cost a device its life runs alone. The size of further groups depends
            # on the device's memory, which the first one finds out if no driver reports it.
            may_join = are_together and self._budget.is_known
            may_join = may_join and not any(one.runs_alone for one in group)
            if batch and not (may_join and self._are_few([*chain(*batch), *group])):
                yield batch
                batch = []
            batch.append(group)
            if not may_join:
                yield batch
                batch = []
        if batch:
            yield batch

    def _are_few(self, candidates: Sequence[Candidate]) -> bool:
        """Whether these candidates are verified soon, and would fit in the device's memory."""
        work = sum(one.operation.bytes + SETUP_BYTES for one in candidates)
        needed = sum(map(self._budget.needed_bytes, candidates))
        return work <= MOST_VERIFIED_BYTES and needed <= self._budget.limit_bytes

    def _measure_batch(self, batch: Sequence[Sequence[Candidate]]) -> None:
        for group in batch:
            self._restore(group)
        self._group = list(chain(*batch))
        self._ended.clear()
        counted = () if self._job.works_alone else self._group
        verifies, self._counted = self._settings.verify, 0
        self._uncounted = {one.id for one in counted if not verifies or one.verdict is None}
        # All at once, and ready before the first dispatch: loading libraries takes seconds of
        # processor time, which must not disturb what is warmed up.
        self.start(self._group)
        if len(batch) > 1:
            self._began_s = time.monotonic()
            self._open_ahead(self._group, only_verifies=True)
            self._opening_s += time.monotonic() - self._began_s
        for group in batch:
            self._measure_group(group)

    def _measure_group(self, group: Sequence[Candidate]) -> None:
        self._began_s, opened = time.monotonic(), self._opened
        self._open_ahead(self._going_on(group))
        for _, members in _by_lane(self._going_on(group)):
            self._open_all(members)
        self._opened = opened + len(group)
        self._opening_s += time.monotonic() - self._began_s
        self._store()
        if self._job.samples:
            self._sample_all(group[0].id)
        self._close_lanes(_by_lane([*self._open.values(), *self._stale.values()]))
        self._open.clear()
        self._stale.clear()
        self._store()

    def _going_on(self, group: Sequence[Candidate]) -> list[Candidate]:
        """The candidates of `group` that did not end when they were verified ahead."""
        done = self._ended | {one.id for one in self._second_chances}
        return [one for one in group if one.id not in done]

    def _restore(self, group: Sequence[Candidate]) -> None:
        """Continue with what an earlier run stored, if this device took all of it. Otherwise the
        whole group starts again, because its candidates are compared on one device."""
        experiment, numbers = self._journal.experiment, [candidate.id for candidate in group]
        rounds = experiment.rounds(numbers)
        if not self._slot.continues(chain(*rounds.values()), experiment.alike):
            dropped = experiment.drop_rounds(numbers)
            self._journal.warn(
                f"{dropped} earlier samples of unfinished dispatches come from another device; "
                f"they are discarded and taken again on {self._slot.device_id}."
            )
            rounds = {}
        # Without rounds, a verdict may come from another device.
        verdicts = experiment.verdicts(numbers) if self._slot.is_only or rounds else {}
        for candidate in group:
            if not candidate.rounds:
                for one in rounds.get(candidate.id, ()):
                    candidate.add_round(one.taken)
            candidate.verdict = candidate.verdict or verdicts.get(candidate.id)

    # -- opening -----------------------------------------------------------------------------

    def _open_all(self, members: Iterable[Candidate]) -> None:
        """Open candidates of one lane in its workers, which are replaced whenever one is lost."""
        waiting = deque(self._compiled(list(members)))
        while waiting:
            try:
                workers = self.pool.of(waiting[0].lane)
            except protocol.WorkerLost as lost:
                for candidate in waiting:
                    self._end(candidate, lost.ending)
                    self._announce(candidate)
                return
            requested, line = tuple(waiting), waiting
            try:
                for number, worker in enumerate(workers):
                    if number > 0:
                        line = deque(one for one in requested if one.id in self._open)
                        self._announce_further(number, line)
                    request = protocol.Open(tuple(candidate.wire for candidate in line))
                    take = partial(self._take_opened, worker, number, line)
                    self._converse(worker, request, protocol.OPENING, line, take)
            except protocol.WorkerLost as lost:
                culprit = self._blame_for_loss(line, lost.ending)
                if line:
                    line.popleft()
                self._store()  # the deadline that it may have exceeded must not pass again
                if culprit is not None:
                    self._announce(culprit)
                # After those that have not been opened yet, of which the next may cost a worker.
                waiting.extend(self._drop_workers(requested[0].lane.id))

    def _all_at_once(self, name: str, work: Sequence[Callable[[], None]]) -> None:
        """Do all parts of `work` in threads. An interrupt of this one stops the run and thereby
        them."""
        with ThreadPoolExecutor(max(1, len(work)), thread_name_prefix=name) as threads:
            try:
                for done in [threads.submit(part) for part in work]:
                    done.result()
            except KeyboardInterrupt:
                self._slot.context.stop.set()
                raise

    def _compiled(self, members: Sequence[Candidate]) -> list[Candidate]:
        """Wait until `members` are compiled, and end the failed ones. Returns the others."""
        failed = compile_failures(members)
        with self._mutex:
            for one in members:
                if one.id in failed:
                    self._end(one, failed[one.id])
                    self._announce(one)
        return [one for one in members if one.id not in failed]

    def _open_ahead(self, group: Sequence[Candidate], *, only_verifies: bool = False) -> None:
        """On a GPU, verify the candidates of all lanes at the same time; a lane's workers share
        them. Unless it `only_verifies`, then build what is right in all workers."""
        lanes = [members for _, members in _by_lane(group)]
        if not self._is_opened_ahead(group):
            return
        self._opens_ahead = True
        sharing = sum(min(self._job.process_count(self._slot.target), len(lane)) for lane in lanes)
        try:
            how = {"ahead": sharing, "only_verifies": only_verifies}
            opening = [partial(self._open_lane_ahead, one, how) for one in lanes]
            self._all_at_once("opening", [*opening, partial(self._start_others, lanes)])
        finally:
            self._opens_ahead = False
        self._store()

    @property
    def _works_ahead(self) -> bool:
        return self._slot.target.is_gpu and self._job.samples

    def _is_opened_ahead(self, group: Sequence[Candidate]) -> bool:
        return self._works_ahead and len(group) > 1

    def _start_others(self, lanes: Sequence[Sequence[Candidate]]) -> None:
        """Start the workers that verify nothing once those that do are ready: a GPU opens for one
        process after the other, and verification takes longer."""
        for members in lanes:
            with self._mutex, suppress(protocol.WorkerLost):
                self.pool.of(members[0].lane, len(members))
        for members in lanes:
            with self._mutex:
                self.pool.start(members[0].lane)

    def _open_lane_ahead(self, members: Sequence[Candidate], how: Mapping[str, Any]) -> None:
        """Build and verify each of a lane's candidates in one of its workers, then build what is
        right in all; `how`: the other fields of the requests. What is open when a worker is lost
        is built again by :meth:`_open_all`."""
        lane, members = members[0].lane, self._compiled(members)
        waiting = [one for one in members if one.verdict is None]
        while waiting:
            try:
                with self._mutex:
                    workers = self.pool.of(lane, len(waiting))
            except protocol.WorkerLost:
                return  # opening them has the reason
            shares = self._verifying(waiting, len(workers))
            parts = zip(workers, shares, strict=True)
            lost = _losses([partial(self._verify_ahead, *part, how) for part in parts])
            waiting = [one for share in shares for one in share]
            with self._mutex:
                for number, loss in lost.items():
                    if shares[number]:
                        self._blame(shares[number][0], loss.ending)
                        self._announce(shares[number][0])
                        waiting.remove(shares[number][0])
                if lost:
                    self.pool.drop(lane.id)
                    self._verifiers.pop(lane.id, None)
        if not how["only_verifies"]:
            self._build_lane_ahead(lane, self._going_on(members), how)

    def _verify_ahead(
        self, worker: WorkerProcess, line: deque[Candidate], how: Mapping[str, Any]
    ) -> None:
        """Build and verify those in `line`."""

        def take(candidate: Candidate, opened: protocol.Opened) -> None:
            self._is_right(worker, candidate, opened)
            self._announce(candidate)

        request = protocol.Open(tuple(one.wire for one in line), **how)
        self._converse(worker, request, protocol.OPENING, line, take)

    def _build_lane_ahead(
        self, lane: Lane, right: Sequence[Candidate], how: Mapping[str, Any]
    ) -> None:
        """Build what is right in all workers of a lane, at the same time."""
        wires = (msgspec.structs.replace(one.wire, verify=False) for one in right)
        request = protocol.Open(tuple(wires), **how)
        try:
            with self._mutex:
                workers = self.pool.of(lane)
        except protocol.WorkerLost:
            return

        def build(worker: WorkerProcess) -> None:
            waiting = deque(right)
            self._converse(worker, request, protocol.OPENING, waiting, lambda _one, _opened: None)

        if _losses([partial(build, worker) for worker in workers]):
            with self._mutex:
                # What costs a worker its life does so again when it is opened there.
                self.pool.drop(lane.id)

    def _verifying(
        self, candidates: Sequence[Candidate], workers: int
    ) -> tuple[deque[Candidate], ...]:
        """A balanced share of `candidates` for each of a lane's workers: the largest first, each to
        the worker that ends with it the earliest (Graham, *SIAM J. Appl. Math.* 17, 1969). A worker
        that has verified another shape of a configuration knows part of the answer."""
        shares: list[list[Candidate]] = [[] for _ in range(workers)]
        loads = [0.0] * workers
        for one in sorted(candidates, key=lambda one: -one.operation.bytes):
            known = self._verifiers.setdefault(one.lane.id, {})
            knowing = known.setdefault(one.configuration.name, set())
            ends = [
                load + one.operation.bytes + SETUP_BYTES * (number not in knowing)
                for number, load in enumerate(loads)
            ]
            number = ends.index(min(ends))
            loads[number] = ends[number]
            shares[number].append(one)
            knowing.add(number)
        return tuple(deque(sorted(share, key=lambda one: one.id)) for share in shares)

    def _take_opened(
        self,
        worker: WorkerProcess,
        number: int,
        line: Sequence[Candidate],
        candidate: Candidate,
        opened: protocol.Opened,
    ) -> None:
        """Process an answer of the worker with a `number`: the first verifies; a further one whose
        memory does not suffice takes no part in the rounds."""
        if number == 0:
            if self._is_right(worker, candidate, opened):
                self._open[candidate.id] = candidate
                candidate.sample_s = opened.sample_s
                candidate.workers[:] = [0]
            self._announce(candidate)
            return
        if opened.failure is not None:
            ending = protocol.ending_of(opened.failure, worker.output_tail())
            if ending.outcome is not Outcome.OUT_OF_MEMORY:
                self._blame(candidate, ending)
                self._stale[candidate.id] = self._open.pop(candidate.id)
        elif not opened.skip_reason:
            candidate.workers.append(number)
        self._announce_further(number, line)

    def _is_right(
        self, worker: WorkerProcess, candidate: Candidate, opened: protocol.Opened
    ) -> bool:
        """Keep what a first worker found out about a candidate; end one that is not right."""
        candidate.facts = merge_facts(candidate.facts, opened.facts)
        candidate.trace = opened.trace
        if opened.verdict is not None:
            candidate.verdict = self._verdicts[candidate.id] = opened.verdict
            candidate.right_output = opened.right_output
        verdict = candidate.verdict
        if opened.failure is not None:
            self._blame(candidate, protocol.ending_of(opened.failure, worker.output_tail()))
        elif opened.skip_reason:
            self._end(candidate, protocol.Ending(Outcome.SKIPPED, opened.skip_reason))
        elif verdict is not None and verdict.status is Verification.FAILED:
            reason = verdict.reason or verdict.first_bad or "wrong result"
            self._end(candidate, protocol.Ending(Outcome.WRONG, reason, worker.output_tail()))
        else:
            candidate.was_launched = True
            self._budget.observe(opened.free_memory_bytes)
            return True
        return False

    def _announce_further(self, number: int, waiting: Sequence[Candidate]) -> None:
        """Report which dispatch a further worker opens next, if any."""
        if waiting and not self._job.works_alone:
            opened = sum(number in one.workers for one in self._open.values())
            total, current = opened + len(waiting), f"{waiting[0]} in process {number + 1}"
            self._journal.publish(StageProgress(Stage.BUILD, opened, total, current))

    def _announce(self, candidate: Candidate) -> None:
        """Report how many dispatches of the group are verified (or, without verification, built).

        Each counts once, however often it is opened again because a worker was lost. A dispatch
        that ends before it is verified (skipped, rejected) is not counted, nor is one that was
        verified in an earlier run.
        """
        if candidate.id not in self._uncounted:
            return
        self._uncounted.remove(candidate.id)
        stage = Stage.VERIFY if self._settings.verify else Stage.BUILD
        was_reached = stage is Stage.BUILD or candidate.stage in _VERIFIED
        self._counted += was_reached
        if self._counted > 0 and (was_reached or not self._uncounted):
            total = self._counted + len(self._uncounted)
            progress = StageProgress(stage, self._counted, total, str(candidate), self._left_s())
            self._journal.publish(progress)

    def _left_s(self) -> float | None:
        """Estimate of the time that the group takes from now on, in seconds; None: not known."""
        if not self._job.samples:
            return None
        now, spent_s = time.monotonic(), self._opening_s
        opening = [one for one in self._group if one.id in self._uncounted]
        opened = self._opened + len(self._group) - len(opening)
        if opening:
            spent_s += now - self._began_s
        samples_s = sum(
            self._policy.left_s(one.rounds, one.seconds_spent, one.sample_s)
            for one in self._group
            if one.id not in self._ended and one.outclassed_by is None
        )
        each_s = spent_s / opened if opened else 0.0
        around = self._sampling_s / self._sampled_s if self._sampled_s else _AROUND
        return len(opening) * each_s + samples_s * around

    # -- sampling ----------------------------------------------------------------------------

    def _sample_all(self, group_seed: int) -> None:
        """Sample all open candidates in rounds, until the policy stops; store each round."""
        number, total = 0, len(self._open)
        self._race()
        while wanted := self._wanted():
            # Rounds of the same turn are compared in pairs, so no two runs may share a turn.
            self._turn = time.time_ns()
            done, left_s = total - len(wanted), self._left_s()
            self._journal.publish(StageProgress(Stage.MEASURE, done, total, "", left_s))
            began_s = time.monotonic()
            order = sorted(wanted)
            # The order changes each round, so that no candidate always follows the same neighbour.
            # It is seeded, so that a run can be repeated.
            random.Random(f"{self._settings.seed}:{group_seed}:{number}").shuffle(order)
            launched_s = (wanted[key] * self._open[key].sample_s for key in order)
            is_long = sum(launched_s, len(order) * (LEAD_NS + TAIL_NS) / 1e9) >= LOADED_TURN_S
            # Looked up again each time, because a lost worker may have ended candidates.
            for place, keys in groupby(order, key=self._place):
                requests = [(key, wanted[key]) for key in keys if self._place(key) == place]
                if requests and place is not None:
                    is_soon = time.monotonic() - self._sampled_at < LOADED_S
                    self._sample(*place, requests, is_soon and is_long)
            self._store()
            self._race()
            self._sampling_s += time.monotonic() - began_s
            number += 1

    def _wanted(self) -> dict[int, int]:
        """The number of samples that the next round takes of each candidate that needs any."""
        next_count = self._policy.next_count
        counts = (
            (key, next_count(one.rounds, one.seconds_spent, one.sample_s))
            for key, one in self._open.items()
            if one.outclassed_by is None
        )
        return {key: count for key, count in counts if count}

    def _race(self) -> None:
        """Drop candidates that have no chance to be the fastest of their operation from further
        rounds; they return if those that beat them leave too, unless the fastest beats them. An
        exact or least number of samples that was requested is taken of each."""
        settings = self._settings
        if not settings.race or settings.repetitions or settings.min_samples:
            return
        sampled = (one for one in self._open.values() if one.rounds)
        for candidates in grouped(sampled, lambda one: one.operation_name).values():
            best = min(candidates, key=lambda one: median_of_rounds(one.rounds))
            best.outclassed_by = None
            racing = {one.id for one in candidates if one.outclassed_by is None}
            for one in candidates:
                if one is not best and one.outclassed_by not in racing:
                    is_beaten = is_outclassed(one.rounds, best.rounds, len(candidates))
                    one.outclassed_by = best.id if is_beaten else None

    def _place(self, key: int) -> tuple[int, int] | None:
        """The lane and number of the worker that samples a candidate next, as workers take turns;
        None if it has ended."""
        if (one := self._open.get(key)) is None:
            return None
        return one.lane.id, one.workers[len(one.rounds) % len(one.workers)]

    def _sample(
        self, lane: int, number: int, requests: Sequence[tuple[int, int]], is_loaded: bool
    ) -> None:
        """Sample one worker's part of a round; if the worker is lost, the rest follows in the next
        round."""
        worker = self.pool.running[lane][number]
        waiting = deque(self._open[key] for key, _ in requests)
        take = partial(self._take_sampled, worker, number)
        try:
            self._converse(
                worker,
                protocol.Sample(tuple(requests), is_loaded),
                protocol.SAMPLING,
                waiting,
                take,
            )
            self._sampled_at = time.monotonic()
        except protocol.WorkerLost as lost:
            self._blame_for_loss(waiting, lost.ending)
            self._open_all(self._drop_workers(lane))

    def _take_sampled(
        self, worker: WorkerProcess, number: int, candidate: Candidate, sampled: protocol.Sampled
    ) -> None:
        if sampled.failure is not None:
            del self._open[candidate.id]
            candidate.workers.remove(number)
            self._stale[candidate.id] = candidate
            self._blame(candidate, protocol.ending_of(sampled.failure, worker.output_tail()))
        elif sampled.round is not None:
            taken = dataclasses.replace(
                sampled.round, turn=self._turn, waited_s=self._waited_s,
                process=worker.started_ns, device_id=self._slot.device_id,
            )  # fmt: skip
            self._rounds.append(candidate.add_round(taken))
            self._sampled_s += taken.seconds

    # -- closing -----------------------------------------------------------------------------

    def _close_lanes(self, lanes: Sequence[tuple[int, Sequence[Candidate]]]) -> None:
        """Close the candidates of `lanes`; on a GPU at the same time, unless the device's energy is
        measured."""
        if not self._slot.target.is_gpu or self._settings.energy:
            for lane, members in lanes:
                self._close_all(lane, members, at_once=False)
        else:
            self._all_at_once(
                "closing", [partial(self._close_all, *one, at_once=True) for one in lanes]
            )

    def _close_all(self, lane: int, members: Sequence[Candidate], *, at_once: bool) -> None:
        """Check the outputs in each worker, in all of them `at_once` or in turn, and complete the
        candidates that are correct with records of their measurements."""
        going_on = [candidate for candidate in members if candidate.id in self._open]
        workers = self.pool.running[lane]
        shares = [deque(one for one in members if n in one.workers) for n in range(len(workers))]
        closing = [partial(self._close_in, *one) for one in zip(workers, shares, strict=True)]
        if lost := _losses(closing, at_once=at_once):
            with self._mutex:
                for number, loss in lost.items():
                    if shares[number] and shares[number][0].id in self._open:
                        self._blame(shares[number][0], loss.ending)
                        del self._open[shares[number][0].id]
                for candidate in going_on:
                    verdict = candidate.verdict
                    if verdict is not None and _UNSEEN.name not in verdict.checks:
                        candidate.verdict = with_check(verdict, _UNSEEN)
                self.pool.drop(lane)
        with self._journal.completing, self._mutex:
            for candidate in going_on:
                if candidate.id in self._open:
                    self._complete(candidate)

    def _close_in(self, worker: WorkerProcess, line: deque[Candidate]) -> None:
        request = protocol.Close(tuple(one.id for one in line))
        self._converse(worker, request, protocol.CLOSING, line, partial(self._take_closed, worker))

    def _take_closed(
        self, worker: WorkerProcess, candidate: Candidate, closed: protocol.Closed
    ) -> None:
        """Process an answer; the candidate is no longer open if something was wrong."""
        if candidate.id not in self._open:
            return
        if closed.energy is not None:
            candidate.energy.append(closed.energy)
        if closed.failure is not None:
            self._blame(candidate, protocol.ending_of(closed.failure, worker.output_tail()))
            del self._open[candidate.id]
        elif closed.check is not None and candidate.verdict is not None:
            verdict = with_check(candidate.verdict, closed.check)
            if closed.evidence_path is not None:
                verdict = dataclasses.replace(verdict, evidence_path=closed.evidence_path)
            candidate.verdict = verdict
            if verdict.status is Verification.FAILED:
                reason = f"correct when verified, wrong after timing: {closed.check.detail}"
                self._end(candidate, protocol.Ending(Outcome.WRONG, reason, worker.output_tail()))
                del self._open[candidate.id]

    def _complete(self, candidate: Candidate) -> None:
        measurement, target = None, candidate.lane.target
        if candidate.rounds and self._job.samples:
            reason = self._policy.reason(candidate.rounds, candidate.seconds_spent)
            measurement = summarize(
                candidate.rounds, candidate.energy, target=target, settings=self._settings,
                stop_reason=reason if candidate.outclassed_by is None else "outclassed",
            )  # fmt: skip
            check = timing_check(
                target, candidate.operation, candidate.facts.declared, measurement, candidate.rounds
            )
            if candidate.verdict is not None:
                candidate.verdict = with_check(candidate.verdict, check)
            if check.outcome is CheckOutcome.FAILED:
                self._end(candidate, protocol.Ending(Outcome.WRONG, check.detail))
                return
        self._finish(candidate, self._records.done(candidate, measurement))

    # -- conversing with workers, and what their failures mean -----------------------------------

    def _converse(
        self,
        worker: WorkerProcess,
        request: protocol.Open | protocol.Sample | protocol.Close,
        kinds: tuple[type[protocol.Frame], ...],
        waiting: deque[Candidate],
        take: Callable[[Candidate, Any], None],
    ) -> None:
        """Send a request about the candidates `waiting`, if any. `take` gets its answers in order.

        Raises:
            WorkerLost: the worker is gone, or its replies are flawed.
        """
        if not waiting:
            return
        worker.send(request)
        since = time.perf_counter()
        self._enter(worker, request, waiting)
        while True:
            reply: Any = worker.expect(kinds, [one.id for one in waiting][:1])
            if isinstance(reply, protocol.Answered):
                return
            candidate = waiting[0]
            if flaw := protocol.flaw_of(reply, candidate.wire, self._job):
                raise worker.distrust(flaw)
            with self._mutex:
                if isinstance(reply, protocol.ON_THE_WAY):
                    self._take_on_the_way(worker, candidate, reply)
                    continue
                # Raises if the worker is spoiled, while the candidate can still be blamed.
                self._raise_if_fatal(worker, candidate, reply.failure)
                self._answered = waiting.popleft()
                now = time.perf_counter()
                self._waited_s, since = now - since, now
                take(candidate, reply)
                if candidate.id in self._ended or candidate in self._second_chances:
                    worker.may_be_damaged = True
                if time.monotonic() - self._stored_at > STORE_EVERY_S:
                    self._store()
                worker.mark_output()
                self._enter(worker, request, waiting)

    def _enter(
        self, worker: WorkerProcess, request: protocol.Frame, waiting: Sequence[Candidate]
    ) -> None:
        """Start the deadline of the stage in which `request` is answered, which is shorter for
        rounds that are expected to end soon."""
        stage, expected_s = Stage.BUILD, None
        if isinstance(request, protocol.Close):
            stage = Stage.VERIFY
        elif isinstance(request, protocol.Sample):
            stage, rounds = Stage.MEASURE, waiting[0].rounds if waiting else ()
            expected_s = max((taken.seconds for taken in rounds), default=None)
        worker.set_deadline(stage, DOING[stage], expected_s=expected_s)

    def _take_on_the_way(
        self,
        worker: WorkerProcess,
        candidate: Candidate,
        reply: protocol.Entered | protocol.Trying | protocol.LeftBehind,
    ) -> None:
        match reply:
            case protocol.Entered():
                candidate.stage = reply.stage
                worker.set_deadline(reply.stage, DOING[reply.stage])
                if candidate.id not in self._open:  # otherwise a further worker opens it
                    self._journal.publish(Doing(f"{DOING[reply.stage]} {candidate}"))
            case protocol.Trying():
                what = f"trying one launch of {candidate}, which is predicted to be slow"
                self._journal.publish(Doing(what))
                budget = LaunchBudget(self._job, verifies=candidate.verdict is None)
                worker.set_limit(budget.trial_s, protocol.Ending(Outcome.SKIPPED, budget.overrun()))
            case protocol.LeftBehind():
                candidate.left_behind = (*candidate.left_behind, *reply.processes)[
                    : protocol.MOST_LEFT
                ]

    def _blame(self, candidate: Candidate, ending: protocol.Ending) -> None:
        """End `candidate`, or give it a second chance alone if another may be the cause."""
        ran_out = ending.outcome is Outcome.OUT_OF_MEMORY
        is_shared = bool(self._open) or self._opens_ahead
        workers = self.pool.running.get(candidate.lane.id, ())
        is_damaged = any(worker.may_be_damaged for worker in workers)
        is_doubtful = is_shared and (ran_out or ending.may_be_anothers)
        is_doubtful |= is_damaged and (ran_out or ending.is_death)
        if is_doubtful and not candidate.runs_alone:
            self._second_chances.append(candidate)
        else:
            self._end(candidate, ending)

    def _blame_for_loss(
        self, waiting: Sequence[Candidate], ending: protocol.Ending
    ) -> Candidate | None:
        """Blame a candidate for the loss of a worker that should have answered for `waiting`: the
        first of these or, after its last answer, the candidate that it answered for, unless that
        has already ended. Returns the candidate that is blamed."""
        candidate = waiting[0] if waiting else self._answered
        if candidate is not None and candidate.id not in self._ended:
            self._open.pop(candidate.id, None)
            self._blame(candidate, ending)
        return candidate

    def _raise_if_fatal(
        self, worker: WorkerProcess, candidate: Candidate, failure: protocol.Failure | None
    ) -> None:
        """Raise where a failure of `candidate` affects more than itself: WorkerLost if its worker
        cannot continue."""
        if failure is None:
            return
        if failure.kind == DeviceLostError.__name__:
            if self._journal.experiment.count_device_loss(candidate.id) >= MOST_DEVICE_LOSSES:
                reason = f"device lost twice while {DOING[candidate.stage]} it: {failure.message}"
                self._end(candidate, protocol.Ending(Outcome.CRASH, reason, worker.output_tail()))
            raise DeviceLostError(
                failure.message, hint="The same command resumes when the device is back."
            )
        if failure.kind == StorageError.__name__:
            # Not the fault of the dispatch, which is tried again when there is memory.
            raise StorageError(failure.message, hint=failure.hint)
        if failure.worker_is_unusable:
            ending = protocol.ending_of(failure, worker.output_tail())
            worker.kill()
            raise protocol.WorkerLost(ending)

    def _drop_workers(self, lane: int) -> list[Candidate]:
        """Forget a lane's workers, one of which is lost. Returns the open candidates that they
        held."""
        self.pool.drop(lane)
        self._stale = {key: one for key, one in self._stale.items() if one.lane.id != lane}
        held = [candidate for candidate in self._open.values() if candidate.lane.id == lane]
        for candidate in held:
            del self._open[candidate.id]
            candidate.workers.clear()
        return held

    # -- records -----------------------------------------------------------------------------

    def _end(self, candidate: Candidate, ending: protocol.Ending) -> None:
        """End a candidate that did not complete, with its record."""
        if ending.outcome is Outcome.SKIPPED:
            candidate.stage = Stage.BUILD  # a launch on trial is not a verification
        self._finish(candidate, self._records.ended(candidate, ending))

    def _finish(self, candidate: Candidate, record: Record) -> None:
        self._finished[candidate.id] = record
        self._ended.add(candidate.id)

    def _store(self) -> None:
        """Make rounds, verdicts of continuing candidates, and records durable."""
        finished, self._finished = self._finished, {}
        rounds, self._rounds = self._rounds, []
        verdicts, self._verdicts = self._verdicts, {}
        going_on = {key: verdicts[key] for key in verdicts if key not in finished}
        self._journal.add_rounds(rounds, going_on)
        self._journal.finish(finished)
        self._stored_at = time.monotonic()


def _losses(
    work: Sequence[Callable[[], None]], *, at_once: bool = True
) -> dict[int, protocol.WorkerLost]:
    """Do all parts of `work`, `at_once` or in turn up to the first loss. Returns the losses of
    workers, by the part's number."""
    found: dict[int, protocol.WorkerLost] = {}
    if not at_once:
        for number, part in enumerate(work):
            try:
                part()
            except protocol.WorkerLost as lost:
                return {number: lost}
        return found
    with ThreadPoolExecutor(len(work), thread_name_prefix="worker") as threads:
        for number, done in enumerate([threads.submit(one) for one in work]):
            try:
                done.result()
            except protocol.WorkerLost as lost:
                found[number] = lost
    return found


def _by_lane(candidates: Iterable[Candidate]) -> list[tuple[int, list[Candidate]]]:
    """`candidates` by the number of their lane, in the given order."""
    return sorted(grouped(candidates, lambda candidate: candidate.lane.id).items())
