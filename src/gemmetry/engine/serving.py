"""Has the devices of this machine do the work of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from itertools import count, islice

from gemmetry.domain.dispatch import Target
from gemmetry.domain.errors import DeviceLostError
from gemmetry.domain.record import Environment
from gemmetry.engine.candidates import Candidate, RecordMaker
from gemmetry.engine.compiling import CompilePool, CompilingAhead
from gemmetry.engine.device import DeviceSession
from gemmetry.engine.jobs import Outputs
from gemmetry.engine.journal import Journal
from gemmetry.engine.planning import LaneProvider, Resolver
from gemmetry.engine.slots import Budget, GroupQueue, Slot, device_id, longest_first, unfinished
from gemmetry.engine.workers.process import WorkerContext

CHUNK = 128
"""The number of dispatches that are compiled and then measured: enough to keep a pool busy, and few
enough that the first results arrive soon and a kill loses little."""


@dataclasses.dataclass(frozen=True, slots=True)
class TargetWork:
    """The work of one target of the plan, and what the devices that do it share."""

    target: Target
    queue: GroupQueue
    budget: Budget


class Serving:
    """The work of a run."""

    def __init__(
        self,
        lanes: Sequence[LaneProvider],
        context: WorkerContext,
        journal: Journal,
        records: RecordMaker,
        outputs: Outputs,
    ) -> None:
        self._lanes: Mapping[int, LaneProvider] = {item.lane.id: item for item in lanes}
        self._outputs = outputs
        self._context = context
        self._journal = journal
        self._records = records
        self._job = context.job
        self._ahead = CompilingAhead(self._job, self._lanes, journal, records)
        self._targets = list(dict.fromkeys(item.lane.target for item in lanes))
        self._numbers = count()

    def work_here(self, devices: Sequence[Target], environment: Environment) -> str:
        """Have `devices` of this machine do all the work; none: the plan's own. Returns why it
        ended early; "" if it did not."""
        pool = CompilePool(self._context)
        try:
            served = [
                (slot, work)
                for work in (
                    self._work_on(target, pool, max(1, len(devices))) for target in self._targets
                )
                for slot in self._slots(work, devices, environment)
            ]
            if len(served) == 1:
                return self._outcome([self._serve(*served[0])])
            return self._outcome(self._serve_all(served))
        finally:
            self._context.stop.set()
            pool.close()

    def remaining(self) -> Iterator[Candidate]:
        """The candidates of all targets that have no record yet, in plan order."""
        return (one for target in self._targets for one in self._candidates(target))

    def _work_on(self, target: Target, pool: CompilePool, devices: int) -> TargetWork:
        """What there is to do on `target`, which `devices` devices share."""
        budget = Budget(target, self._job, self._job.process_count(target), devices=devices)
        chunks: Iterable[list[Candidate]] = chunked(self._candidates(target), CHUNK)
        if devices > 1:
            chunks = (longest_first(chunk, budget.most_shared) for chunk in chunks)
        chunks = self._ahead.chunks(chunks, target, pool)
        groups = (group for chunk in chunks for group in self._job.groups(chunk, budget))
        return TargetWork(target, GroupQueue(groups, self._context.stop), budget)

    def _slots(
        self, work: TargetWork, devices: Sequence[Target], environment: Environment
    ) -> Iterator[Slot]:
        """The devices of this machine that do `work`."""
        devices = devices or [work.target]
        for device in devices:
            yield Slot(
                device, device_id(device, environment), environment.id, self._context,
                self._journal.experiment.alike, device.device or device.name,
                is_only=len(devices) == 1,
            )  # fmt: skip

    def _serve_all(self, served: Sequence[tuple[Slot, TargetWork]]) -> list[str]:
        """Run a thread for each device; the loss of one does not hold up the others."""
        with ThreadPoolExecutor(len(served), thread_name_prefix="device") as threads:
            running = {threads.submit(self._serve, *one) for one in served}
            failures: list[str] = []
            try:
                while running:
                    done, running = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                    failures += [one.result() for one in done]
            except BaseException:
                self._context.stop.set()
                raise
        return failures

    def _serve(self, slot: Slot, work: TargetWork) -> str:
        """Measure groups on one device until none is left. Returns why it ended early."""
        session = DeviceSession(slot, work.budget, self._journal, self._records)
        key = f"{next(self._numbers)} {slot.device_id}"
        try:
            if self._job.uses_device and slot.target.is_gpu and slot.target.index is not None:
                # While the first of them compile.
                session.start(islice(self._candidates(work.target), CHUNK))
            session.measure(work.queue.groups(key))
        except DeviceLostError as lost:
            session.kill()
            goes_on = work.queue.leave(key, partial(unfinished, self._journal.experiment))
            what = f"{slot.name}: {lost.message}"
            if goes_on:
                self._journal.warn(f"{what}. Other devices continue its work.")
            else:
                self._journal.warn(str(lost) if self._remains(work.target) else lost.message)
            return what
        except BaseException:
            session.kill()
            raise
        session.close()
        return ""

    def _outcome(self, failures: Sequence[str]) -> str:
        """Why the run ended early. Nothing waits for a device that was lost twice at the last
        dispatch, or whose work another one has done."""
        remains = any(self._remains(target) for target in self._targets)
        return "; ".join(filter(None, failures)) if remains else ""

    def _remains(self, target: Target) -> bool:
        """Whether a dispatch of `target` has no record yet."""
        return next(self._candidates(target), None) is not None

    def _candidates(self, target: Target) -> Iterator[Candidate]:
        """The remaining candidates of `target`, in plan order. Those that were running when the
        device was lost come last, each on its own, so that the others have their results before it
        may be lost again."""
        mine = {key: item for key, item in self._lanes.items() if item.lane.target == target}
        resolver = Resolver(mine)
        store = self._journal.experiment
        suspects = store.device_losses()
        rows = (row for row in store.remaining(list(mine)) if row.id not in suspects)
        for candidate in resolver.candidates(rows):
            self._outputs.assign(candidate)
            yield candidate
        if suspects:
            rows = (row for row in store.remaining(list(mine)) if row.id in suspects)
            for candidate in resolver.candidates(rows):
                candidate.runs_alone = True
                self._outputs.assign(candidate)
                yield candidate


def chunked(candidates: Iterable[Candidate], size: int) -> Iterator[list[Candidate]]:
    """Parts of about `size` candidates that end where an operation does, unless the operation is
    huge."""
    chunk: list[Candidate] = []
    for candidate in candidates:
        if len(chunk) >= size and (
            candidate.operation_name != chunk[-1].operation_name or len(chunk) >= 4 * size
        ):
            yield chunk
            chunk = []
        chunk.append(candidate)
    if chunk:
        yield chunk
