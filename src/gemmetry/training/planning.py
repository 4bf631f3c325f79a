"""A request for a sweep -> its points, checked before anything runs or is written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from gemmetry.analysis.sweeps.collectives.rules import (
    LEAST_NTHREADS,
    MOST_CHANNELS,
    MOST_NTHREADS,
    RCCL_MOST_THREADS,
)
from gemmetry.domain.errors import PlanMismatchError, RequestError
from gemmetry.domain.settings import LOCAL, RunSettings
from gemmetry.engine.opaque.executor import resolve_program
from gemmetry.hardware.environment import masked_words
from gemmetry.hardware.topology import has_gpu_driver
from gemmetry.store.manifest import plan_differences
from gemmetry.training.axes import AxisKind, SweepAxis
from gemmetry.training.config import PRESETS, load_config, preset_of
from gemmetry.training.launching import PointLaunch, point_command
from gemmetry.training.manifest import MANIFEST, read_sweep_manifest
from gemmetry.training.points import PlannedPoint, plan_points
from gemmetry.training.rocprof_check import check_rocprof_input
from gemmetry.training.rocprof_input import DOCUMENTS_FILE
from gemmetry.training.settings import (
    PATHS,
    CommunicationLibrary,
    library_of,
    requested_settings,
    variables_set_by,
)


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
    """The executor, and what concerns its agents; nothing else of it is used."""

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
