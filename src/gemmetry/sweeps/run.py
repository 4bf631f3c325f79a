"""Runs the points of a planned sweep as jobs, and describes them: ``sweep.json`` the sweep, and
``point.json`` in its folder each point.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.text import Text

from gemmetry.dispatches.progress import LiveLines
from gemmetry.domain.errors import RequestError
from gemmetry.domain.files import remove, sync, write_whole
from gemmetry.domain.options import struct_of
from gemmetry.domain.record import Environment
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.settings import LOCAL
from gemmetry.domain.units import noun_for
from gemmetry.engine.external import (
    ExternalJob,
    JobEnd,
    JobEvent,
    JobFinished,
    JobJournal,
    JobListener,
    JobOutcome,
    JobRun,
    JobsPlanned,
    JobStarted,
    JobWarning,
    StartJob,
    is_kept,
    read_ends,
    start_here,
)
from gemmetry.engine.merging import copy_files, whole_document
from gemmetry.engine.schema import LOCK_NAME, FolderLock, indented, now, os_failure
from gemmetry.hardware.detect import (
    CLOCKS,
    TOPOLOGY,
    capture_environment,
    masked_variables,
    masked_words,
    printed_by_tools,
)
from gemmetry.results.texts import printable
from gemmetry.sweeps.folder import LOG, MANIFEST, POINT, ROCPROF, TRACES, json_object
from gemmetry.sweeps.options import SweepOptions
from gemmetry.sweeps.plan import (
    NCU,
    PlannedPoint,
    PlannedSweep,
    common_environment,
    plan_sweep,
    point_command,
    point_environment,
    read_sweep_manifest,
)
from gemmetry.sweeps.rocprof_input import jobs_without_counters
from gemmetry.traces.reading import find_traces

if TYPE_CHECKING:
    from gemmetry.sweeps.api import AnalyzedSweep

JOURNAL, CONFIG, PREVIOUS = "sweep.jsonl", "config.yaml", "previous"

_OF_A_SWEEP = (MANIFEST, JOURNAL, CONFIG, "analysis", "tracelens_analysis", "*thread",
               "nccl_*channels", "*=*", "repeat_*")  # fmt: skip
"""Files that ``--fresh`` moves aside; others in the folder are not the sweep's."""

_PACKAGES = ("torch", "triton", "numpy")
_PREFIXES = ("nvidia-nccl", "nvidia-cublas", "nvidia-cudnn", "nvidia-cuda-runtime", "amd-")
"""Prefixes of packages whose names contain the version of CUDA."""


class SweepRun:
    """A sweep that was run: its points, and how each of them ended."""

    def __init__(self, plan: PlannedSweep, ends: Mapping[str, JobEnd]) -> None:
        self.folder = plan.folder
        self.points = plan.points
        self.ends = ends
        """Folder of a point below :attr:`folder` -> how it ended."""

    @property
    def failed(self) -> list[PlannedPoint]:
        """The points without their traces."""
        return [one for one in self.points if not succeeded(self.ends.get(one.folder))]

    def document(self) -> dict[str, Any]:
        """The content of ``gemmetry sweep run --json``."""
        return _document(self.folder, [
            (one, msgspec.to_builtins(self.ends[one.folder]))
            for one in self.points
            if one.folder in self.ends
        ])  # fmt: skip

    def analyze(self, **options: Any) -> AnalyzedSweep:
        """Analyse the sweep's traces, like :func:`gemmetry.sweeps.api.analyze` with its options."""
        from gemmetry.sweeps.api import analyze

        return analyze(self.folder, **options)

    def __repr__(self) -> str:
        return f"<SweepRun {self.folder}: {len(self.points)} points, {len(self.failed)} failed>"


class SweepPlan:
    """A sweep that can run; nothing has been written yet."""

    def __init__(self, plan: PlannedSweep) -> None:
        self.plan = plan
        self.folder = plan.folder
        self.notes: Sequence[str] = plan.notes
        """Notes before the run, one sentence each."""

    @cached_property
    def jobs(self) -> Sequence[ExternalJob]:
        """The command and environment of each point, in the order in which they run."""
        place = self.folder.absolute()
        return [_point_job(self.plan, point, place, 1) for point in self.plan.points]

    @cached_property
    def kept(self) -> frozenset[str]:
        """The folders of the points that succeeded earlier and do not run again."""
        ends = {} if self.plan.options.fresh else self.ends()
        return frozenset(job.name for job in self.jobs if is_kept(job, ends.get(job.name)))

    def ends(self) -> Mapping[str, JobEnd]:
        """The folder of each point that has ended, and how; none if nothing was stored.

        Raises:
            JournalDamagedError: the journal cannot be read.
        """
        path = self.folder / JOURNAL
        planned = {point.folder for point in self.plan.points}
        ends = read_ends(path) if path.is_file() else {}
        return {name: end for name, end in ends.items() if name in planned}

    def document(self) -> dict[str, Any]:
        """The content of ``gemmetry sweep run --dry-run --json``."""
        return _document(self.folder, [
            (one, {"command": list(job.argv), "environment": dict(job.environment),
                   "kept": job.name in self.kept})
            for one, job in zip(self.plan.points, self.jobs, strict=True)
        ])  # fmt: skip

    def run(self, *, listener: JobListener | None = None, command: str = "") -> SweepRun:
        """Run the points that have not succeeded yet. One that fails is marked, and the others run.

        Args:
            listener: is called with what happens, such as a
                :class:`~gemmetry.engine.external.JobFinished`.
            command: the command line, for the manifest.

        Raises:
            RequestError: another process uses the folder.
            StorageError: a file cannot be written; what is there is kept.
            EnvironmentFailure: the executor cannot be used.
            KeyboardInterrupt: after the running point has been ended.
        """
        folder, listener = self.folder.absolute(), listener or (lambda event: None)
        start = _starter(self.plan)
        with ExitStack() as stack:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                stack.callback(FolderLock(folder, option="--output").release)
                if self.plan.options.fresh:
                    _set_aside(folder)
                work = _Work(self.plan, folder, command)
            except OSError as error:
                raise os_failure(folder, error, option="--output") from error
            if work.changes:
                listener(JobWarning(work.changes))
            with JobJournal(folder / JOURNAL) as journal:
                JobRun(
                    folder=folder, journal=journal, start=start, prepare=work.prepare,
                    conclude=work.conclude, listener=listener,
                ).work(work.jobs)  # fmt: skip
            return SweepRun(self.plan, self.ends())

    def __repr__(self) -> str:
        return f"<SweepPlan {self.folder}: {len(self.plan.points)} points>"


def plan(output: str | PathLike[str] | None = None, **options: Any) -> SweepPlan:
    """The sweep with these options, checked; nothing runs and nothing is written.

    Args:
        output, options: the fields of :class:`~gemmetry.sweeps.options.SweepOptions`, those of
            ``gemmetry sweep run``.

    Raises:
        RequestError: the request is wrong, this machine cannot carry it out, or the folder belongs
            to something else.
    """
    return SweepPlan(plan_sweep(struct_of(SweepOptions, {"output": output, **options})))


def _document(
    folder: Path, points: Sequence[tuple[PlannedPoint, Mapping[str, Any]]]
) -> dict[str, Any]:
    listed = [{**one.document(), "folder": one.folder, **more} for one, more in points]
    return {"schema_version": SCHEMA_VERSION, "sweep": str(folder), "points": listed}


def succeeded(end: JobEnd | None) -> bool:
    """Whether a point has its traces."""
    return end is not None and end.outcome is JobOutcome.OK


def _starter(sweep: PlannedSweep) -> StartJob:
    """Starter of the points: this machine, or tasks of a Ray cluster."""
    options = sweep.options
    if options.executor == LOCAL:
        return start_here
    from gemmetry.engine.ray_tasks import job_starter

    gpus = 0 if sweep.library == "gloo" else options.nproc or 1
    return job_starter(options.executor_options, gpus)


class _Work:
    """The jobs of a sweep's points."""

    def __init__(self, sweep: PlannedSweep, folder: Path, command: str) -> None:
        """Write the manifest, and plan the jobs."""
        self._folder = folder
        # torch need not be imported for versions of packages; the workload records what it loaded.
        self._environment = capture_environment(installed_versions())
        self.changes = environment_changes(sweep.manifest, self._environment)
        """Changes of the environment since the last start; "" without any."""
        self._sweep = _with_copied_config(sweep, folder)
        manifest = sweep_manifest(sweep, folder.name, self._environment, command)
        write_whole(folder / MANIFEST, indented(manifest), durable=True)
        sync(folder)
        attempt = len(manifest["sessions"])
        self.jobs = [_point_job(self._sweep, point, folder, attempt) for point in sweep.points]
        """Jobs in the order in which they run, each with the name of its point's folder."""

    def prepare(self, job: ExternalJob) -> None:
        """Make the folder of a point, without what an attempt that did not succeed left there."""
        folder = self._folder / job.name
        folder.mkdir(parents=True, exist_ok=True)
        for name in (TRACES, ROCPROF, NCU, POINT, LOG, "losses.json", "facts_rank0.json"):
            remove(folder / name, inside=self._folder)
        (folder / TRACES).mkdir()

    def conclude(self, job: ExternalJob, end: JobEnd) -> None:
        """Write ``point.json``."""
        sweep, folder = self._sweep, self._folder / job.name
        point = next(one for one in sweep.points if one.folder == job.name)
        facts = workload_facts(folder)
        facts["world_size"] = facts["world_size"] or sweep.world_size
        document = {
            "schema_version": SCHEMA_VERSION,
            **point.document(),
            **msgspec.to_builtins(end),
            "requested": [one.document() for one in sweep.requested(point)],
            "path": sweep.path_of(point),
            "library": sweep.library,
            **facts,
            "environment_id": self._environment.id,
            "environment": masked_variables(job.environment),
            "command": masked_words(job.argv),
        }
        write_whole(folder / POINT, indented(document), durable=True)


def _point_job(sweep: PlannedSweep, point: PlannedPoint, place: Path, attempt: int) -> ExternalJob:
    """`place`: the sweep's folder; `attempt` counts the starts of the sweep."""
    options, folder = sweep.options, place / point.folder
    environment = common_environment(sweep.library, os.environ)
    for one in sweep.requested(point):
        environment |= one.environment
    environment |= point_environment(sweep, point, folder)
    meeting = "-".join((place.name, str(attempt), *point.folder.split("/")))
    return ExternalJob(
        name=point.folder,
        title=point.title,
        argv=point_command(sweep, point, folder, meeting=meeting, environment=environment),
        environment=environment,
        working_folder=Path.cwd(),
        log=folder / LOG,
        deadline_s=options.timeout_s,
        lacks=lambda: _lacks(options, folder),
    )


def _lacks(options: SweepOptions, folder: Path) -> str:
    """Reason why a point whose command succeeded lacks what a sweep needs; "" if it is complete."""
    if options.ncu is not None:
        return "" if _files(folder / NCU) else f"ncu wrote no report into {NCU}/"
    if options.rocprof and not _files(folder / ROCPROF):
        return f"rocprofv3 wrote nothing into {ROCPROF}/"
    if options.rocprof_input is not None:
        # rocprofv3 itself ends well without any.
        without = jobs_without_counters(options.rocprof_input, folder / ROCPROF)
        if without:
            return (
                f"rocprofv3 collected no counters in job {', '.join(map(str, without))}: do "
                "kernel_include_regex and pmc of its input fit the kernels and the GPU of this run?"
            )
    try:
        traces = find_traces([folder / TRACES])
    except RequestError:
        where = "`gemmetry help sweep-run` describes how a command writes its traces"
        return f"it ended without a trace in {TRACES}/; {where}"
    if options.command is None and options.nnodes == 1:
        ranks = {path.relative_to(folder / TRACES).parts[0] for path in traces}
        absent = [rank for rank in range(options.nproc or 1) if f"rank{rank}" not in ranks]
        if absent:
            return f"no trace of rank {', '.join(map(str, absent))} in {TRACES}/"
    return ""


def _files(folder: Path) -> bool:
    return folder.is_dir() and any(path.is_file() for path in folder.rglob("*"))


def _with_copied_config(sweep: PlannedSweep, folder: Path) -> PlannedSweep:
    """`sweep` with the copy of the configuration that it keeps, so that a file edited in the
    meantime changes no later point."""
    options = sweep.options
    if options.command is not None or not Path(options.config or "").is_file():
        return sweep
    source, copy = Path(options.config or ""), folder / CONFIG
    if source.resolve() != copy:
        write_whole(copy, source.read_bytes())
    return dataclasses.replace(sweep, options=dataclasses.replace(options, config=str(copy)))


def _set_aside(folder: Path) -> None:
    """Move what an earlier sweep left into ``previous/``, in place of what was there before."""
    content = [path for pattern in _OF_A_SWEEP for path in folder.glob(pattern)]
    if not content:
        return
    previous = folder / PREVIOUS
    remove(previous, inside=folder)
    previous.mkdir()
    for path in content:
        path.rename(previous / path.name)


def merge_sweeps(paths: Sequence[Path], into: Path) -> int:
    """Merge the shards `paths` of a sweep into the new folder `into`. The same command without its
    shard continues there. Returns the number of points.

    Raises:
        RequestError: a shard is missing, or one belongs to another sweep; `into` exists.
        StorageError: `into` cannot be written.
    """
    manifests = [read_sweep_manifest(path) or {} for path in paths]
    documents = [{**one.get("identity", {}), "shard": one.get("shard", "")} for one in manifests]
    if whole_document(paths, documents) is None:
        raise RequestError(
            f"{paths[0]} is not a shard of a sweep",
            hint="Merge the folders of sweep run --shard 1/2, 2/2 ...",
        )
    try:
        into.mkdir(parents=True)
        copy_files(paths, into, but=(MANIFEST, JOURNAL, LOCK_NAME, PREVIOUS))
        journals = (path / JOURNAL for path in paths)
        ends = b"".join(path.read_bytes() for path in journals if path.is_file())
        write_whole(into / JOURNAL, ends, durable=True)
        merged = {key: value for key, value in manifests[0].items() if key != "shard"} | {
            key: [one for manifest in manifests for one in manifest[key]]
            for key in ("points", "sessions")
        }
        merged["environments"] = {
            key: one for manifest in manifests for key, one in manifest["environments"].items()
        }
        write_whole(into / MANIFEST, indented({**merged, "name": into.name}), durable=True)
    except FileExistsError:
        raise RequestError(
            f"{into} exists already", hint="Name a folder that does not exist yet."
        ) from None
    except OSError as error:
        raise os_failure(into, error, option="--into") from error
    return len(merged["points"])


def environment_changes(before: Mapping[str, Any] | None, environment: Environment) -> str:
    """How `environment` differs from that of the manifest `before`, in one sentence; "" if it does
    not, or there is no manifest."""
    try:
        last = msgspec.convert((before or {}).get("environment"), Environment)
    except msgspec.ValidationError:
        return ""
    changes = "; ".join(last.differences(environment))
    return f"the environment has changed since the last start: {changes}" if changes else ""


def installed_versions() -> dict[str, str]:
    """Version of torch, and of the communication and arithmetic libraries packaged with it."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if name in _PACKAGES or name.startswith(_PREFIXES):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def sweep_manifest(
    sweep: PlannedSweep, name: str, environment: Environment, command: str
) -> dict[str, Any]:
    """The manifest of a sweep that starts or continues, by the command line `command`."""
    options, before = sweep.options, sweep.manifest or {}
    session = {
        "started": now(),
        "command": command,
        "environment_id": environment.id,
        "clocks": printed_by_tools(CLOCKS),
    }
    recorded = dataclasses.asdict(environment)
    points = [{**point.document(), "folder": point.folder} for point in sweep.points]
    folders = {point["folder"] for point in points}
    points += [one for one in before.get("points", []) if one["folder"] not in folders]
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "created": before.get("created") or session["started"],
        "host": environment.hostname,
        "threads": list(options.threads),
        "channels": list(options.channels),
        "axes": {axis.name: list(axis.values) for axis in sweep.axes},
        "repeats": options.repeats,
        "order": options.order,
        "seed": options.seed,
        "library": sweep.library,
        "config": options.config or None,
        "launcher": masked_words(options.launcher),
        "timeout_s": options.timeout_s,
        "identity": dict(sweep.identity),
        "points": points,
        "environment": recorded,
        "environments": {**before.get("environments", {}), environment.id: recorded},
        "topology": printed_by_tools(TOPOLOGY),
        "sessions": [*before.get("sessions", []), session],
        **({"shard": options.shard} if options.shard else {}),
    }


def workload_facts(folder: Path) -> dict[str, Any]:
    """Records of the workload for a point: world size, backend, versions that it loaded, and
    losses; null where it did not, or another command trained."""
    facts, losses = (json_object(folder / name, []) for name in ("facts_rank0.json", "losses.json"))
    return {
        "world_size": facts.get("world_size"),
        "backend": facts.get("backend"),
        "packages": (facts.get("environment") or {}).get("packages"),
        "losses": losses.get("losses"),
    }


_STYLES = {JobOutcome.OK: "", JobOutcome.INTERRUPTED: "yellow"}


class JobProgress(LiveLines):
    """Listens to a run of jobs; use it as a context manager around the run.

    Each job that ended gets one line, with the estimated time left. A terminal also shows the job
    that runs, and for how long.
    """

    def __init__(
        self,
        place: str,
        console: Console | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the listener.

        Args:
            place: the folder of all points.
            console: where to print (default: stderr).
            clock: the time in seconds.
        """
        super().__init__(console, per_second=2)
        self._place = place
        self._clock = clock
        self._total = 0
        self._running: JobStarted | None = None
        self._began = 0.0
        self._seconds: list[float] = []

    def __call__(self, event: JobEvent) -> None:
        """Show one event of a run."""
        match event:
            case JobsPlanned(total, kept):
                self._total = total
                suffix = f"; {kept} from an earlier run kept" if kept else ""
                self._line(
                    Text(f"{total} {noun_for(total, 'point')} in {printable(self._place)}{suffix}")
                )
            case JobStarted():
                self._running, self._began = event, self._clock()
                self._begin(f"running {event.job.title}")
                if self._console.is_terminal:
                    self._start_live(self._render)
            case JobFinished():
                self._finished(event)
            case JobWarning(text):
                self._line(Text(f"warning: {printable(text)}", style="yellow"))

    def _finished(self, event: JobFinished) -> None:
        self._running = None
        self._begin("")
        end = event.end
        self._seconds.append(end.seconds)
        remaining = self._total - event.number
        parts = [
            f"[{event.number:>{len(str(self._total))}}/{self._total}] {end.outcome}",
            printable(event.job.title),
            format_duration(end.seconds),
            printable(end.reason),
        ]
        if remaining and end.outcome is not JobOutcome.INTERRUPTED:
            parts.append(f"about {format_duration(remaining * fmean(self._seconds))} left")
        text = "  ".join(part for part in parts if part)
        self._line(Text(text, style=_STYLES.get(end.outcome, "red")))

    def _render(self) -> Text:
        if self._running is None:
            return Text("")
        elapsed = self._clock() - self._began
        title = printable(self._running.job.title)
        text = f"[{self._running.number}/{self._total}] {title}  {format_duration(elapsed)}"
        if self._seconds:
            expected = (self._total - self._running.number + 1) * fmean(self._seconds) - elapsed
            text += f"  about {format_duration(max(0.0, expected))} left"
        return Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def format_duration(seconds: float) -> str:
    """For people: ``0.4 s``, ``12 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
