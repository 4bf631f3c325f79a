"""Compiles what a device is to measure next, and ends what does not compile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future

from gemmetry.domain.events import StageProgress
from gemmetry.domain.outcome import Outcome, Stage
from gemmetry.domain.record import Record
from gemmetry.domain.target import Target
from gemmetry.engine.compiling import CompilePool, Failed, collect
from gemmetry.engine.dispatches.candidate import Candidate, RecordMaker
from gemmetry.engine.dispatches.companions_ahead import CompanionsAhead
from gemmetry.engine.failures import Ending
from gemmetry.engine.jobs import Job
from gemmetry.engine.journal import Journal
from gemmetry.engine.planning import LaneProvider


class CompilingAhead:
    """Hands candidates to a compile pool, and records what becomes of them there."""

    def __init__(
        self,
        job: Job,
        lanes: Mapping[int, LaneProvider],
        journal: Journal,
        records: RecordMaker,
    ) -> None:
        """`lanes` by their numbers."""
        self._job = job
        self._lanes = lanes
        self._journal = journal
        self._records = records
        self._companions = CompanionsAhead(
            {key: item.provider for key, item in lanes.items()}, job.settings
        )

    def chunks(
        self, chunks: Iterable[list[Candidate]], target: Target, pool: CompilePool
    ) -> Iterator[list[Candidate]]:
        """Yield those of each chunk that are ready to be built.

        On a GPU the next chunk compiles while one is measured; on a CPU that would disturb the
        measurement. If nothing is run, the pool also continues without a pause at the end of a
        chunk.
        """
        waiting: tuple[list[Candidate], list[Future[list[Failed]]]] | None = None
        for chunk in chunks:
            started = (chunk, self.start(chunk, pool))
            if self._job.uses_device and not target.is_gpu:
                yield self.ready(*started)
                continue
            if self._job.uses_device and target.index is not None:
                self.start_companions(chunk, pool)
            if waiting is not None:
                yield self.ready(*waiting)
            waiting = started
        if waiting is not None:
            yield self.ready(*waiting)

    def start_companions(self, chunk: Sequence[Candidate], pool: CompilePool) -> None:
        """Start compiling what the verification of `chunk` builds in addition."""
        ahead = filter(self.compiles, chunk)
        pool.submit(self._companions.of(ahead), lambda _count, _current: None)

    def start(self, chunk: Sequence[Candidate], pool: CompilePool) -> list[Future[list[Failed]]]:
        """Start compiling those of `chunk` that are compiled ahead."""
        wanted = [c for c in chunk if not self._job.uses_device or self.compiles(c)]
        done = 0

        def progress(count: int, current: str) -> None:
            nonlocal done
            done += count
            self._journal.publish(StageProgress(Stage.COMPILE, done, len(wanted), current))

        return pool.submit(wanted, progress)

    def ready(
        self, chunk: Sequence[Candidate], futures: Sequence[Future[list[Failed]]]
    ) -> list[Candidate]:
        """Wait for a chunk's compilers. Returns the candidates to build."""
        failed = {item.candidate.id: item for item in collect(futures)}
        records = {
            key: self._records.ended(item.candidate, item.ending) for key, item in failed.items()
        }
        ready: list[Candidate] = []
        for candidate in chunk:
            if candidate.id in failed:
                continue
            if not self._job.uses_device or candidate.lane.target.index is None:
                records[candidate.id] = self._compile_only_record(candidate)
            else:
                ready.append(candidate)
        self._journal.finish(records)
        return ready

    def _compile_only_record(self, candidate: Candidate) -> Record:
        target = candidate.lane.target
        if target.index is None and not self.compiles(candidate):
            reason = (
                f"{candidate.lane.provider} compiles nothing for {target.name} without the device"
            )
            return self._records.ended(candidate, Ending(Outcome.UNSUPPORTED, reason))
        return self._records.done(candidate, None)

    def compiles(self, candidate: Candidate) -> bool:
        """Whether the candidate's provider compiles ahead."""
        lane = candidate.lane
        return self._lanes[lane.id].provider.compiles_ahead(lane.target)
