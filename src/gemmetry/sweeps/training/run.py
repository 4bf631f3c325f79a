"""Runs the points of a planned sweep as jobs, and describes each in its folder."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.domain.errors import RequestError
from gemmetry.domain.files import remove, sync, write_whole
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.settings import LOCAL
from gemmetry.engine.merging import copy_files, whole_document
from gemmetry.engine.opaque import (
    JobEnd,
    JobJournal,
    JobListener,
    JobOutcome,
    JobRun,
    JobWarning,
    OpaqueJob,
    StartJob,
    read_ends,
    start_here,
)
from gemmetry.engine.schema import LOCK_NAME, FolderLock, indented, os_failure
from gemmetry.hardware.detect import masked_variables, masked_words
from gemmetry.sweeps.folder import LOG, MANIFEST, POINT, ROCPROF, TRACES
from gemmetry.sweeps.training.axes import (
    NCU,
    CommunicationLibrary,
    PlannedPoint,
    common_environment,
    requested_settings,
)
from gemmetry.sweeps.training.launching import PointLaunch, point_command, point_environment
from gemmetry.sweeps.training.manifest import (
    capture_sweep_environment,
    environment_changes,
    read_sweep_manifest,
    sweep_manifest,
    workload_facts,
)
from gemmetry.sweeps.training.planning import PlannedSweep
from gemmetry.sweeps.training.rocprof import jobs_without_counters
from gemmetry.traces.reading import find_traces

JOURNAL, CONFIG, PREVIOUS = "sweep.jsonl", "config.yaml", "previous"

_OF_A_SWEEP = (MANIFEST, JOURNAL, CONFIG, "analysis", "tracelens_analysis", "*thread",
               "nccl_*channels", "*=*", "repeat_*")  # fmt: skip
"""What ``--fresh`` moves aside; other files in the folder are not the sweep's."""

_WHERE = "`gemmetry help sweep-run` describes how a command writes its traces"


def run_sweep(
    sweep: PlannedSweep,
    *,
    listener: JobListener,
    fresh: bool = False,
    command: str = "",
    executor: StartJob = start_here,
) -> dict[str, JobEnd]:
    """Run the points of `sweep` that have not succeeded yet. Returns the folder of each point that
    has ended, and how.

    Args:
        fresh: what is in the folder is moved to ``previous/`` first.
        command: the command line, for the manifest.
        executor: starts the points.

    Raises:
        RequestError: another process uses the folder.
        StorageError: a file cannot be written; what is there is kept.
        KeyboardInterrupt: after the running point has been ended.
    """
    folder = sweep.folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder, option="--output")
    except OSError as error:
        raise os_failure(folder, error, option="--output") from error
    try:
        try:
            if fresh:
                _set_aside(folder)
            work = _Work(sweep, folder, command)
        except OSError as error:
            raise os_failure(folder, error, option="--output") from error
        if work.changes:
            listener(JobWarning(work.changes))
        with JobJournal(folder / JOURNAL) as journal:
            JobRun(
                folder=folder,
                journal=journal,
                start=executor,
                prepare=work.prepare,
                conclude=work.conclude,
                listener=listener,
            ).work(work.jobs)
        return dict(ended_points(sweep))
    finally:
        lock.release()


def job_executor(sweep: PlannedSweep) -> StartJob:
    """What starts the points of `sweep`: this machine, or tasks of a Ray cluster."""
    where, launch = sweep.request.where, sweep.request.launch
    if where.executor == LOCAL:
        return start_here
    from gemmetry.engine.ray_tasks import job_starter

    gpus = 0 if sweep.library is CommunicationLibrary.GLOO else launch.nproc
    return job_starter(where.executor_options, gpus)


def ended_points(sweep: PlannedSweep) -> Mapping[str, JobEnd]:
    """The folder of each point that has ended, and how; none if nothing was stored.

    Raises:
        JournalDamagedError: the journal cannot be read.
    """
    path = sweep.folder / JOURNAL
    if not path.is_file():
        return {}
    planned = {point.folder for point in sweep.points}
    return {name: end for name, end in read_ends(path).items() if name in planned}


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
        first = {key: value for key, value in manifests[0].items() if key != "shard"}
        merged = first | {
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


def plan_jobs(sweep: PlannedSweep) -> list[OpaqueJob]:
    """The jobs of the points, to show them; nothing is written."""
    place = sweep.folder.absolute()
    return [_point_job(sweep, sweep.request.launch, point, place, 1).job for point in sweep.points]


@dataclass(frozen=True, slots=True)
class _PointJob:
    """A point and what it is run with."""

    point: PlannedPoint
    folder: Path
    requested: tuple[dict[str, Any], ...]
    job: OpaqueJob


class _Work:
    """The jobs of a sweep's points."""

    def __init__(self, sweep: PlannedSweep, folder: Path, command: str) -> None:
        """Write the manifest, and plan the jobs."""
        self._sweep = sweep
        self._folder = folder
        self._environment = capture_sweep_environment()
        self.changes = environment_changes(sweep.manifest, self._environment)
        """What changed in the environment since the last start; "" if nothing did."""
        launch = _with_copied_config(sweep.request.launch, folder)
        points = [{**point.document(), "folder": point.folder} for point in sweep.points]
        manifest = sweep_manifest(
            folder.name, sweep.identity, points, _facts(sweep), self._environment,
            command=command, before=sweep.manifest,
        )  # fmt: skip
        shard = sweep.request.where.shard
        manifest = {**manifest, **({"shard": shard} if shard else {})}
        write_whole(folder / MANIFEST, indented(manifest), durable=True)
        sync(folder)
        attempt = len(manifest["sessions"])
        self._jobs = {
            point.folder: _point_job(sweep, launch, point, folder, attempt)
            for point in sweep.points
        }

    @property
    def jobs(self) -> Sequence[OpaqueJob]:
        """In the order in which they run."""
        return [planned.job for planned in self._jobs.values()]

    def prepare(self, job: OpaqueJob) -> None:
        """Make the folder of a point, without what an attempt that did not succeed left there."""
        folder = self._jobs[job.name].folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in (TRACES, ROCPROF, NCU, POINT, LOG, "losses.json", "facts_rank0.json"):
            remove(folder / name, inside=self._folder)
        (folder / TRACES).mkdir()

    def conclude(self, job: OpaqueJob, end: JobEnd) -> None:
        """Write ``point.json``."""
        planned = self._jobs[job.name]
        launch = self._sweep.request.launch
        facts = workload_facts(planned.folder)
        facts["world_size"] = facts["world_size"] or launch.world_size
        document = {
            "schema_version": SCHEMA_VERSION,
            **planned.point.document(),
            **msgspec.to_builtins(end),
            "requested": list(planned.requested),
            "path": launch.path_of(planned.point),
            "library": str(self._sweep.library),
            **facts,
            "environment_id": self._environment.id,
            "environment": masked_variables(job.environment),
            "command": masked_words(job.argv),
        }
        write_whole(planned.folder / POINT, indented(document), durable=True)


def _point_job(
    sweep: PlannedSweep, launch: PointLaunch, point: PlannedPoint, place: Path, attempt: int
) -> _PointJob:
    """`place`: the sweep's folder; `attempt` counts the starts of the sweep."""
    request, folder = sweep.request, place / point.folder
    requested = requested_settings(point, request.axes, sweep.library, launch.path)
    environment = {
        **common_environment(sweep.library, os.environ),
        **{name: value for one in requested for name, value in one.environment.items()},
        **point_environment(launch, point, folder),
    }
    argv = point_command(
        launch,
        point,
        request.axes,
        folder,
        meeting="-".join((place.name, str(attempt), *point.folder.split("/"))),
        environment=environment,
    )
    job = OpaqueJob(
        name=point.folder,
        title=point.title,
        argv=argv,
        environment=environment,
        working_folder=Path.cwd(),
        log=folder / LOG,
        deadline_s=request.timeout_s,
        lacks=lambda: _lacks(launch, folder),
    )
    return _PointJob(point, folder, tuple(one.document() for one in requested), job)


def _lacks(launch: PointLaunch, folder: Path) -> str:
    """Why a point whose command succeeded has not produced what a sweep needs; "" if it has."""
    if launch.ncu is not None:
        return "" if _files(folder / NCU) else f"ncu wrote no report into {NCU}/"
    if launch.rocprof is not None and not _files(folder / ROCPROF):
        return f"rocprofv3 wrote nothing into {ROCPROF}/"
    if launch.rocprof is not None and launch.rocprof.input is not None:
        without = jobs_without_counters(launch.rocprof.input, folder / ROCPROF)
        if without:
            listed = ", ".join(map(str, without))
            return f"rocprofv3 collected no counters in job {listed}: {_WHY_NO_COUNTERS}"
    try:
        traces = find_traces([folder / TRACES])
    except RequestError:
        return f"it ended without a trace in {TRACES}/; {_WHERE}"
    if launch.command is None and launch.nnodes == 1:
        ranks = {path.relative_to(folder / TRACES).parts[0] for path in traces}
        absent = [rank for rank in range(launch.nproc) if f"rank{rank}" not in ranks]
        if absent:
            return f"no trace of rank {', '.join(map(str, absent))} in {TRACES}/"
    return ""


_WHY_NO_COUNTERS = (
    "do kernel_include_regex and pmc of its input fit the kernels and the GPU of this run?"
)
"""rocprofv3 itself ends well without any."""


def _files(folder: Path) -> bool:
    return folder.is_dir() and any(path.is_file() for path in folder.rglob("*"))


def _facts(sweep: PlannedSweep) -> Mapping[str, Any]:
    """What the manifest states about the sweep besides its points."""
    request = sweep.request
    return {
        "threads": list(request.threads),
        "channels": list(request.channels),
        "axes": {axis.name: list(axis.values) for axis in request.axes},
        "repeats": request.repeats,
        "order": "random" if request.is_shuffled else "given",
        "seed": request.seed,
        "library": str(sweep.library),
        "config": request.launch.config or None,
        "launcher": masked_words(request.launch.launcher),
        "timeout_s": request.timeout_s,
    }


def _with_copied_config(launch: PointLaunch, folder: Path) -> PointLaunch:
    """`launch` with the copy of the configuration that the sweep keeps, so that a file edited in
    the meantime changes no later point."""
    if launch.command is not None or not Path(launch.config).is_file():
        return launch
    copy = folder / CONFIG
    if Path(launch.config).resolve() != copy:
        write_whole(copy, Path(launch.config).read_bytes())
    return dataclasses.replace(launch, config=str(copy))


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


def succeeded(end: JobEnd | None) -> bool:
    """Whether a point has its traces."""
    return end is not None and end.outcome is JobOutcome.OK
