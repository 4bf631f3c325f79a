"""A run: plan -> journal -> compile pool and device sessions -> summary."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from pathlib import Path

from gemmetry.domain.dispatch import Plan
from gemmetry.domain.errors import DeviceLostError
from gemmetry.domain.events import (
    DispatchFinished,
    Listener,
    PlanReady,
    StageProgress,
    ignore_events,
)
from gemmetry.domain.outcome import Outcome, Stage
from gemmetry.domain.record import Environment, Record
from gemmetry.domain.target import Target, TargetKind
from gemmetry.engine.compiling import CompilePool, Failed, collect
from gemmetry.engine.device.grouping import Budget
from gemmetry.engine.device.session import DeviceSession
from gemmetry.engine.dispatches.candidate import Candidate, RecordMaker
from gemmetry.engine.dispatches.candidates import Resolver
from gemmetry.engine.dispatches.companions_ahead import CompanionsAhead
from gemmetry.engine.dispatches.evidence_folders import FAILURES
from gemmetry.engine.failures import Ending
from gemmetry.engine.growth import obstacles, wanted_again, with_known_configurations
from gemmetry.engine.jobs import Job, Outputs, job_of
from gemmetry.engine.journal import Journal
from gemmetry.engine.planning import LaneProvider, enumerate_plan, make_lanes
from gemmetry.engine.slots.local import serving_devices
from gemmetry.engine.slots.queue import Group, GroupQueue, unfinished
from gemmetry.engine.slots.slot import Slot, device_id
from gemmetry.engine.summary import RunSummary, summarize_run
from gemmetry.engine.workers.process import WorkerContext
from gemmetry.engine.workers.variables import thread_variables
from gemmetry.hardware.bandwidth import measure_host_bandwidth
from gemmetry.hardware.environment import capture_environment
from gemmetry.providers.registry import load_provider
from gemmetry.store.experiment import Experiment
from gemmetry.store.rows import Lane, PlanBatch
from gemmetry.store.schema import os_failure

TEMPORARY = "temporary"
"""The folder in the experiment for files that last as long as a worker."""

CHUNK = 128
"""The number of dispatches that are compiled and then measured: enough to keep a pool busy, and few
enough that the first results arrive soon and a kill loses little."""


def run(
    plan: Plan,
    experiment: Path,
    *,
    listener: Listener = ignore_events,
    fresh: bool = False,
    command: str = "",
    generated: Path | None = None,
    counters: str | None = None,
) -> RunSummary:
    """Carry out `plan` and store everything in the folder `experiment`, resuming an earlier run.

    Args:
        generated: the folder to which providers write sources and binaries; None: in the
            experiment.
        counters: the set of hardware counters to collect of each dispatch that is ok; None: none.

    Raises:
        RequestError: the plan cannot be run, or the folder belongs to another plan.
        EnvironmentFailure: the profiler that collects counters is missing.
        StorageError, JournalDamagedError: the folder cannot be used; what was stored is kept.
        KeyboardInterrupt: after the workers are ended and the journal is closed.
    """
    if counters is not None:
        from gemmetry.engine.dispatches.counting import check_counters

        check_counters(plan)
    job = job_of(plan.settings)
    lanes = make_lanes(plan, load_provider)
    devices = serving_devices(plan.settings.devices, lanes)
    environment = _environment(plan, lanes)
    written = (generated or experiment / "artifacts" / "generated").resolve()
    records = RecordMaker(plan.settings, environment.id, experiment.resolve(), written)

    def rows() -> tuple[Sequence[Lane], Iterable[PlanBatch]]:
        return [item.lane for item in lanes], enumerate_plan(plan, lanes, records.failed)

    with Experiment.create_or_open(
        experiment,
        plan,
        fresh=fresh,
        environment=environment,
        command=command,
        enumerate_plan=rows,
        obstacles=partial(obstacles, job),
        older_plans_grow=job.older_plans_grow,
    ) as store:
        kept_below = _grow(store, plan, job, rows) if store.must_grow else None
        if not store.is_new:
            # The environments of all commands that ran here, by the journal's numbers.
            lanes = [_loaded(lane) for lane in store.lanes()]
        context = _context(plan, experiment, written)
        # Files left by a run that was killed.
        shutil.rmtree(context.temporary, ignore_errors=True)
        commands = experiment / "artifacts" / "commands" if plan.settings.save_commands else None
        outputs = job.outputs(store, environment.id, fresh=fresh)
        journal = Journal(store, outputs.noting(listener), commands)
        kept, samples_kept = _announce(journal, environment, kept_below)
        bandwidth = _host_bandwidth(lanes, store) if job.samples else None
        records = dataclasses.replace(records, host_bytes_per_s=bandwidth)
        try:
            work = _Run(lanes, context, journal, records, outputs, devices, environment)
            failure = work.work()
            if counters is not None and not failure:
                failure = _count(counters, context, journal, lanes)
        except OSError as error:
            raise os_failure(experiment, error) from error
        finally:
            shutil.rmtree(context.temporary, ignore_errors=True)
            outputs.close()
        return summarize_run(
            store,
            kept=kept,
            samples_kept=samples_kept,
            failure=failure,
            may_leave_out=job.may_leave_out,
        )


def _count(
    counters: str, context: WorkerContext, journal: Journal, lanes: Sequence[LaneProvider]
) -> str:
    from gemmetry.engine.dispatches.counting import Counting

    return Counting(counters, context, journal, {item.lane.id: item for item in lanes}).work()


def _context(plan: Plan, experiment: Path, generated: Path) -> WorkerContext:
    return WorkerContext(
        settings=plan.settings,
        generated=generated,
        references=(experiment / "references").resolve(),
        failures=(experiment / FAILURES).resolve(),
        logs=(experiment / "artifacts" / "logs").resolve(),
        temporary=(experiment / TEMPORARY).resolve(),
    )


def _grow(
    store: Experiment,
    plan: Plan,
    job: Job,
    rows: Callable[[], tuple[Sequence[Lane], Iterable[PlanBatch]]],
) -> int:
    """Add what the experiment lacks of `plan`. Returns the number of its last dispatch before
    that."""
    last = store.last_number()
    lanes, batches = rows()
    lanes = with_known_configurations(lanes, store.lanes())
    store.grow(plan, lanes, batches, wanted_again(store, plan, job))
    return last


def _loaded(lane: Lane) -> LaneProvider:
    provider = load_provider(lane.provider, lane.options)
    return LaneProvider(lane, provider, provider.available())


def _environment(plan: Plan, lanes: Sequence[LaneProvider]) -> Environment:
    versions: dict[str, str] = {}
    for item in lanes:
        if item.unavailable is None:
            # str(): torch's version has a class of its own, which does not encode.
            versions.update({name: str(text) for name, text in item.provider.versions().items()})
    environment = capture_environment(versions)
    threads = plan.settings.threads or environment.cpu_count
    variables = {**environment.variables, **thread_variables(threads)}
    return dataclasses.replace(environment, variables=variables)


def _host_bandwidth(lanes: Sequence[LaneProvider], store: Experiment) -> float | None:
    """The host's memory bandwidth, if something is still to be sampled on its CPU. It is measured
    before any worker starts, so that neither disturbs the other."""
    mine = [item.lane.id for item in lanes if item.lane.target.kind is TargetKind.CPU]
    if not mine or next(store.remaining(mine), None) is None:
        return None
    return store.host_bandwidth(measure_host_bandwidth)


def _announce(
    journal: Journal, environment: Environment, kept_below: int | None
) -> tuple[int, int]:
    """Announce what is planned and what is kept. Returns the numbers of dispatches and samples that
    are kept.

    `kept_below` is the number of the last dispatch before the experiment grew, if it did.
    """
    store = journal.experiment
    dropped = store.drop_foreign_rounds()
    counts = store.outcome_counts()
    kept = 0 if store.is_new else sum(counts.values())
    added = [] if kept_below is None else [r for _, r in store.numbered_records(kept_below)]
    kept -= len(added)
    samples_kept = store.samples_count()
    journal.publish(PlanReady(store.total(), kept, samples_kept, str(store.path)))
    for record in added:
        journal.publish(DispatchFinished(record))
    if store.is_new:
        for record in store.records() if counts else ():
            journal.publish(DispatchFinished(record))
        return 0, 0
    changes = [
        line
        for key, other in store.environments().items()
        if not other.agrees_with(environment)
        for line in other.differences(environment)
    ]
    if changes:
        text = "; ".join(dict.fromkeys(changes))
        journal.warn(f"The environment has changed since this experiment began: {text}")
    if dropped:
        journal.warn(
            f"{dropped} earlier samples of unfinished dispatches are discarded and taken again."
        )
    return kept, samples_kept


@dataclasses.dataclass(frozen=True, slots=True)
class _Work:
    """The work of one target of the plan, and what the devices that do it share."""

    target: Target
    queue: GroupQueue
    budget: Budget


class _Run:
    def __init__(
        self,
        lanes: Sequence[LaneProvider],
        context: WorkerContext,
        journal: Journal,
        records: RecordMaker,
        outputs: Outputs,
        devices: Sequence[Target],
        environment: Environment,
    ) -> None:
        self._lanes: Mapping[int, LaneProvider] = {item.lane.id: item for item in lanes}
        self._outputs = outputs
        self._context = context
        self._journal = journal
        self._records = records
        self._job = context.job
        self._ahead = CompanionsAhead(
            {key: item.provider for key, item in self._lanes.items()}, context.settings
        )
        self._targets = list(dict.fromkeys(item.lane.target for item in lanes))
        self._devices = devices
        self._environment = environment

    def work(self) -> str:
        """Do all the work. Returns why it ended early; "" if it did not."""
        pool = CompilePool(self._context)
        try:
            served = [
                (slot, work) for work in map(partial(self._work_on, pool), self._targets)
                for slot in self._slots(work)
            ]  # fmt: skip
            failures = [self._serve(*served[0])] if len(served) == 1 else self._serve_all(served)
            # Nothing waits for a device that was lost twice at the last dispatch, or whose work
            # another one has done.
            remains = any(self._remains(target) for target in self._targets)
            return "; ".join(filter(None, failures)) if remains else ""
        finally:
            self._context.stop.set()
            pool.close()

    def _work_on(self, pool: CompilePool, target: Target) -> _Work:
        budget = Budget(target, self._job, self._job.process_count(target))
        groups = self._groups(target, pool, budget)
        return _Work(target, GroupQueue(groups, self._context.stop), budget)

    def _slots(self, work: _Work) -> Iterator[Slot]:
        """The devices of this machine that do `work`."""
        devices = self._devices or [work.target]
        for device in devices:
            yield Slot(
                device, device_id(device, self._environment), self._environment.id, self._context,
                self._journal.experiment.alike, is_only=len(devices) == 1,
            )  # fmt: skip

    def _serve_all(self, served: Sequence[tuple[Slot, _Work]]) -> list[str]:
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

    def _serve(self, slot: Slot, work: _Work) -> str:
        """Measure groups on one device until none is left. Returns why it ended early."""
        session = DeviceSession(slot, work.budget, self._journal, self._records)
        key = slot.device_id
        try:
            if self._job.uses_device and slot.target.is_gpu and slot.target.index is not None:
                # While the first of them compile.
                session.start(islice(self._candidates(work.target), CHUNK))
            session.measure(iter(partial(work.queue.take, key), None))
        except DeviceLostError as lost:
            session.kill()
            goes_on = work.queue.leave(key, partial(unfinished, self._journal.experiment))
            name = slot.target.device or slot.target.name
            if goes_on:
                self._journal.warn(f"{name}: {lost.message}. Other devices continue its work.")
            else:
                self._journal.warn(str(lost) if self._remains(work.target) else lost.message)
            return f"{name}: {lost.message}"
        except BaseException:
            session.kill()
            raise
        session.close()
        return ""

    def _remains(self, target: Target) -> bool:
        """Whether a dispatch of `target` has no record yet."""
        return next(self._candidates(target), None) is not None

    def _groups(self, target: Target, pool: CompilePool, budget: Budget) -> Iterator[Group]:
        for chunk in self._compiled_chunks(target, pool):
            yield from self._job.groups(chunk, budget)

    def _compiled_chunks(self, target: Target, pool: CompilePool) -> Iterator[list[Candidate]]:
        """Yield candidates of `target` that are ready to be built, chunk by chunk.

        On a GPU the next chunk compiles while one is measured; on a CPU that would disturb the
        measurement. If nothing is run, the pool also continues without a pause at the end of a
        chunk.
        """
        waiting: tuple[list[Candidate], list[Future[list[Failed]]]] | None = None
        for chunk in _chunks(self._candidates(target), CHUNK):
            started = (chunk, self._start_compiling(chunk, pool))
            if self._job.uses_device and not target.is_gpu:
                yield self._compiled(*started)
                continue
            if self._job.uses_device and target.index is not None:
                ahead = filter(self._compiles_ahead, chunk)
                pool.submit(self._ahead.of(ahead), lambda _count, _current: None)
            if waiting is not None:
                yield self._compiled(*waiting)
            waiting = started
        if waiting is not None:
            yield self._compiled(*waiting)

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

    def _start_compiling(
        self, chunk: Sequence[Candidate], pool: CompilePool
    ) -> list[Future[list[Failed]]]:
        wanted = [c for c in chunk if not self._job.uses_device or self._compiles_ahead(c)]
        done = 0

        def progress(count: int, current: str) -> None:
            nonlocal done
            done += count
            self._journal.publish(StageProgress(Stage.COMPILE, done, len(wanted), current))

        return pool.submit(wanted, progress)

    def _compiled(
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
        if target.index is None and not self._compiles_ahead(candidate):
            reason = (
                f"{candidate.lane.provider} compiles nothing for {target.name} without the device"
            )
            return self._records.ended(candidate, Ending(Outcome.UNSUPPORTED, reason))
        return self._records.done(candidate, None)

    def _compiles_ahead(self, candidate: Candidate) -> bool:
        lane = candidate.lane
        return self._lanes[lane.id].provider.compiles_ahead(lane.target)


def _chunks(candidates: Iterable[Candidate], size: int) -> Iterator[list[Candidate]]:
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
