"""Measures the dispatches of one device: warm workers side by side, one of them working at a time.

This thread holds the device's measuring token simply by being the only one that talks to its
workers. A worker that is lost costs the dispatch that it was working on; the others that it held
are opened again in a fresh one.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from gemmetry.domain.errors import DeviceLostError
from gemmetry.domain.events import StageProgress
from gemmetry.domain.outcome import Outcome, Stage, Verification
from gemmetry.domain.target import Target
from gemmetry.engine.dispatches.candidate import Candidate, RecordMaker, merge_facts
from gemmetry.engine.dispatches.grouping import Budget
from gemmetry.engine.dispatches.launch_budget import LaunchBudget
from gemmetry.engine.dispatches.opening import Opening
from gemmetry.engine.dispatches.results import DOING, Results, skip_recheck
from gemmetry.engine.failures import Ending, WorkerLost, ending_of
from gemmetry.engine.journal import Journal
from gemmetry.engine.workers.crew import Crews
from gemmetry.engine.workers.process import WorkerContext, WorkerProcess
from gemmetry.engine.workers.protocol import (
    Answered,
    Close,
    Closed,
    Entered,
    LeftBehind,
    Message,
    Open,
    Opened,
    Reply,
    Sample,
    Sampled,
    Trying,
)
from gemmetry.engine.workers.replies import (
    CLOSING,
    MOST_LEFT,
    OPENING,
    SAMPLING,
    flaw_of_closed,
    flaw_of_entered,
    flaw_of_opened,
    flaw_of_sampled,
)
from gemmetry.measurement.stopping import StopPolicy


class DeviceSession:
    """One device's workers and their work."""

    def __init__(
        self, target: Target, context: WorkerContext, journal: Journal, records: RecordMaker
    ) -> None:
        self._settings = context.settings
        self._job = context.job
        self._journal = journal
        self._policy = StopPolicy(context.settings, target)
        self._results = Results(self._job, self._policy, journal, records)
        processes = self._job.process_count(target)
        self._budget = Budget(target, self._job, processes)
        self._crews = Crews(context, processes)
        self._open: dict[int, Candidate] = {}
        self._stale: dict[int, Candidate] = {}
        """Ended in one worker while others hold them open."""
        self._alone: list[Candidate] = []
        self._opening = Opening((), verifies=False)
        self._answered: Candidate | None = None
        """Whose answer came last."""
        self._turn = 0

    def measure(self, candidates: Iterable[Candidate]) -> None:
        """Bring every candidate to its record.

        Raises:
            DeviceLostError: the device is gone; what is known is stored, what is not finished
                stays for resume.
            StorageError: the journal cannot be written.
            RunStopped: the run is being ended.
        """
        try:
            for group in self._job.groups(candidates, self._budget):
                self._measure_group(group)
            alone, self._alone = self._alone, []
            for candidate in alone:
                candidate.runs_alone = True
                self._measure_group([candidate])
        except DeviceLostError:
            self._results.store()
            raise

    def close(self) -> None:
        """End the workers."""
        self._crews.stop()

    def kill(self) -> None:
        """End the workers at once."""
        self._crews.kill()

    # -- a group -------------------------------------------------------------------------------

    def _measure_group(self, group: Sequence[Candidate]) -> None:
        rounds = self._journal.experiment.rounds(candidate.id for candidate in group)
        verdicts = self._journal.experiment.verdicts(candidate.id for candidate in group)
        for candidate in group:
            if not candidate.rounds:
                candidate.restore(rounds.get(candidate.id, ()))
            candidate.verdict = candidate.verdict or verdicts.get(candidate.id)
        counted = group if self._job.reports_opening else ()
        self._opening = Opening(counted, verifies=self._settings.verify)
        for lane, members in _by_lane(group):
            self._open_all(lane, members)
        self._results.store()
        if self._job.samples:
            self._sample_until_done(group[0].id)
        self._close_all()
        self._results.store()

    def _sample_until_done(self, group_seed: int) -> None:
        number = 0
        total = len(self._open)
        while True:
            wanted = {
                key: count
                for key, candidate in self._open.items()
                if (count := self._next_count(candidate))
            }
            if not wanted:
                return
            # Rounds with the same turn are compared in pairs, so that no two runs may share one.
            self._turn = time.time_ns()
            self._progress(Stage.MEASURE, total - len(wanted), total, "")
            order = sorted(wanted)
            # Another order each round, so that nobody always follows the same neighbour; seeded,
            # so that a run can be done again.
            random.Random(f"{self._settings.seed}:{group_seed}:{number}").shuffle(order)
            # Asked again each time: a lost worker may have taken candidates along.
            for place, keys in groupby(order, key=self._place):
                requests = [(key, wanted[key]) for key in keys if self._place(key) == place]
                if requests and place is not None:
                    self._sample(*place, requests)
            self._results.store()
            number += 1

    def _next_count(self, candidate: Candidate) -> int:
        return self._policy.next_count(
            candidate.rounds, candidate.seconds_spent, candidate.sample_s
        )

    def _place(self, key: int) -> tuple[int, int] | None:
        """Lane and number of the worker whose turn with a candidate it is; None: it has ended."""
        candidate = self._open.get(key)
        return None if candidate is None else (candidate.lane.id, candidate.next_worker)

    # -- conversations -------------------------------------------------------------------------

    def _open_all(self, lane: int, members: Iterable[Candidate]) -> None:
        """Open candidates in the lane's workers, replacing these as often as one is lost."""
        waiting = deque(members)
        while waiting:
            try:
                crew = self._crews.of(waiting[0].lane)
            except WorkerLost as lost:
                for candidate in waiting:
                    self._results.end(candidate, lost.ending)
                return
            asked, line = tuple(waiting), waiting
            try:
                for number, worker in enumerate(crew.workers):
                    if number > 0:
                        line = deque(one for one in asked if one.id in self._open)
                    if line:
                        worker.send(Open(tuple(candidate.wire for candidate in line)))
                        self._hear_opened(worker, number, line)
            except WorkerLost as lost:
                culprit = line.popleft() if line else self._answered
                self._blame_for_loss(culprit, lost.ending)
                self._results.store()  # a deadline may have passed on this one: it must not again
                if culprit is not None:
                    self._tell_opened(culprit)
                # Behind those that have not been opened yet, of which the next may cost a worker.
                waiting.extend(self._drop_crew(lane))

    def _hear_opened(self, worker: WorkerProcess, number: int, waiting: deque[Candidate]) -> None:
        self._enter(worker, Stage.BUILD)
        while True:
            match self._hear(worker, OPENING, waiting):
                case Answered():
                    return
                case Entered() as entered:
                    self._refuse(worker, flaw_of_entered(entered))
                    waiting[0].stage = entered.stage
                    self._enter(worker, entered.stage)
                case Trying():
                    budget = LaunchBudget(self._job, verifies=waiting[0].verdict is None)
                    late = Ending(Outcome.SKIPPED, budget.overrun())
                    worker.set_limit(budget.trial_s, late)
                case LeftBehind() as left:
                    self._note_left(waiting[0], left)
                case Opened() as opened:
                    candidate = waiting[0]
                    self._refuse(worker, flaw_of_opened(opened, candidate.wire, self._job))
                    if opened.failure is not None:
                        # Raises where the worker is spoiled, with the candidate still to blame.
                        self._results.heed(worker, candidate, opened.failure)
                    self._answered = waiting.popleft()
                    if number == 0:
                        self._take_opened(worker, candidate, opened)
                        self._results.store_if_due()
                        self._tell_opened(candidate)
                    else:
                        self._take_opened_again(worker, number, candidate, opened)
                    worker.mark_output()
                    self._enter(worker, Stage.BUILD)

    def _take_opened(self, worker: WorkerProcess, candidate: Candidate, opened: Opened) -> None:
        candidate.facts = merge_facts(candidate.facts, opened.facts)
        candidate.trace = opened.trace
        if opened.verdict is not None:
            candidate.verdict = opened.verdict
            candidate.right_output = opened.right_output
            self._results.add_verdict(candidate, opened.verdict)
        if opened.failure is not None:
            self._blame(candidate, ending_of(opened.failure, worker.output_tail()))
        elif opened.skip_reason:
            self._results.end(candidate, Ending(Outcome.SKIPPED, opened.skip_reason))
        elif candidate.verdict is not None and candidate.verdict.status is Verification.FAILED:
            reason = candidate.verdict.reason or candidate.verdict.first_bad or "wrong result"
            self._results.end(candidate, Ending(Outcome.WRONG, reason, worker.output_tail()))
        else:
            self._open[candidate.id] = candidate
            candidate.sample_s = opened.sample_s
            candidate.workers[:] = [0]
            candidate.was_launched = True
            self._budget.observe(opened.free_memory_bytes)

    def _take_opened_again(
        self, worker: WorkerProcess, number: int, candidate: Candidate, opened: Opened
    ) -> None:
        """A further worker has opened what the first one has verified. Where its memory does not
        suffice, it takes no part in the rounds."""
        if opened.failure is None:
            if not opened.skip_reason:
                candidate.workers.append(number)
            return
        ending = ending_of(opened.failure, worker.output_tail())
        if ending.outcome is not Outcome.OUT_OF_MEMORY:
            self._blame(candidate, ending)
            self._stale[candidate.id] = self._open.pop(candidate.id)

    def _tell_opened(self, candidate: Candidate) -> None:
        progress = self._opening.count(candidate)
        if progress is not None:
            self._journal.tell(progress)

    def _sample(self, lane: int, number: int, requests: Sequence[tuple[int, int]]) -> None:
        """One worker's part of a round; what its loss leaves out comes with the next round."""
        worker = self._crews.workers(lane)[number]
        waiting = deque(self._open[key] for key, _ in requests)
        try:
            worker.send(Sample(tuple(requests)))
            while True:
                self._enter(worker, Stage.MEASURE)
                match self._hear(worker, SAMPLING, waiting):
                    case Answered():
                        return
                    case Sampled() as sampled:
                        candidate = waiting[0]
                        self._refuse(worker, flaw_of_sampled(sampled))
                        if sampled.failure is not None:
                            self._results.heed(worker, candidate, sampled.failure)
                        self._answered = waiting.popleft()
                        if sampled.failure is not None:
                            del self._open[candidate.id]
                            candidate.workers.remove(number)
                            self._stale[candidate.id] = candidate
                            tail = worker.output_tail()
                            self._blame(candidate, ending_of(sampled.failure, tail))
                        elif sampled.round is not None:
                            taken = dataclasses.replace(
                                sampled.round, turn=self._turn, process=worker.started_ns
                            )
                            self._results.add_round(candidate.add_round(taken))
                        self._results.store_if_due()
                        worker.mark_output()
        except WorkerLost as lost:
            self._blame_for_loss(waiting[0] if waiting else self._answered, lost.ending)
            self._open_all(lane, self._drop_crew(lane))

    def _close_all(self) -> None:
        for lane, members in _by_lane([*self._open.values(), *self._stale.values()]):
            self._close(lane, members)
        self._open.clear()
        self._stale.clear()

    def _close(self, lane: int, members: Sequence[Candidate]) -> None:
        """Look at what each worker's launches left, and complete the candidates that are right."""
        going_on = [candidate for candidate in members if candidate.id in self._open]
        waiting: deque[Candidate] = deque()
        try:
            for number, worker in enumerate(self._crews.workers(lane)):
                waiting = deque(one for one in members if number in one.workers)
                if waiting:
                    worker.send(Close(tuple(candidate.id for candidate in waiting)))
                    self._hear_closed(worker, waiting)
        except WorkerLost as lost:
            blamed = waiting.popleft() if waiting else None
            if blamed is not None and blamed.id in self._open:
                self._blame(blamed, lost.ending)
                del self._open[blamed.id]
            for candidate in going_on:
                skip_recheck(candidate)
            self._crews.drop(lane)
        for candidate in going_on:
            if candidate.id in self._open:
                self._results.complete(candidate)

    def _hear_closed(self, worker: WorkerProcess, waiting: deque[Candidate]) -> None:
        while True:
            self._enter(worker, Stage.VERIFY)
            match self._hear(worker, CLOSING, waiting):
                case Answered():
                    return
                case LeftBehind() as left:
                    self._note_left(waiting[0], left)
                case Closed() as closed:
                    candidate = waiting[0]
                    self._refuse(worker, flaw_of_closed(closed, self._job))
                    if closed.failure is not None:
                        self._results.heed(worker, candidate, closed.failure)
                    waiting.popleft()
                    if candidate.id in self._open:
                        self._take_closed(worker, candidate, closed)
                    worker.mark_output()

    def _take_closed(self, worker: WorkerProcess, candidate: Candidate, closed: Closed) -> None:
        """The candidate is no longer open where something was wrong."""
        if closed.failure is not None:
            self._blame(candidate, ending_of(closed.failure, worker.output_tail()))
            del self._open[candidate.id]
        elif self._results.is_wrong_after_timing(candidate, closed, worker.output_tail()):
            del self._open[candidate.id]

    def _hear(
        self, worker: WorkerProcess, kinds: tuple[type[Message], ...], waiting: deque[Candidate]
    ) -> Reply:
        """A reply that is one of `kinds` and about the first of `waiting`, or the end of them."""
        return worker.hear(kinds, [candidate.id for candidate in islice(waiting, 1)])

    @staticmethod
    def _note_left(candidate: Candidate, left: LeftBehind) -> None:
        candidate.left_behind = (*candidate.left_behind, *left.processes)[:MOST_LEFT]

    @staticmethod
    def _refuse(worker: WorkerProcess, flaw: str) -> None:
        """End a worker whose reply has a flaw."""
        if flaw:
            raise worker.distrust(flaw)

    # -- outcomes ------------------------------------------------------------------------------

    def _blame(self, candidate: Candidate | None, ending: Ending) -> None:
        if candidate is None:
            return
        beside_others = len(self._open) > 0 and not candidate.runs_alone
        is_doubtful = ending.outcome is Outcome.OUT_OF_MEMORY or ending.may_be_anothers
        if is_doubtful and beside_others:
            self._alone.append(candidate)
            return
        self._results.end(candidate, ending)

    def _blame_for_loss(self, candidate: Candidate | None, ending: Ending) -> None:
        """A worker is lost: the one that it worked on is to blame or, after its last answer, the
        one that it answered for, unless that has ended already."""
        if candidate is not None and not self._results.has_ended(candidate):
            self._open.pop(candidate.id, None)
            self._blame(candidate, ending)

    # -- workers -------------------------------------------------------------------------------

    def _drop_crew(self, lane: int) -> list[Candidate]:
        """Forget a lane's workers, one of which is lost; the candidates that they held open."""
        self._crews.drop(lane)
        for candidate in [one for one in self._stale.values() if one.lane.id == lane]:
            del self._stale[candidate.id]
        held = [candidate for candidate in self._open.values() if candidate.lane.id == lane]
        for candidate in held:
            del self._open[candidate.id]
            candidate.workers.clear()
        return held

    def _enter(self, worker: WorkerProcess, stage: Stage) -> None:
        worker.set_deadline(stage, DOING[stage])

    def _progress(self, stage: Stage, done: int, total: int, current: str) -> None:
        self._journal.tell(StageProgress(stage, done, total, current))


def _by_lane(candidates: Sequence[Candidate]) -> Iterator[tuple[int, list[Candidate]]]:
    ordered = sorted(candidates, key=lambda candidate: candidate.lane.id)
    for lane, members in groupby(ordered, key=lambda candidate: candidate.lane.id):
        yield lane, list(members)
