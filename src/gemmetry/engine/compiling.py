"""Compiles dispatches ahead of measuring, in a pool of worker processes.

Each thread of the pool has compile workers of its own, one per lane. A batch holds dispatches of
one lane, of one large operation or of several small ones, because a provider may share the cost of
starting its compiler. After a crash, the rest of a batch is halved until the culprit is isolated.
After a deadline, the rest is compiled one by one, so that a configuration that hangs is awaited
only twice. Either way only the culprit's own row fails.

Which small shapes verification will build, so that they are compiled before it needs them.

Compiles what a device is to measure next, and ends what does not compile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import chain, pairwise

from gemmetry.domain.contracts import Provider
from gemmetry.domain.dispatch import Target
from gemmetry.domain.errors import DeviceLostError, Outcome, Stage
from gemmetry.domain.operation import Operation, operation_name
from gemmetry.domain.record import StageProgress
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.tables import grouped
from gemmetry.engine.bench import shapes_of, stages_of
from gemmetry.engine.candidates import Candidate, Job, RecordMaker
from gemmetry.engine.journal import Journal
from gemmetry.engine.planning import LaneProvider
from gemmetry.engine.process import WorkerContext, WorkerProcess, stop_all
from gemmetry.engine.protocol import (
    Answered,
    Compile,
    CompileDone,
    Ending,
    WorkerLost,
    ending_of,
    out_of_turn,
)
from gemmetry.engine.schema import Lane
from gemmetry.verification.checks.contents import contents_sizes
from gemmetry.verification.checks.shapes import long_sizes
from gemmetry.verification.companions import (
    DEFAULT_TILE,
    Companions,
    covering_operations,
    rounded_options,
    tail_operations,
    whole_tile,
)

MAX_BATCH = 24
"""The most dispatches compiled in one request. That many amortise a compiler's start: on two cores,
128 IREE matmuls with their default configurations took 23 s of processor time in requests of 12 to
32, and 36 s one by one. A larger batch would lose more to a crash and answer later."""

_SMALL_BATCH = 4
"""Fewest small shapes for another worker, which takes longer to start than to compile one."""

BATCH_DEADLINES = 2
"""Until its next answer, a batch may take this many times the deadline of one dispatch. Providers
may answer for all dispatches at the end, and the default deadline is hundreds of times what a small
product takes. Dispatches that need more are compiled alone, each with a whole deadline."""

Progress = Callable[[int, str], None]
"""Called with the number of dispatches just compiled and the name of one."""


class CompilePool:
    """`jobs` compile workers at a time; 0: one per processor."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._jobs = context.settings.jobs or context.cores
        self._threads = ThreadPoolExecutor(self._jobs, thread_name_prefix="compile")
        self._workers: dict[tuple[int, int], tuple[int, WorkerProcess]] = {}
        """By thread and lane, with the processors that it may use."""
        self._broken: dict[int, Ending] = {}

    def submit(
        self, candidates: Iterable[Candidate], progress: Progress, *, fewest: int = 1
    ) -> list[Future[dict[int, Ending]]]:
        """Start compiling. Facts are stored in the candidates; the futures return the endings of
        those that do not compile, by number.

        Args:
            fewest: dispatches that are worth a worker of their own.
        """
        by_lane = grouped(candidates, lambda candidate: candidate.lane.id)
        batches = [
            batch for group in by_lane.values()
            for batch in split(group, min(self._jobs, -(-len(group) // fewest)))
        ]  # fmt: skip
        # A single batch may use the processors that no other batch uses.
        jobs = max(1, self._jobs // max(1, len(batches)))
        futures = [self._threads.submit(self._compile, batch, jobs, progress) for batch in batches]
        for batch, future in zip(batches, futures, strict=True):
            for candidate in batch:
                candidate.compiling, candidate.stage = future, Stage.COMPILE
        return futures

    def close(self) -> None:
        """End all compile workers; at once if the stop flag is set."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        stop_all([worker for _, worker in self._workers.values()])
        self._workers.clear()

    def _compile(
        self, batch: Sequence[Candidate], jobs: int, progress: Progress
    ) -> dict[int, Ending]:
        failed, left, ending = self._attempt(batch, jobs, progress)
        if len(batch) == 1 and left:
            progress(1, str(batch[0]))
            return {batch[0].id: ending or _NO_ANSWER}
        hung = ending is not None and ending.outcome is Outcome.TIMEOUT
        size = 1 if hung else -(-len(left) // 2)
        for start in range(0, len(left), max(1, size)):
            failed |= self._compile(left[start : start + size], jobs, progress)
        return failed

    def _attempt(
        self, batch: Sequence[Candidate], jobs: int, progress: Progress
    ) -> tuple[dict[int, Ending], list[Candidate], Ending | None]:
        """Send one request. Returns the endings of failures, the candidates without an answer, and
        how the worker was lost, if it was."""
        waiting, lane = {candidate.id: candidate for candidate in batch}, batch[0].lane
        failed: dict[int, Ending] = {}
        try:
            worker = self._worker(lane, jobs)
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
                    failed[candidate.id] = ending_of(reply.failure, "")
                progress(1, str(candidate))
        except WorkerLost as lost:
            self._forget(lane)
            return failed, list(waiting.values()), lost.ending
        except BaseException:
            self._forget(lane)
            raise

    def _worker(self, lane: Lane, jobs: int) -> WorkerProcess:
        """This thread's worker of `lane`."""
        if lane.id in self._broken:
            raise WorkerLost(self._broken[lane.id])
        key = (threading.get_ident(), lane.id)
        if key not in self._workers or self._workers[key][0] != jobs:
            self._forget(lane)
            worker = WorkerProcess(lane, self._context, jobs=jobs)
            self._workers[key] = (jobs, worker)
            if (failure := worker.wait_ready()) is not None:
                self._broken[lane.id] = ending_of(failure, "")
                raise WorkerLost(self._broken[lane.id])
        return self._workers[key][1]

    def _forget(self, lane: Lane) -> None:
        """Kill this thread's worker of `lane`, if it has one."""
        if known := self._workers.pop((threading.get_ident(), lane.id), None):
            known[1].kill()


def split(group: Sequence[Candidate], jobs: int) -> list[list[Candidate]]:
    """Split into batches of nearly equal size, in the given order: as few as ``MAX_BATCH`` allows,
    and a multiple of `jobs`, so that all workers end at about the same time."""
    fewest = -(-len(group) // MAX_BATCH)
    count = min(len(group), -(-fewest // jobs) * jobs)
    bounds = [len(group) * part // max(1, count) for part in range(count + 1)]
    return [list(group[start:end]) for start, end in pairwise(bounds)]


def compile_failures(candidates: Iterable[Candidate]) -> dict[int, Ending]:
    """Wait for the compilers of `candidates`. Returns the endings of failed compilations, by
    number; other failures of the same batches may be among them."""
    futures = {one.compiling for one in candidates if one.compiling is not None}
    wait(futures)
    return {number: ending for future in futures for number, ending in future.result().items()}


_NO_ANSWER = Ending(Outcome.CRASH, "the provider's compile method returned no result for it")


class CompanionsAhead:
    """Lists the shapes with which level standard tests a configuration, once for each.

    They are compiled in parallel while the first dispatches are built and verified; a shape that is
    not ready, or that does not compile, is built where it is tested.
    """

    def __init__(self, providers: Mapping[int, Provider], settings: RunSettings) -> None:
        """`providers`: by the number of their lanes."""
        self._providers = providers
        self._is_needed = settings.verify and settings.verification_level != "quick"
        self._seed, self._level = settings.seed, settings.verification_level
        self._known: set[tuple[object, ...]] = set()
        self._number = 0

    def of(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The shapes that verifying `candidates` needs, other than for earlier ones, as candidates
        whose numbers are those of no dispatch."""
        found: list[Candidate] = []
        for candidate in candidates if self._is_needed else ():
            lane, configuration = candidate.lane, candidate.configuration
            provider = self._providers[lane.id]
            key = (lane.id, configuration.name, candidate.operation.signature, configuration.tile)
            if key in self._known or not provider.rebuilds_quickly:
                continue
            self._known.add(key)
            for operation in _shapes(candidate, provider, self._seed, self._level):
                self._number -= 1
                own = provider.parse_configuration(configuration.name, operation, lane.target)
                if own is not None:
                    name = operation_name(operation)
                    found.append(Candidate(self._number, lane, operation, name, own))
        return found


def _shapes(candidate: Candidate, provider: Provider, seed: int, level: str) -> Iterator[Operation]:
    operation, configuration = candidate.operation, candidate.configuration
    companions = Companions(
        lambda _: None,
        configuration.tile,
        stages_of(configuration),
        most_shapes=shapes_of(provider, operation, candidate.lane.target, level),
    )
    whole = whole_tile(operation, companions)
    long = long_sizes(configuration.tile or DEFAULT_TILE)
    batches = chain(*contents_sizes(companions, seed))
    choices = chain(
        () if whole is None else ((whole,),),
        tail_operations(operation, companions, thorough=False),
        (rounded_options(operation, sizes) for sizes in long),
        (rounded_options(operation, sizes, as_batch=True) for sizes in batches),
        covering_operations(operation, companions, seed),
    )
    target, listed = candidate.lane.target, set()
    for options in choices:
        first = next((one for one in options if provider.supports(one, target) is None), None)
        if first is not None and first not in listed:
            listed.add(first)
            yield first


@dataclass(eq=False)
class CompilingAhead:
    """Hands candidates to a compile pool, and records what becomes of them there. `_lanes` are
    given by their numbers."""

    _job: Job
    _lanes: Mapping[int, LaneProvider]
    _journal: Journal
    _records: RecordMaker

    def __post_init__(self) -> None:
        providers = {key: item.provider for key, item in self._lanes.items()}
        self._companions = CompanionsAhead(providers, self._job.settings)

    def chunks(
        self, chunks: Iterable[list[Candidate]], target: Target, pool: CompilePool
    ) -> Iterator[list[Candidate]]:
        """Yield the candidates to build, chunk by chunk.

        On a GPU a chunk may still compile (:func:`compile_failures`), as does the next one; on a
        CPU that would disturb the measurement. If nothing is run, the pool also continues without a
        pause at the end of a chunk.
        """
        opens = self._job.uses_device and target.index is not None
        waiting: list[Candidate] = []
        for chunk in chunks:
            self.start(chunk, pool)
            if self._job.uses_device and not target.is_gpu:
                yield self.ready(chunk)
                continue
            if opens:
                # What the verification of the chunk builds in addition.
                companions = self._companions.of(filter(self.compiles, chunk))
                pool.submit(companions, lambda _count, _current: None, fewest=_SMALL_BATCH)
            if waiting:
                yield waiting if opens else self.ready(waiting)
            waiting = chunk
        if waiting:
            yield waiting if opens else self.ready(waiting)

    def start(self, chunk: Sequence[Candidate], pool: CompilePool) -> None:
        """Start compiling those of `chunk` that are compiled ahead."""
        wanted = [c for c in chunk if not self._job.uses_device or self.compiles(c)]
        done = 0

        def progress(count: int, current: str) -> None:
            nonlocal done
            done += count
            self._journal.publish(StageProgress(Stage.COMPILE, done, len(wanted), current))

        pool.submit(wanted, progress)

    def ready(self, chunk: Sequence[Candidate]) -> list[Candidate]:
        """Wait for a chunk's compilers. Returns the candidates to build."""
        failed = compile_failures(chunk)
        records = {
            one.id: self._records.ended(one, failed[one.id]) for one in chunk if one.id in failed
        }
        ready: list[Candidate] = []
        for candidate in chunk:
            if candidate.id in failed:
                continue
            lane = candidate.lane
            if self._job.uses_device and lane.target.index is not None:
                ready.append(candidate)
            elif lane.target.index is None and not self.compiles(candidate):
                name = lane.target.name
                reason = f"{lane.provider} compiles nothing for {name} without the device"
                ending = Ending(Outcome.UNSUPPORTED, reason)
                records[candidate.id] = self._records.ended(candidate, ending)
            else:
                records[candidate.id] = self._records.done(candidate, None)
        self._journal.finish(records)
        return ready

    def compiles(self, candidate: Candidate) -> bool:
        """Whether the candidate's provider compiles ahead."""
        lane = candidate.lane
        return self._lanes[lane.id].provider.compiles_ahead(lane.target)
