"""Samples the open candidates of a device in rounds, until all of them have enough."""

from __future__ import annotations

import dataclasses
import random
import time
from collections import deque
from collections.abc import Sequence
from itertools import groupby

from gemmetry.domain.events import StageProgress
from gemmetry.domain.outcome import Stage
from gemmetry.engine.device.conversation import enter, expect, refuse
from gemmetry.engine.device.opening import Opener
from gemmetry.engine.device.standing import Standing
from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.failures import WorkerLost, ending_of
from gemmetry.engine.journal import Journal
from gemmetry.engine.workers.process import WorkerProcess
from gemmetry.engine.workers.protocol import Answered, Sample, Sampled
from gemmetry.engine.workers.replies import SAMPLING, flaw_of_sampled
from gemmetry.measurement.stopping import StopPolicy


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
