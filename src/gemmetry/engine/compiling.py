"""Compiles dispatches ahead of measuring, in a pool of worker processes.

Each thread of the pool drives compile workers of its own, one a lane. A batch is one operation's
configurations; what a crash or a deadline leaves of it is compiled one by one, so that a
configuration that breaks its compiler costs its own row and no other.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from gemmetry.domain.errors import DeviceLostError
from gemmetry.domain.outcome import Outcome, Stage
from gemmetry.engine.candidate import Candidate
from gemmetry.engine.failures import Ending, WorkerLost, ending_of
from gemmetry.engine.protocol import Answered, Compile, Compiled
from gemmetry.engine.worker_process import WorkerContext, WorkerProcess
from gemmetry.hardware.detect import usable_cores

MAX_BATCH = 32
"""Dispatches compiled in one call: a provider shares work among them, and a larger batch would
leave the other processors of the machine idle at the end."""

Progress = Callable[[int, str], None]
"""Called with the number of dispatches just compiled and the name of one."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A dispatch that did not compile."""

    candidate: Candidate
    ending: Ending


class CompilePool:
    """`jobs` compile workers at a time; 0: one per processor."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._jobs = context.settings.jobs or usable_cores()
        self._threads = ThreadPoolExecutor(self._jobs, thread_name_prefix="compile")
        self._local = threading.local()
        self._workers: set[WorkerProcess] = set()
        self._mutex = threading.Lock()
        self._broken: dict[int, Ending] = {}

    def submit(
        self, candidates: Iterable[Candidate], progress: Progress
    ) -> list[Future[list[Failed]]]:
        """Start compiling; facts go into the candidates, the futures tell who failed."""
        by_operation: dict[tuple[int, str], list[Candidate]] = defaultdict(list)
        for candidate in candidates:
            candidate.stage = Stage.COMPILE
            by_operation[candidate.lane.id, candidate.operation_name].append(candidate)
        size = self._batch_size(by_operation.values())
        batches = [
            group[start : start + size]
            for group in by_operation.values()
            for start in range(0, len(group), size)
        ]
        # A single batch may use the processors that no other batch does.
        jobs = max(1, self._jobs // max(1, len(batches)))
        return [self._threads.submit(self._compile, batch, jobs, progress) for batch in batches]

    def compile(self, candidates: Sequence[Candidate], progress: Progress) -> list[Failed]:
        """Compile all and wait."""
        return collect(self.submit(candidates, progress))

    def close(self) -> None:
        """End all compile workers; with the stop flag set, at once."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def _batch_size(self, groups: Iterable[list[Candidate]]) -> int:
        sizes = [len(group) for group in groups]
        per_job = -(-sum(sizes) // self._jobs) if sizes else 1
        return max(1, min(MAX_BATCH, per_job))

    def _compile(self, batch: list[Candidate], jobs: int, progress: Progress) -> list[Failed]:
        failed, unanswered, ending = self._attempt(batch, jobs, progress)
        if len(batch) == 1 and unanswered:
            progress(1, str(batch[0]))
            return [Failed(batch[0], ending or _NO_ANSWER)]
        for candidate in unanswered:
            failed += self._compile([candidate], jobs, progress)
        return failed

    def _attempt(
        self, batch: Sequence[Candidate], jobs: int, progress: Progress
    ) -> tuple[list[Failed], list[Candidate], Ending | None]:
        """One request; who failed, who got no answer, and how the worker was lost if it was."""
        waiting = {candidate.id: candidate for candidate in batch}
        failed: list[Failed] = []
        worker: WorkerProcess | None = None
        try:
            worker = self._worker(batch[0], jobs)
            worker.send(Compile(tuple(candidate.wire for candidate in batch)))
            while True:
                worker.set_deadline(self._deadline_s, "compiling")
                reply = worker.receive()
                if isinstance(reply, Answered):
                    return failed, list(waiting.values()), None
                assert isinstance(reply, Compiled)
                candidate = waiting.pop(reply.id)
                candidate.facts = reply.facts
                if reply.failure is not None:
                    if reply.failure.kind == DeviceLostError.__name__:
                        raise DeviceLostError(reply.failure.message)
                    failed.append(Failed(candidate, ending_of(reply.failure, "")))
                progress(1, str(candidate))
        except WorkerLost as lost:
            self._forget(batch[0].lane.id, worker)
            return failed, list(waiting.values()), lost.ending
        except BaseException:
            self._forget(batch[0].lane.id, worker)
            raise

    @property
    def _deadline_s(self) -> float:
        return self._context.settings.deadlines_s[Stage.COMPILE]

    def _worker(self, candidate: Candidate, jobs: int) -> WorkerProcess:
        mine: dict[int, tuple[int, WorkerProcess]] = self._local.__dict__.setdefault("workers", {})
        lane = candidate.lane
        if lane.id in self._broken:
            raise WorkerLost(self._broken[lane.id])
        known = mine.get(lane.id)
        if known is not None and known[0] == jobs:
            return known[1]
        if known is not None:
            self._forget(lane.id, known[1])
        hello = self._context.hello(
            lane, jobs=jobs, force_compile=self._context.settings.force_compile
        )
        worker = WorkerProcess(lane, self._context, hello)
        with self._mutex:
            self._workers.add(worker)
        failure = worker.wait_ready(self._context.settings.deadlines_s[Stage.BUILD])
        if failure is not None:
            self._forget(lane.id, worker)
            self._broken[lane.id] = ending_of(failure, "")
            raise WorkerLost(self._broken[lane.id])
        mine[lane.id] = (jobs, worker)
        return worker

    def _forget(self, lane: int, worker: WorkerProcess | None) -> None:
        self._local.__dict__.setdefault("workers", {}).pop(lane, None)
        if worker is not None:
            worker.kill()
            with self._mutex:
                self._workers.discard(worker)


def collect(futures: Sequence[Future[list[Failed]]]) -> list[Failed]:
    """Wait for compile batches; everyone who failed."""
    wait(futures)
    return [failed for future in futures for failed in future.result()]


_NO_ANSWER = Ending(Outcome.CRASH, "the provider's compile method gave no result for it")
