"""A request for a sweep -> its points, checked before anything runs or is written.

Options -> a request for a sweep, and the folder that it is for.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any, TypedDict, Unpack

from gemmetry.domain.dispatch import parse_shard
from gemmetry.domain.errors import EnvironmentFailure, PlanMismatchError, RequestError
from gemmetry.domain.settings import LOCAL, RunSettings, check_executor
from gemmetry.engine.opaque import resolve_program
from gemmetry.engine.schema import DEFAULT_FOLDER, plan_differences
from gemmetry.hardware.detect import gpu_count, has_gpu_driver, masked_words
from gemmetry.sweeps.folder import MANIFEST
from gemmetry.sweeps.nccl_settings import (
    LEAST_NTHREADS,
    MOST_CHANNELS,
    MOST_NTHREADS,
    RCCL_MOST_THREADS,
)
from gemmetry.sweeps.training.axes import (
    PATHS,
    AxisKind,
    CommunicationLibrary,
    PlannedPoint,
    SweepAxis,
    check_counts,
    library_of,
    make_axes,
    plan_points,
    requested_settings,
    variables_set_by,
)
from gemmetry.sweeps.training.config import DOCUMENT, PRESETS, load_config, preset_of
from gemmetry.sweeps.training.keys import config_keys
from gemmetry.sweeps.training.launching import PointLaunch, RocprofLaunch, point_command
from gemmetry.sweeps.training.manifest import read_sweep_manifest
from gemmetry.sweeps.training.rocprof import DOCUMENTS_FILE, check_rocprof_input, existing_input


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """What a sweep varies, and how it is launched."""

    launch: PointLaunch
    threads: tuple[int, ...] = ()
    channels: tuple[int, ...] = ()
    axes: tuple[SweepAxis, ...] = ()
    repeats: int = 1
    is_shuffled: bool = True
    seed: int = 0
    """Of the order."""
    library: CommunicationLibrary | None = None
    """None: the one that this machine's devices use."""
    timeout_s: float | None = None
    """For each point."""
    where: RunSettings = RunSettings()
    """The executor, its options and the shard; nothing else of it is used."""

    @property
    def is_here(self) -> bool:
        """Whether this machine is where the points run, or one of them."""
        return self.where.executor == LOCAL and not self.launch.launcher


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSweep:
    """A sweep that can run."""

    request: SweepRequest
    folder: Path
    library: CommunicationLibrary
    points: tuple[PlannedPoint, ...]
    identity: dict[str, Any]
    """What all points have in common; a folder holds one sweep."""
    manifest: dict[str, Any] | None
    """Of an earlier start in the folder."""
    notes: tuple[str, ...]


def plan_sweep(request: SweepRequest, folder: Path, *, fresh: bool = False) -> PlannedSweep:
    """The sweep that `request` describes, in `folder`; nothing runs and nothing is written.

    Args:
        fresh: what is in the folder does not count.

    Raises:
        RequestError: the request is wrong, this machine cannot carry it out, or the folder belongs
            to something else.
    """
    launch = request.launch
    backend = _check_workload(request)
    library = request.library or library_of(backend)
    _check_axes(request, library)
    _check_path(request, library)
    _check_nodes(launch)
    identity = sweep_identity(request, library)
    manifest = None if fresh else _known_manifest(folder, identity)
    points = plan_points(
        request.threads,
        request.channels,
        request.axes,
        repeats=request.repeats,
        first_has_folder=_first_has_folder(request, manifest),
        seed=request.seed if request.is_shuffled else None,
    )
    counting = _rocprof_notes(launch)
    _check_programs(request, points[0])
    shard = parse_shard(request.where.shard)
    if shard is not None:
        points = tuple(point for point in points if shard.takes(point.folder))
    return PlannedSweep(
        request=request,
        folder=folder,
        library=library,
        points=points,
        identity=identity,
        manifest=manifest,
        notes=(*_notes(request, library, points), *counting),
    )


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits.

    Raises:
        RequestError: it cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read: {error.strerror or error}", hint="Give the path of a file."
        ) from error


def _check_workload(request: SweepRequest) -> str | None:
    """The backend of the workload's configuration; None for the user's own command.

    Raises:
        RequestError: the configuration is wrong with the values of some point, or needs a GPU.
    """
    launch = request.launch
    if launch.command is not None:
        return None
    keys = [axis for axis in request.axes if axis.kind is AxisKind.KEY]
    backends = {
        load_config(
            launch.config,
            (*launch.overrides, *(f"{a.name}={v}" for a, v in zip(keys, values, strict=True))),
        ).distributed.backend
        for values in product(*(axis.values for axis in keys))
    }
    if len(backends) > 1:
        raise RequestError(
            "--axis distributed.backend: all points of a sweep use one backend",
            hint="Run a sweep for each, and compare them with gemmetry sweep compare.",
        )
    backend = str(backends.pop())
    if backend == "nccl" and request.is_here and not has_gpu_driver():
        raise RequestError(
            f"the configuration {launch.config} trains on GPUs (distributed.backend nccl), and "
            "this machine has no driver of one",
            hint="Use --config tiny for a workload that fits a CPU, or --override "
            "distributed.backend=gloo.",
        )
    return backend


def _check_axes(request: SweepRequest, library: CommunicationLibrary) -> None:
    taken = variables_set_by(bool(request.threads), bool(request.channels), library)
    for axis in request.axes:
        if axis.name in taken:
            raise RequestError(
                f"--axis {axis.name}: --channels or --threads sets this variable",
                hint="Use one of the two.",
            )


def _check_path(request: SweepRequest, library: CommunicationLibrary) -> None:
    axis = [axis.values for axis in request.axes if axis.kind is AxisKind.PATH]
    if axis and request.launch.path != PATHS[0]:
        raise RequestError("--path and --axis path exclude each other", hint="Leave one out.")
    for path in (request.launch.path, *(axis[0] if axis else ())):
        if path not in PATHS:
            raise RequestError(f"unknown path {path!r}", hint=f"Known: {', '.join(PATHS)}.")
        if path != PATHS[0] and library is not CommunicationLibrary.NCCL:
            raise RequestError(
                f"the path {path} requires NCCL, and the points use {library}",
                hint=f"Use the path {PATHS[0]}.",
            )


def _check_nodes(launch: PointLaunch) -> None:
    if launch.nnodes == 1:
        return
    if not launch.rdzv_endpoint:
        raise RequestError(
            f"--nnodes {launch.nnodes} requires --rdzv-endpoint HOST:PORT, at which the nodes meet",
            hint="Give the first node and a free port, such as node01:29500.",
        )
    if not launch.launcher:
        raise RequestError(
            f"--nnodes {launch.nnodes} requires --launcher: what starts a command on every node",
            hint="With Slurm: --launcher 'srun --ntasks-per-node=1'. More: `gemmetry help "
            "sweep-multi-node`.",
        )


def _rocprof_notes(launch: PointLaunch) -> tuple[str, ...]:
    """What the jobs of rocprofv3's input file cannot show."""
    if launch.rocprof is None or launch.rocprof.input is None:
        return ()
    path = launch.rocprof.input
    found = check_rocprof_input(path)
    if any("output_directory" in job for job in found.jobs):
        raise RequestError(
            f"{path} sets output_directory, and the points of a sweep have a folder each",
            hint="Leave output_directory out of the jobs.",
        )
    runs = len(found.jobs)
    own = (f"{path.name} does not exist; gemmetry's file of that name is used",)
    again = (f"{path} has {runs} jobs: each point trains {runs} times",) if runs > 1 else ()
    return (*(own if path == DOCUMENTS_FILE else ()), *again, *found.notes)


def _check_programs(request: SweepRequest, point: PlannedPoint) -> None:
    launch = request.launch
    command = point_command(launch, point, request.axes, Path.cwd(), meeting="", environment={})
    if request.where.executor == LOCAL:
        resolve_program(command[0])
    if request.is_here:
        for program, is_used in (("rocprofv3", launch.rocprof), ("ncu", launch.ncu)):
            if is_used is not None:
                resolve_program(program)


def sweep_identity(request: SweepRequest, library: CommunicationLibrary) -> dict[str, Any]:
    """What all points of a sweep have in common."""
    launch = request.launch
    config: dict[str, Any] | None = None
    if launch.command is None:
        preset = preset_of(launch.config)
        config = {"preset": preset} if preset else {"sha256": file_digest(Path(launch.config))}
    rocprof = None
    if launch.rocprof is not None:
        source = launch.rocprof.input
        rocprof = {
            "input_sha256": None if source is None else file_digest(source),
            "stats": launch.rocprof.stats,
        }
    return {
        "command": None if launch.command is None else masked_words(launch.command),
        "config": config,
        "overrides": list(launch.overrides),
        "nproc": launch.nproc,
        "nnodes": launch.nnodes,
        "path": launch.path,
        "library": str(library),
        "rocprof": rocprof,
        "ncu": None if launch.ncu is None else list(launch.ncu),
    }


def _known_manifest(folder: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest in `folder`, which must be of this sweep; None for a new one."""
    manifest = read_sweep_manifest(folder)
    if manifest is None:
        if any(folder.glob("*thread")) or any(folder.glob("nccl_*channels")):
            raise RequestError(
                f"{folder} has points of a sweep, but no {MANIFEST}",
                hint="Give another --output folder, or move aside what is there with --fresh.",
            )
        return None
    differences = plan_differences(manifest.get("identity", {}), identity)
    if differences:
        raise PlanMismatchError(
            f"{folder} holds another sweep: {differences}",
            hint="Give another --output folder, or begin anew with --fresh.",
        )
    return manifest


def _first_has_folder(request: SweepRequest, manifest: dict[str, Any] | None) -> bool:
    """Folders of points that exist keep their names."""
    known = [point for point in (manifest or {}).get("points", []) if point["repeat"] == 1]
    if known:
        return any(point["folder"].endswith("repeat_01") for point in known)
    return request.repeats > 1


def _notes(
    request: SweepRequest, library: CommunicationLibrary, points: Sequence[PlannedPoint]
) -> list[str]:
    """What is worth knowing before the sweep runs, one sentence each."""
    settings = requested_settings(points[0], request.axes, library, request.launch.path)
    notes = [f"{setting.name}: {setting.note}" for setting in settings if setting.note]
    config = request.launch.config
    preset = preset_of(config) if config not in ("", *PRESETS) else None
    if preset:
        notes.append(f"{config} does not exist; the preset {preset} has the content of that file")
    if library is CommunicationLibrary.NCCL:
        notes += _clamped("NCCL", "channels", request.channels, 1, MOST_CHANNELS)
        notes += _clamped("NCCL", "threads", request.threads, LEAST_NTHREADS, MOST_NTHREADS)
    elif library is CommunicationLibrary.RCCL:
        notes += _clamped("RCCL", "threads", request.threads, 1, RCCL_MOST_THREADS)
    taken = variables_set_by(bool(request.threads), bool(request.channels), library)
    given = sorted(name for name in taken if name in os.environ)
    if given:
        notes.append(f"{', '.join(given)} in your environment gives way to the values of the sweep")
    return notes


def _clamped(library: str, name: str, values: Sequence[int], least: int, most: int) -> list[str]:
    """A note on the `values` that `library` replaces by `least` or `most`."""
    outside = [str(value) for value in values if not least <= value <= most]
    limits = f"{most} {name} at most" if least == 1 else f"{least} to {most} {name}"
    return [f"{name} {', '.join(outside)}: {library} uses {limits}"] if outside else []


RANKS_ON_A_CPU = 2
"""By default: the fewest that communicate."""

_ORDERS = ("random", "given")


class SweepOptions(TypedDict, total=False):
    """The options of ``gemmetry sweep run``, by their names; none is required."""

    channels: Sequence[int]
    """Channels of NCCL or RCCL; by default the library's choice, like `threads`."""
    threads: Sequence[int]
    axes: Mapping[str, Sequence[object]]
    """Further axes with their values: variables of the environment, keys of the configuration,
    placeholders of `command`, or ``path``."""
    repeats: int
    """Runs of each point; by default 1."""
    order: str
    """``random`` (the default): shuffled anew for each repeat; ``given``: that of the axes."""
    seed: int
    """Of the random order; by default 0."""
    config: str | None
    """Configuration of the workload: a YAML file, ``document`` (the default) or ``tiny``."""
    overrides: Sequence[str]
    """``KEY=VALUE`` that replace those of the configuration."""
    nproc: int | None
    """Ranks per node; by default the number of GPUs, or 2 on a CPU."""
    path: str
    """How bytes move: ``kernel`` (the default), ``symmetric`` or ``copy_engine``."""
    command: str | Sequence[str] | None
    """Your own training command in place of the workload, like `launcher` and `ncu` as words, or as
    you would write it in a shell."""
    library: str | None
    """``nccl``, ``rccl`` or ``gloo``; by default the one that this machine's devices use."""
    nnodes: int
    rdzv_endpoint: str
    """``HOST:PORT`` at which torchrun's agents of several nodes meet."""
    launcher: str | Sequence[str]
    """What starts the command that follows it on every node."""
    rocprof: bool
    rocprof_input: Path | None
    stats: bool
    ncu: str | Sequence[str] | None
    """Arguments of Nsight Compute, under which each rank runs then."""
    timeout_s: float | None
    """A point that takes longer is ended; None: no limit."""
    executor: str
    """``local`` (the default), or ``ray``: each point is a task of a Ray cluster."""
    executor_options: Mapping[str, str]
    shard: str
    """``K/N``: one of N parts of the points."""


def make_request(**options: Unpack[SweepOptions]) -> SweepRequest:
    """The request of these options.

    Raises:
        RequestError: a value is wrong, or two do not go together.
    """
    config, overrides = options.get("config"), tuple(options.get("overrides", ()))
    words = _words(options.get("command"), "--command")
    stats, source = options.get("stats", False), options.get("rocprof_input")
    wants_rocprof = options.get("rocprof", False) or source is not None
    order = options.get("order", _ORDERS[0])
    if words is not None and (config is not None or overrides):
        raise RequestError(
            "--config and --override are the workload's, and --command replaces it",
            hint="Leave them out, or write them into the command.",
        )
    if stats and not wants_rocprof:
        raise RequestError("--stats requires --rocprof", hint="Add --rocprof, or leave it out.")
    if order not in _ORDERS:
        raise RequestError(f"unknown order {order!r}", hint=f"Known: {', '.join(_ORDERS)}.")
    launch = PointLaunch(
        nproc=options.get("nproc")
        or (1 if words is not None else _default_ranks(config, overrides)),
        nnodes=options.get("nnodes", 1),
        rdzv_endpoint=options.get("rdzv_endpoint", ""),
        launcher=_words(options.get("launcher") or None, "--launcher") or (),
        config="" if words is not None else config or DOCUMENT,
        overrides=overrides,
        command=words,
        path=options.get("path", PATHS[0]),
        rocprof=RocprofLaunch(
            input=None if source is None else existing_input(source).absolute(), stats=stats
        )
        if wants_rocprof
        else None,
        ncu=_words(options.get("ncu"), "--ncu", may_be_empty=True),
    )
    keys = [key.name for key in config_keys() if key.is_used]
    return SweepRequest(
        launch=launch,
        threads=check_counts(options.get("threads", ()), "--threads"),
        channels=check_counts(options.get("channels", ()), "--channels"),
        axes=make_axes(options.get("axes", {}), command=words, keys=keys),
        repeats=options.get("repeats", 1),
        is_shuffled=order == _ORDERS[0],
        seed=options.get("seed", 0),
        library=_library(options.get("library")),
        timeout_s=options.get("timeout_s") or None,
        where=_where(options),
    )


def _where(options: SweepOptions) -> RunSettings:
    """Where the points run, and which of them.

    Raises:
        RequestError: there is no such executor or shard.
    """
    executor, shard = options.get("executor", LOCAL), options.get("shard", "")
    check_executor(executor)
    parse_shard(shard)
    return RunSettings(
        executor=executor,
        executor_options=dict(options.get("executor_options", {})),
        shard=shard,
    )


def sweep_folder(request: SweepRequest, output: Path | None, *, resume: bool, fresh: bool) -> Path:
    """The folder of the sweep: `output`; to `resume`, the latest one of the same kind if there is
    one; else a new one, named by the time.

    Raises:
        RequestError: the options contradict each other.
    """
    if resume and fresh:
        raise RequestError("--resume and --fresh exclude each other", hint="Leave one out.")
    if output is not None:
        return output
    if fresh:
        raise RequestError(
            "--fresh requires --output: without it every sweep has a new folder",
            hint="Give the folder whose sweep begins anew.",
        )
    new = DEFAULT_FOLDER / f"sweep_{datetime.now():%Y%m%d_%H%M%S}"
    return (_latest(request) if resume else None) or new


def _latest(request: SweepRequest) -> Path | None:
    """The latest sweep with these settings; None where there is none."""
    launch = request.launch
    backend = None
    if launch.command is None:
        backend = load_config(launch.config, launch.overrides).distributed.backend
    identity = sweep_identity(request, request.library or library_of(backend))
    for path in sorted(DEFAULT_FOLDER.glob(f"sweep_*/{MANIFEST}"), reverse=True):
        try:
            manifest = read_sweep_manifest(path.parent) or {}
        except EnvironmentFailure:
            continue
        if not plan_differences(manifest.get("identity", {}), identity):
            return path.parent
    return None


def _default_ranks(config: str | None, overrides: Sequence[str]) -> int:
    backend = load_config(config or DOCUMENT, overrides).distributed.backend
    return RANKS_ON_A_CPU if backend == "gloo" else max(1, gpu_count())


def _library(name: str | None) -> CommunicationLibrary | None:
    known = list(map(str, CommunicationLibrary))
    if name is not None and name not in known:
        raise RequestError(f"unknown library {name!r}", hint=f"Known: {', '.join(known)}.")
    return None if name is None else CommunicationLibrary(name)


def _words(
    given: str | Sequence[str] | None, option: str, *, may_be_empty: bool = False
) -> tuple[str, ...] | None:
    """The words of a command; None where it is not given."""
    if given is None:
        return None
    try:
        words = tuple(shlex.split(given) if isinstance(given, str) else given)
    except ValueError as error:
        raise RequestError(
            f"{option}: {error} in {given!r}", hint="Write it as you would in a shell."
        ) from None
    if not words and not may_be_empty:
        raise RequestError(f"{option} is empty", hint="Give a command.")
    return words
