"""Compiles dispatches ahead of measuring, in a pool of worker processes.

Each thread of the pool has compile workers of its own, one per lane. A batch holds dispatches of
one lane, of one large operation or of several small ones, because a provider may share the cost of
starting its compiler. After a crash, the rest of a batch is halved until the culprit is isolated.
After a deadline, the rest is compiled one by one, so that a configuration that hangs is awaited
only twice. Either way only the culprit's own row fails.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import pairwise

from gemmetry.domain.errors import DeviceLostError
from gemmetry.domain.outcome import Outcome, Stage
from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.failures import Ending, WorkerLost, ending_of
from gemmetry.engine.workers.process import WorkerContext, WorkerProcess
from gemmetry.engine.workers.protocol import Answered, Compile, CompileDone
from gemmetry.engine.workers.replies import out_of_turn

MAX_BATCH = 24
"""The most dispatches compiled in one request. That many amortise a compiler's start: on two cores,
128 IREE matmuls with their default configurations took 23 s of processor time in requests of 12 to
32, and 36 s one by one. A larger batch would lose more to a crash and answer later."""

BATCH_DEADLINES = 2
"""Until its next answer, a batch may take this many times the deadline of one dispatch. Providers
may answer for all dispatches at the end, and the default deadline is hundreds of times what a small
product takes. Dispatches that need more are compiled alone, each with a whole deadline."""

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
        self._jobs = context.settings.jobs or context.cores
        self._threads = ThreadPoolExecutor(self._jobs, thread_name_prefix="compile")
        self._local = threading.local()
        self._workers: set[WorkerProcess] = set()
        self._mutex = threading.Lock()
        self._broken: dict[int, Ending] = {}

    def submit(
        self, candidates: Iterable[Candidate], progress: Progress
    ) -> list[Future[list[Failed]]]:
        """Start compiling. Facts are stored in the candidates; the futures return the failures."""
        by_lane: dict[int, list[Candidate]] = defaultdict(list)
        for candidate in candidates:
            candidate.stage = Stage.COMPILE
            by_lane[candidate.lane.id].append(candidate)
        batches = [batch for group in by_lane.values() for batch in split(group, self._jobs)]
        # A single batch may use the processors that no other batch uses.
        jobs = max(1, self._jobs // max(1, len(batches)))
        return [self._threads.submit(self._compile, batch, jobs, progress) for batch in batches]

    def compile(self, candidates: Sequence[Candidate], progress: Progress) -> list[Failed]:
        """Compile all candidates and wait."""
        return collect(self.submit(candidates, progress))

    def close(self) -> None:
        """End all compile workers; at once if the stop flag is set."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.request_end()
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def _compile(self, batch: list[Candidate], jobs: int, progress: Progress) -> list[Failed]:
        failed, left, ending = self._attempt(batch, jobs, progress)
        if len(batch) == 1 and left:
            progress(1, str(batch[0]))
            return [Failed(batch[0], ending or _NO_ANSWER)]
        hung = ending is not None and ending.outcome is Outcome.TIMEOUT
        size = 1 if hung else -(-len(left) // 2)
        for start in range(0, len(left), max(1, size)):
            failed += self._compile(left[start : start + size], jobs, progress)
        return failed

    def _attempt(
        self, batch: Sequence[Candidate], jobs: int, progress: Progress
    ) -> tuple[list[Failed], list[Candidate], Ending | None]:
        """Send one request. Returns the failures, the candidates without an answer, and how the
        worker was lost, if it was."""
        waiting = {candidate.id: candidate for candidate in batch}
        failed: list[Failed] = []
        worker: WorkerProcess | None = None
        try:
            worker = self._worker(batch[0], jobs)
            worker.send(Compile(tuple(candidate.wire for candidate in batch)))
            while True:
                worker.set_deadline(Stage.COMPILE, "compiling", min(len(waiting), BATCH_DEADLINES))
                reply = worker.receive()
                if isinstance(reply, Answered):
                    return failed, list(waiting.values()), None
                if not isinstance(reply, CompileDone) or reply.id not in waiting:
                    raise worker.distrust(out_of_turn(reply))
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
        worker = WorkerProcess(lane, self._context, self._context.hello(lane, jobs=jobs))
        with self._mutex:
            self._workers.add(worker)
        failure = worker.wait_ready()
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


def split(group: Sequence[Candidate], jobs: int) -> list[list[Candidate]]:
    """Split into batches of nearly equal size, in the given order: as few as ``MAX_BATCH`` allows,
    and a multiple of `jobs`, so that all workers end at about the same time."""
    fewest = -(-len(group) // MAX_BATCH)
    count = min(len(group), -(-fewest // jobs) * jobs)
    bounds = [len(group) * part // max(1, count) for part in range(count + 1)]
    return [list(group[start:end]) for start, end in pairwise(bounds)]


def collect(futures: Sequence[Future[list[Failed]]]) -> list[Failed]:
    """Wait for compile batches. Returns all failures."""
    wait(futures)
    return [failed for future in futures for failed in future.result()]


_NO_ANSWER = Ending(Outcome.CRASH, "the provider's compile method returned no result for it")
