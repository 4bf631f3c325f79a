"""Single stages of a run: writing sources, and the plans that compile or record traces.

Has the devices of this machine do the work of a run.

The summary of a run.

A run: plan -> journal -> compile pool and device sessions -> summary.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from pathlib import Path

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Plan, Target, TargetKind
from gemmetry.domain.errors import (
    DeviceLostError,
    DispatchError,
    EnvironmentFailure,
    Outcome,
    Stage,
    listed,
)
from gemmetry.domain.files import COMPILED, remove, user_cache
from gemmetry.domain.record import (
    DispatchFinished,
    Environment,
    Listener,
    Message,
    PlanReady,
    StageProgress,
    ignore_events,
)
from gemmetry.domain.settings import RAY, TraceSchedule, check_executor
from gemmetry.domain.specs.generated import Generated, add_generated
from gemmetry.engine.candidates import Candidate, Job, Outputs, RecordMaker, job_of
from gemmetry.engine.compiling import CompilePool, CompilingAhead
from gemmetry.engine.device import DeviceSession
from gemmetry.engine.experiment import EnumeratePlan, Experiment
from gemmetry.engine.journal import Journal
from gemmetry.engine.planning import (
    LaneProvider,
    candidates_of,
    enumerate_plan,
    make_lanes,
    obstacles,
    planned_rows,
    wanted_again,
    with_known_configurations,
)
from gemmetry.engine.process import (
    WorkerContext,
    default_threads,
    fork_server,
    thread_variables,
    wait_for_ends,
)
from gemmetry.engine.schema import Lane, PlanBatch, PlannedDispatch, os_failure
from gemmetry.engine.slots import (
    Budget,
    GroupQueue,
    Slot,
    device_id,
    groups,
    longest_first,
    plan_for_nodes,
    serving_devices,
    unfinished,
)
from gemmetry.hardware.detect import capture_environment, nvidia_free_bytes
from gemmetry.hardware.roofline import measure_host_bandwidth
from gemmetry.providers.base import kernel_provider
from gemmetry.providers.registry import load_provider


def compile_plan(plan: Plan) -> Plan:
    """The plan that compiles what `plan` would measure. It has its own hash, so that its records
    are not mistaken for those of `plan`."""
    settings = dataclasses.replace(plan.settings, measure=False, verify=False)
    document = {**plan.document, "stages": ["compile"]}
    return dataclasses.replace(plan, settings=settings, document=document)


def trace_plan(plan: Plan, schedule: TraceSchedule) -> Plan:
    """The plan that records traces of what `plan` would measure; nothing is timed."""
    settings = dataclasses.replace(plan.settings, measure=False, trace=schedule)
    how = {**dataclasses.asdict(schedule), "deadline_s": settings.deadlines_s[Stage.TRACE]}
    if not schedule.chakra_all_steps:
        del how["chakra_all_steps"]  # Grids from before this was configurable continue.
    document = {**plan.document, "stages": ["trace"], "trace": how}
    return dataclasses.replace(plan, settings=settings, document=document)


def generate(plan: Plan, workspace: Workspace, *, listener: Listener = ignore_events) -> list[Path]:
    """Write the sources of every dispatch of `plan`, in this process, and a list of them. Returns
    the files, in order.

    Sources that a provider cannot generate are left out, with a warning.

    Raises:
        RequestError: the plan cannot be carried out. OSError: a file cannot be written.
    """
    lanes = {item.lane.id: item for item in make_lanes(plan, load_provider)}
    groups: dict[tuple[str, int], list[PlannedDispatch]] = defaultdict(list)
    for row, refusal in planned_rows(plan, list(lanes.values())):
        if refusal:
            place = f"{lanes[row.lane].lane.provider}:{row.operation}"
            listener(Message(f"{place}: {refusal}", "warning"))
        else:
            groups[row.operation, row.lane].append(row)
    paths: dict[Path, None] = {}
    written: list[Generated] = []
    for number, ((name, lane), rows) in enumerate(groups.items(), 1):
        dispatches = [
            Dispatch(c.operation, c.configuration, c.lane.provider, c.lane.target)
            for c in candidates_of(rows, lanes)
        ]
        first = dispatches[0]
        current = f"{first.provider}:{name}"
        try:
            made = lanes[lane].provider.generate(dispatches, workspace)
        except DispatchError as error:
            listener(Message(f"{current}: {error.message}", "warning"))
        else:
            paths.update(dict.fromkeys(made))
            if made:
                names = tuple(dispatch.configuration.name for dispatch in dispatches)
                source = str(made[0].relative_to(workspace.generated))
                written.append(
                    Generated(first.provider, first.target.name, first.operation, names, source)
                )
        listener(StageProgress(Stage.GENERATE, number, len(groups), current))
    if written:
        add_generated(workspace.generated, written)
    return list(paths)


CHUNK = 128
"""The number of dispatches that are compiled and then measured: enough to keep a pool busy, and few
enough that the first results arrive soon and a kill loses little."""


@dataclass(eq=False)
class Serving:
    """The work of a run."""

    _lanes: Mapping[int, LaneProvider]
    _context: WorkerContext
    _journal: Journal
    _records: RecordMaker
    _outputs: Outputs

    def __post_init__(self) -> None:
        self._job = job_of(self._context.settings)
        self._ahead = CompilingAhead(self._job, self._lanes, self._journal, self._records)
        self._targets = list(dict.fromkeys(item.lane.target for item in self._lanes.values()))
        self._numbers = count()

    def work_here(self, devices: Sequence[Target], environment: Environment) -> str:
        """Have `devices` of this machine do all the work; none: the plan's own. Returns why it
        ended early; "" if it did not."""
        pool = CompilePool(self._context)
        served: list[tuple[Slot, Target, GroupQueue, Budget]] = []
        try:
            for target in self._targets:
                queue, budget = self._work_on(target, pool, max(1, len(devices)))
                for device in devices or [target]:
                    identifier = device_id(device, environment)
                    if device.kind is TargetKind.CUDA and device.index is not None:
                        budget.expect(nvidia_free_bytes(identifier))
                    slot = Slot(device, identifier, self._context, is_only=len(devices) <= 1)
                    served.append((slot, target, queue, budget))
            failures = [self._serve(*served[0])] if len(served) == 1 else self._serve_all(served)
        finally:
            self._context.stop.set()
            pool.close()
        # Nothing waits for a device that was lost twice at the last dispatch, or whose work another
        # one has done.
        return "; ".join(filter(None, failures)) if any(map(self._remains, self._targets)) else ""

    def remaining(self) -> Iterator[Candidate]:
        """The candidates of all targets that have no record yet, in plan order."""
        return (one for target in self._targets for one in self._candidates(target))

    def _work_on(
        self, target: Target, pool: CompilePool, devices: int
    ) -> tuple[GroupQueue, Budget]:
        """What there is to do on `target`, and what the `devices` devices that do it share."""
        budget = Budget(target, self._job, self._job.process_count(target), devices=devices)
        chunks: Iterable[list[Candidate]] = chunked(self._candidates(target), CHUNK)
        if devices > 1:
            chunks = (longest_first(chunk, budget.most_shared) for chunk in chunks)
        chunks = self._ahead.chunks(chunks, target, pool)
        found = (group for chunk in chunks for group in groups(chunk, budget))
        return GroupQueue(found, self._context.stop), budget

    def _serve_all(self, served: Sequence[tuple[Slot, Target, GroupQueue, Budget]]) -> list[str]:
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

    def _serve(self, slot: Slot, target: Target, queue: GroupQueue, budget: Budget) -> str:
        """Measure groups of `target` on one device until none is left. Returns why it ended
        early."""
        session = DeviceSession(slot, budget, self._journal, self._records)
        key = f"{next(self._numbers)} {slot.device_id}"
        try:
            if self._job.uses_device and slot.target.is_gpu and slot.target.index is not None:
                # While the first of them compile.
                session.start(islice(self._candidates(target), CHUNK))
            session.measure(queue.groups(key))
        except DeviceLostError as lost:
            session.pool.kill()
            what = f"{slot.target.device or slot.target.name}: {lost.message}"
            if queue.leave(key, partial(unfinished, self._journal.experiment)):
                self._journal.warn(f"{what}. Other devices continue its work.")
            else:
                self._journal.warn(str(lost) if self._remains(target) else lost.message)
            return what
        except BaseException:
            session.pool.kill()
            raise
        session.pool.stop(waits=not slot.target.is_gpu)
        return ""

    def _remains(self, target: Target) -> bool:
        """Whether a dispatch of `target` has no record yet."""
        return next(self._candidates(target), None) is not None

    def _candidates(self, target: Target) -> Iterator[Candidate]:
        """The remaining candidates of `target`, in plan order. Those that were running when the
        device was lost come last, each on its own, so that the others have their results before it
        may be lost again."""
        mine = {key: item for key, item in self._lanes.items() if item.lane.target == target}
        store = self._journal.experiment
        suspects = store.device_losses()
        for is_suspect in (False, True) if suspects else (False,):
            rows = (
                row for row in store.remaining(list(mine)) if (row.id in suspects) is is_suspect
            )
            for candidate in candidates_of(rows, mine):
                candidate.runs_alone = is_suspect
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Counts over the whole experiment, including earlier runs."""

    experiment: Path
    total: int
    """The dispatches of the plan."""
    kept: int = 0
    """The dispatches that were done before this run."""
    samples_kept: int = 0
    outcomes: Mapping[Outcome, int] = field(default_factory=dict)
    lacks_ok: bool = False
    """Whether an operation has no ok dispatch, or the provider of ``--kernel`` has none."""
    failure: str = ""
    """Why the run ended before its plan did; the same command resumes it."""

    @property
    def finished(self) -> int:
        """The dispatches with an outcome."""
        return sum(self.outcomes.values())

    @property
    def exit_status(self) -> int:
        """0: done. 1: something was wrong, crashed, timed out or ran out of memory, or what should
        have an ok dispatch has none. 3: the environment failed. (2, an invalid request, is raised;
        130, an interrupt, is KeyboardInterrupt.)"""
        if self.failure:
            return EnvironmentFailure.exit_status
        failed = any(outcome.is_failure and count for outcome, count in self.outcomes.items())
        return int(failed or self.lacks_ok)


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
    check_executor(plan.settings.executor)
    if counters is not None:
        from gemmetry.engine.counting import check_counters

        check_counters(plan)
    job = job_of(plan.settings)
    is_remote = plan.settings.executor == RAY
    if is_remote:
        from gemmetry.engine.ray_tasks import read_needs, work_on_ray

        plan = plan_for_nodes(plan, job, counters)
        read_needs(plan.settings.executor_options, 0)
    lanes = make_lanes(plan, load_provider)
    devices = () if is_remote else serving_devices(plan.settings.devices, lanes)
    environment = _environment(plan, lanes)
    folder = experiment.resolve()
    written, kept_code = _code_folders(generated, folder)
    records = RecordMaker(plan.settings, environment.id, folder, written)

    def rows() -> tuple[Sequence[Lane], Iterable[PlanBatch]]:
        return [item.lane for item in lanes], enumerate_plan(plan, lanes, records.refused)

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
        damaged = store.drop_damaged()
        kept_below = _grow(store, plan, job, rows) if store.must_grow else None
        if not store.is_new:
            # The environments of all commands that ran here, by the journal's numbers.
            lanes = [_loaded(lane) for lane in store.lanes()]
        context = _context(plan, lanes, written, kept_code, folder)
        # Files left by a run that was killed.
        _remove_temporary(context)
        commands = experiment / "artifacts" / "commands" if plan.settings.save_commands else None
        outputs = job.outputs(store, environment.id, fresh=fresh)
        journal = Journal(store, outputs.noting(listener), commands)
        _warn(journal, damaged, plan.settings.shard)
        kept, samples_kept = _announce(journal, None if is_remote else environment, kept_below)
        bandwidth = _host_bandwidth(lanes, store) if job.samples and not is_remote else None
        records = dataclasses.replace(records, host_bytes_per_s=bandwidth)
        try:
            by_number = {item.lane.id: item for item in lanes}
            serving = Serving(by_number, context, journal, records, outputs)
            if is_remote:
                failure = work_on_ray(plan, journal, serving.remaining())
            else:
                failure = serving.work_here(devices, environment)
            if counters is not None and not failure:
                from gemmetry.engine.counting import Counting

                failure = Counting(counters, context, journal, by_number).work()
        except OSError as error:
            raise os_failure(experiment, error) from error
        finally:
            _remove_temporary(context)
            outputs.close()
        outcomes = {Outcome(name): number for name, number in store.outcome_counts().items()}
        leaves_out = job.may_leave_out and Outcome.OK in outcomes
        excused = (Outcome.UNSUPPORTED, Outcome.SKIPPED) if leaves_out else ()
        return RunSummary(
            experiment=store.path,
            total=store.total(),
            kept=kept,
            samples_kept=samples_kept,
            outcomes=outcomes,
            lacks_ok=store.lacks_ok(excused) or store.lacks_ok(excused, provider=kernel_provider()),
            failure=failure,
        )


def _code_folders(generated: Path | None, folder: Path) -> tuple[Path, Path | None]:
    """Where providers write sources and binaries, and where their compilers keep machine code for
    other experiments. A folder that is given is complete and can be moved."""
    if generated is not None:
        return generated.resolve(), None
    return (folder / "artifacts" / "generated").resolve(), user_cache(COMPILED)


def _context(
    plan: Plan, lanes: Iterable[LaneProvider], generated: Path, kept: Path | None, folder: Path
) -> WorkerContext:
    """What the workers have in common; those of a GPU here are forked."""
    context = WorkerContext(settings=plan.settings, generated=generated, folder=folder, kept=kept)
    wait_for_ends()
    gpus = [item.lane.target for item in lanes if item.lane.target.is_gpu]
    forks = plan.settings.executor != RAY and bool(gpus)
    server = fork_server(context.environment(gpus[0]) if forks else None)
    return context if server is None else dataclasses.replace(context, start=server.start_worker)


def _remove_temporary(context: WorkerContext) -> None:
    with contextlib.suppress(OSError):
        remove(context.temporary, inside=context.temporary.parent)


def _grow(store: Experiment, plan: Plan, job: Job, rows: EnumeratePlan) -> int:
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
    cores = environment.cpu_count
    most = max((default_threads(one.lane.target, cores) for one in lanes), default=cores)
    threads = thread_variables(plan.settings.threads or most)
    return dataclasses.replace(environment, variables={**environment.variables, **threads})


def _host_bandwidth(lanes: Sequence[LaneProvider], store: Experiment) -> float | None:
    """The host's memory bandwidth, if something is still to be sampled on its CPU. It is measured
    before any worker starts, so that neither disturbs the other."""
    mine = [item.lane.id for item in lanes if item.lane.target.kind is TargetKind.CPU]
    if not mine or next(store.remaining(mine), None) is None:
        return None
    return store.host_bandwidth(measure_host_bandwidth)


def _warn(journal: Journal, damaged: Sequence[str], shard: str) -> None:
    """Warn of what was lost or `damaged` in the journal, and of a `shard` without operations."""
    store = journal.experiment
    if store.lost:
        journal.warn(f"{store.lost[:1].upper()}{store.lost[1:]}; they are measured again.")
    if damaged:
        names = listed(damaged, 5)
        journal.warn(f"{len(damaged)} damaged in the journal, measured again: {names}")
    if shard and not store.total():
        journal.warn(f"Shard {shard} has no operation; each belongs to one shard.")


def _announce(
    journal: Journal, environment: Environment | None, kept_below: int | None
) -> tuple[int, int]:
    """Announce what is planned and what is kept. Returns the numbers of dispatches and samples that
    are kept.

    `environment` is that of what is measured; None where nodes have environments of their own.
    `kept_below` is the number of the last dispatch before the experiment grew, if it did.
    """
    store = journal.experiment
    dropped = 0 if environment is None else store.drop_foreign_rounds()
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
        if environment is not None and not other.agrees_with(environment)
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
