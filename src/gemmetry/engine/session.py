"""The summary of a run.

A run: plan -> journal -> compile pool and device sessions -> summary.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gemmetry.domain.dispatch import Plan, TargetKind
from gemmetry.domain.errors import EnvironmentFailure, Outcome, listed
from gemmetry.domain.files import remove
from gemmetry.domain.record import DispatchFinished, Environment, Listener, PlanReady, ignore_events
from gemmetry.domain.settings import RAY, check_executor
from gemmetry.engine.candidates import RecordMaker
from gemmetry.engine.jobs import Job, job_of
from gemmetry.engine.journal import FAILURES, Journal
from gemmetry.engine.planning import (
    LaneProvider,
    enumerate_plan,
    make_lanes,
    obstacles,
    wanted_again,
    with_known_configurations,
)
from gemmetry.engine.serving import Serving
from gemmetry.engine.slots import plan_for_nodes, serving_devices
from gemmetry.engine.store.experiment import Experiment
from gemmetry.engine.store.rows import Lane, PlanBatch
from gemmetry.engine.store.schema import os_failure
from gemmetry.engine.workers.local import thread_variables
from gemmetry.engine.workers.process import WorkerContext
from gemmetry.hardware.bandwidth import measure_host_bandwidth
from gemmetry.hardware.detect import capture_environment
from gemmetry.providers.registry import load_provider

_LEFT_OUT = (Outcome.UNSUPPORTED, Outcome.SKIPPED)


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
    operations_without_ok: int = 0
    """The operations of which no dispatch is ok."""
    failure: str = ""
    """Why the run ended before its plan did; the same command resumes it."""

    @property
    def finished(self) -> int:
        """The dispatches with an outcome."""
        return sum(self.outcomes.values())

    @property
    def exit_status(self) -> int:
        """0: done. 1: something was wrong, crashed, timed out or ran out of memory, or an operation
        has no ok dispatch. 3: the environment failed. (2, an invalid request, is raised; 130, an
        interrupt, is KeyboardInterrupt.)"""
        if self.failure:
            return EnvironmentFailure.exit_status
        failed = any(outcome.is_failure and count for outcome, count in self.outcomes.items())
        return 1 if failed or self.operations_without_ok else 0


def summarize_run(
    experiment: Experiment,
    *,
    kept: int,
    samples_kept: int,
    failure: str = "",
    may_leave_out: bool = False,
) -> RunSummary:
    """Count the results in the journal.

    `may_leave_out`: operations that the device does not support are no failure, as long as others
        are ok.
    """
    outcomes = {Outcome(name): count for name, count in experiment.outcome_counts().items()}
    leaves_out = may_leave_out and Outcome.OK in outcomes
    return RunSummary(
        experiment=experiment.path,
        total=experiment.total(),
        kept=kept,
        samples_kept=samples_kept,
        outcomes=outcomes,
        operations_without_ok=experiment.operations_without_ok(_LEFT_OUT if leaves_out else ()),
        failure=failure,
    )


TEMPORARY = "temporary"
"""The folder in the experiment for files that last as long as a worker."""


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
        damaged = store.drop_damaged()
        kept_below = _grow(store, plan, job, rows) if store.must_grow else None
        if not store.is_new:
            # The environments of all commands that ran here, by the journal's numbers.
            lanes = [_loaded(lane) for lane in store.lanes()]
        context = _context(plan, experiment, written)
        # Files left by a run that was killed.
        _remove_temporary(context)
        commands = experiment / "artifacts" / "commands" if plan.settings.save_commands else None
        outputs = job.outputs(store, environment.id, fresh=fresh)
        journal = Journal(store, outputs.noting(listener), commands)
        if store.lost:
            journal.warn(f"{store.lost[:1].upper()}{store.lost[1:]}; they are measured again.")
        if damaged:
            names = listed(damaged, 5)
            journal.warn(f"{len(damaged)} damaged in the journal, measured again: {names}")
        kept, samples_kept = _announce(journal, None if is_remote else environment, kept_below)
        is_sampled_here = job.samples and not is_remote
        bandwidth = _host_bandwidth(lanes, store) if is_sampled_here else None
        records = dataclasses.replace(records, host_bytes_per_s=bandwidth)
        try:
            serving = Serving(lanes, context, journal, records, outputs)
            if is_remote:
                failure = work_on_ray(plan, journal, serving.remaining())
            else:
                failure = serving.work_here(devices, environment)
            if counters is not None and not failure:
                failure = _count(counters, context, journal, lanes)
        except OSError as error:
            raise os_failure(experiment, error) from error
        finally:
            _remove_temporary(context)
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
    from gemmetry.engine.counting import Counting

    return Counting(counters, context, journal, {item.lane.id: item for item in lanes}).work()


def _remove_temporary(context: WorkerContext) -> None:
    with contextlib.suppress(OSError):
        remove(context.temporary, inside=context.temporary.parent)


def _context(plan: Plan, experiment: Path, generated: Path) -> WorkerContext:
    # Only the experiment may be a link: what is in it, and removed, is not elsewhere.
    folder = experiment.resolve()
    return WorkerContext(
        settings=plan.settings,
        generated=generated,
        references=folder / "references",
        failures=folder / FAILURES,
        logs=folder / "artifacts" / "logs",
        temporary=folder / TEMPORARY,
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
