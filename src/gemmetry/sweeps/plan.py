"""A request for a sweep -> its points, checked before anything runs or is written.

Points are the product of the axes: numbers of channels and threads, and further axes of environment
variables, configuration keys, or placeholders in a command. The settings of a point become the
environment that the communication library in use obeys, and its command line: torchrun and the
workload, or the user's own command; around it rocprofv3 or Nsight Compute, and in front of it what
starts it on several nodes.

NCCL (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html): ``NCCL_MIN_CTAS`` and
``NCCL_MAX_CTAS`` since 2.17, before that ``NCCL_MIN_NCHANNELS`` and ``NCCL_MAX_NCHANNELS``, which
are still obeyed; ``NCCL_NTHREADS``. RCCL reads the same variables, and ``RCCL_THREADS_PER_BLOCK``
for its kernels with warp specialisation (its changelog for 2.28). gloo has no such settings.
Whether a setting took effect, only the traces show.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from gemmetry.domain.dispatch import parse_shard
from gemmetry.domain.errors import (
    EnvironmentFailure,
    JournalDamagedError,
    PlanMismatchError,
    RequestError,
    UnknownNameError,
)
from gemmetry.domain.opening import read_json
from gemmetry.domain.settings import LOCAL
from gemmetry.engine.external import resolve_program
from gemmetry.engine.schema import DEFAULT_FOLDER, plan_differences
from gemmetry.hardware.detect import (
    gpu_count,
    has_amd_driver,
    has_gpu_driver,
    masked_variables,
    masked_words,
)
from gemmetry.sweeps.folder import MANIFEST, ROCPROF, TRACES
from gemmetry.sweeps.keys import PRESETS, config_keys, load_config, preset_of
from gemmetry.sweeps.nccl_settings import (
    LEAST_NTHREADS,
    MOST_CHANNELS,
    MOST_NTHREADS,
    RCCL_MOST_THREADS,
)
from gemmetry.sweeps.options import AXIS_FORM, PATHS, WORKLOAD, SweepOptions, as_today, check_once
from gemmetry.sweeps.rocprof_input import (
    DOCUMENTS_FILE,
    OUTPUT_FILE,
    check_rocprof_input,
    existing_input,
)
from gemmetry.sweeps.rows import SweepConfiguration, configuration_entry

NCU = "ncu"
"""Folder of Nsight Compute's reports, in that of a point."""

RANKS_ON_A_CPU = 2
"""Default number of ranks: the fewest that communicate."""

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_PLACEHOLDER = re.compile(r"\{(\w[\w.]*)\}")
_PATH_AXIS = "path"

_PLAIN = "+,@:^"
"""Characters that stay as they are in folders' names, in addition to letters, digits and ``_.-~``;
others are written as in an URL."""

_CHANNELS = ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")
_THREADS = {"nccl": ("NCCL_NTHREADS",), "rccl": ("NCCL_NTHREADS", "RCCL_THREADS_PER_BLOCK")}

_ROCM = {"HSA_ENABLE_SDMA": "0", "PYTORCH_ROCM_PROFILER_ENABLE_TRACING": "1"}
"""Set for every point on ROCm, as in the sweep analysis document, unless the user has set them."""

_OF_PATH = {
    "kernel": {},
    "symmetric": {"NCCL_NVLS_ENABLE": "0"},
    "copy_engine": {"NCCL_CTA_POLICY": "2", "NCCL_NVLS_ENABLE": "0"},
}
"""Registered buffers without multicast over NVLink; ``NCCL_CTA_POLICY_ZERO`` by its number, which
every version with that policy reads."""


class AxisKind(StrEnum):
    """Kind of change that an axis makes."""

    VARIABLE = "variable"
    """An environment variable."""
    KEY = "key"
    """A key of the workload's configuration, such as ``distributed.bucket_cap_mb``."""
    PLACEHOLDER = "placeholder"
    """``{name}`` in the user's own command."""
    PATH = "path"
    """Path of the bytes, as ``--path`` sets it for a whole sweep."""


class SweepAxis(NamedTuple):
    """A further axis of a sweep."""

    name: str
    kind: AxisKind
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedPoint(SweepConfiguration):
    """One run of a sweep; settings that are None are the library's own choice."""

    repeat: int = 1
    """Counted from 1."""
    has_repeat_folder: bool = False

    @property
    def folder(self) -> str:
        """Folder in the sweep, ``256thread/nccl_28channels/NCCL_ALGO=Ring/repeat_01``, which also
        identifies the point."""
        parts = [] if self.threads is None else [f"{self.threads}thread"]
        parts += [] if self.channels is None else [f"nccl_{self.channels}channels"]
        parts += [f"{name}={quote(value, safe=_PLAIN)}" for name, value in self.axes]
        if self.has_repeat_folder or not parts:
            parts.append(f"repeat_{self.repeat:02d}")
        return "/".join(parts)

    @property
    def title(self) -> str:
        """For people: ``256 threads, 28 channels, NCCL_ALGO=Ring, repeat 2``."""
        is_numbered = self.has_repeat_folder or not self.settings
        return ", ".join([*self.settings, *([f"repeat {self.repeat}"] if is_numbered else [])])

    def document(self) -> dict[str, Any]:
        """Identity of the point, as JSON values."""
        return {**configuration_entry(self), "repeat": self.repeat}


@dataclass(frozen=True, slots=True)
class RequestedSetting:
    """One setting of a point, and the variables that request it."""

    name: str
    value: str
    environment: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    """Reason why nothing is set; "" if something is."""

    def document(self) -> dict[str, Any]:
        """Document as JSON values."""
        variables = masked_variables(self.environment)
        return {"name": self.name, "value": self.value, "environment": variables, "note": self.note}


@dataclass(frozen=True, kw_only=True)
class PlannedSweep:
    """A sweep that can run."""

    options: SweepOptions
    """With the number of ranks, and the files that they name."""
    axes: tuple[SweepAxis, ...]
    folder: Path
    library: str
    """Library that moves the bytes: nccl, rccl or gloo."""
    points: tuple[PlannedPoint, ...]
    identity: dict[str, Any]
    """Identity that all points share; a folder holds one sweep."""
    manifest: dict[str, Any] | None
    """Manifest of an earlier start in the folder."""
    notes: tuple[str, ...]
    """Notes before the run, one sentence each."""

    @property
    def world_size(self) -> int | None:
        """Number of ranks; None if the user's command decides it."""
        given = self.options
        return (given.nproc or 1) * given.nnodes if given.command is None else None

    def path_of(self, point: PlannedPoint) -> str:
        """Path of a point's bytes."""
        return dict(point.axes).get(_PATH_AXIS, self.options.path)

    def requested(self, point: PlannedPoint) -> tuple[RequestedSetting, ...]:
        """Requested settings of a point."""
        return requested_settings(point, self.axes, self.library, self.options.path)


def plan_sweep(options: SweepOptions) -> PlannedSweep:
    """The sweep that the options describe; nothing runs and nothing is written.

    Raises:
        RequestError: the request is wrong, this machine cannot carry it out, or the folder belongs
            to something else.
    """
    axes = tuple(_axis(name, values, options.command) for name, values in options.axes.items())
    if options.nproc is None:
        options = replace(options, nproc=_default_ranks(options))
    if options.rocprof_input is not None:
        path = existing_input(Path(options.rocprof_input)).absolute()
        options = replace(options, rocprof_input=path)
    backend = _check_workload(options, axes)
    library = options.library or library_of(backend)
    _check_settings(options, axes, library)
    identity = sweep_identity(options, library)
    folder = sweep_folder(options, identity)
    manifest = None if options.fresh else _known_manifest(folder, identity)
    points = plan_points(options, axes, manifest)
    counting = _rocprof_notes(options.rocprof_input)
    planned = PlannedSweep(
        options=options, axes=axes, folder=folder, library=library, points=points,
        identity=identity, manifest=manifest, notes=(),
    )  # fmt: skip
    _check_programs(planned)
    shard = parse_shard(options.shard)
    if shard is not None:
        points = tuple(point for point in points if shard.takes(point.folder))
    return replace(planned, points=points, notes=(*_notes(planned), *counting))


def _default_ranks(options: SweepOptions) -> int:
    if options.command is not None:
        return 1
    return RANKS_ON_A_CPU if _backend(options) == "gloo" else max(1, gpu_count())


def _backend(options: SweepOptions, more: Sequence[str] = ()) -> str | None:
    """Backend of the workload's configuration; None for the user's own command."""
    if options.command is not None:
        return None
    config = load_config(options.config or "", (*options.overrides, *more))
    return str(config.distributed.backend)


def _is_here(options: SweepOptions) -> bool:
    """Whether this machine is where the points run, or one of them."""
    return options.executor == LOCAL and not options.launcher


def _axis(name: str, values: Sequence[object], command: Sequence[str] | None) -> SweepAxis:
    """A further axis of a sweep; `command`: the user's own, None for the workload.

    Raises:
        RequestError: the axis has no values, or the same twice, or changes nothing.
    """
    texts = tuple(map(str, values))
    if not texts:
        raise RequestError(f"--axis {name} has no values", hint=AXIS_FORM)
    check_once(texts, f"--axis {name}")
    return SweepAxis(name, _kind(name, command), texts)


def _kind(name: str, command: Sequence[str] | None) -> AxisKind:
    if name == _PATH_AXIS:
        return AxisKind.PATH
    if _VARIABLE.fullmatch(name):
        return AxisKind.VARIABLE
    if command is not None:
        if any(name in _PLACEHOLDER.findall(word) for word in command):
            return AxisKind.PLACEHOLDER
        raise RequestError(
            f"--axis {name} changes nothing: it is not the name of an environment variable, and "
            f"the command does not contain {{{name}}}",
            hint=f"Write {{{name}}} in --command where its value belongs.",
        )
    keys = [key.name for key in config_keys() if key.is_used]
    if name in keys:
        return AxisKind.KEY
    raise UnknownNameError(
        "configuration key or environment variable", name, keys, where="--axis",
        more=f"Environment variables are in capital letters: --axis {name.upper()}=...",
    )  # fmt: skip


def plan_points(
    options: SweepOptions, axes: Sequence[SweepAxis], manifest: dict[str, Any] | None
) -> tuple[PlannedPoint, ...]:
    """The points in the order in which they run: each configuration once, then each again. A random
    order is drawn anew for each repeat, so that drift of the machine affects all alike.

    First repeats have no folder ``repeat_01`` in a sweep that began with a single repeat, and
    folders of points that exist keep their names.
    """
    known = [one["folder"] for one in (manifest or {}).get("points", []) if one["repeat"] == 1]
    first_has_folder = options.repeats > 1
    if known:
        first_has_folder = any(folder.endswith("repeat_01") for folder in known)
    names = [axis.name for axis in axes]
    configurations = [
        (one, other, tuple(zip(names, values, strict=True)))
        for one in options.threads or (None,)
        for other in options.channels or (None,)
        for values in product(*(axis.values for axis in axes))
    ]
    points = []
    for repeat in range(1, options.repeats + 1):
        order = list(configurations)
        if options.order == "random":
            random.Random(f"{options.seed} {repeat}").shuffle(order)
        has_folder = first_has_folder or repeat > 1
        points += [PlannedPoint(*configuration, repeat, has_folder) for configuration in order]
    return tuple(points)


def library_of(backend: str | None) -> str:
    """The library behind torch's `backend` (nccl or gloo) on this machine; None: what this
    machine's devices use."""
    if backend == "gloo" or (backend is None and not has_gpu_driver()):
        return "gloo"
    return "rccl" if has_amd_driver() else "nccl"


def requested_settings(
    point: PlannedPoint, axes: Sequence[SweepAxis], library: str, path: str
) -> tuple[RequestedSetting, ...]:
    """Requested settings of a point, in the order channels, threads, axes, path.

    Args:
        path: the path of the bytes where no axis sets it.
    """
    found = []
    for name, value, variables in (
        ("channels", point.channels, _CHANNELS),
        ("threads", point.threads, _THREADS.get(library, ())),
    ):
        if value is not None and library == "gloo":
            note = "gloo has no such setting, so that points differ in name only"
            found.append(RequestedSetting(name, str(value), note=note))
        elif value is not None:
            found.append(RequestedSetting(name, str(value), dict.fromkeys(variables, str(value))))
    kinds = {axis.name: axis.kind for axis in axes}
    for name, text in point.axes:
        of_kind = {AxisKind.VARIABLE: {name: text}, AxisKind.PATH: _OF_PATH.get(text, {})}
        found.append(RequestedSetting(name, text, of_kind.get(kinds[name], {})))
    if path != PATHS[0] and _PATH_AXIS not in kinds:
        found.append(RequestedSetting(_PATH_AXIS, path, _OF_PATH[path]))
    return tuple(found)


def _variables_set(options: SweepOptions, library: str) -> set[str]:
    """The variables that the axes of threads and channels set, which no other axis may set."""
    if library == "gloo":
        return set()
    threads = _THREADS.get(library, ()) if options.threads else ()
    return {*(_CHANNELS if options.channels else ()), *threads}


def common_environment(library: str, given: Mapping[str, str]) -> dict[str, str]:
    """Variables of every point, without those that the user has `given`."""
    if library != "rccl":
        return {}
    return {name: value for name, value in _ROCM.items() if name not in given}


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits.

    Raises:
        RequestError: the file cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read: {error.strerror or error}", hint="Give the path of a file."
        ) from error


def _check_workload(options: SweepOptions, axes: Sequence[SweepAxis]) -> str | None:
    """The backend of the workload's configuration; None for the user's own command.

    Raises:
        RequestError: the configuration is wrong with the values of some point, or needs a GPU.
    """
    keys = [axis for axis in axes if axis.kind is AxisKind.KEY]
    backends = {
        _backend(options, [f"{axis.name}={one}" for axis, one in zip(keys, values, strict=True)])
        for values in product(*(axis.values for axis in keys))
    }
    if len(backends) > 1:
        raise RequestError(
            "--axis distributed.backend: all points of a sweep use one backend",
            hint="Run a sweep for each, and compare them with gemmetry sweep compare.",
        )
    backend = backends.pop()
    if backend == "nccl" and _is_here(options) and not has_gpu_driver():
        raise RequestError(
            f"the configuration {options.config} trains on GPUs (distributed.backend nccl), and "
            "this machine has no driver of one",
            hint="Use --config tiny for a workload that fits a CPU, or --override "
            "distributed.backend=gloo.",
        )
    return backend


def _check_settings(options: SweepOptions, axes: Sequence[SweepAxis], library: str) -> None:
    taken = _variables_set(options, library)
    for axis in axes:
        if axis.name in taken:
            raise RequestError(
                f"--axis {axis.name}: --channels or --threads sets this variable",
                hint="Use one of the two.",
            )
    paths = [path for axis in axes if axis.kind is AxisKind.PATH for path in axis.values]
    if paths and options.path != PATHS[0]:
        raise RequestError("--path and --axis path exclude each other", hint="Leave one out.")
    for path in (options.path, *paths):
        if path not in PATHS:
            raise RequestError(f"unknown path {path!r}", hint=f"Known: {', '.join(PATHS)}.")
        if path != PATHS[0] and library != "nccl":
            raise RequestError(
                f"the path {path} requires NCCL, and the points use {library}",
                hint=f"Use the path {PATHS[0]}.",
            )
    nodes = f"--nnodes {options.nnodes} requires"
    if options.nnodes > 1 and not options.rdzv_endpoint:
        raise RequestError(
            f"{nodes} --rdzv-endpoint HOST:PORT, at which the nodes meet",
            hint="Give the first node and a free port, such as node01:29500.",
        )
    if options.nnodes > 1 and not options.launcher:
        raise RequestError(
            f"{nodes} --launcher: what starts a command on every node",
            hint="With Slurm: --launcher 'srun --ntasks-per-node=1'. More: `gemmetry help "
            "sweep-multi-node`.",
        )


def _rocprof_notes(path: Path | None) -> tuple[str, ...]:
    """Notes on what the jobs of rocprofv3's input file cannot show."""
    if path is None:
        return ()
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


def _check_programs(sweep: PlannedSweep) -> None:
    options = sweep.options
    command = point_command(sweep, sweep.points[0], Path.cwd(), meeting="", environment={})
    if options.executor == LOCAL:
        resolve_program(command[0])
    if _is_here(options):
        for program, is_used in (("rocprofv3", options.rocprof), ("ncu", options.ncu is not None)):
            if is_used:
                resolve_program(program)


def _notes(sweep: PlannedSweep) -> Iterator[str]:
    options, library = sweep.options, sweep.library
    for one in sweep.requested(sweep.points[0]):
        if one.note:
            yield f"{one.name}: {one.note}"
    config = options.config or ""
    if config and config not in PRESETS and (preset := preset_of(config)):
        yield f"{config} does not exist; the preset {preset} has the content of that file"
    limits = {
        "nccl": (("channels", options.channels, 1, MOST_CHANNELS),
                 ("threads", options.threads, LEAST_NTHREADS, MOST_NTHREADS)),
        "rccl": (("threads", options.threads, 1, RCCL_MOST_THREADS),),
    }  # fmt: skip
    for name, values, least, most in limits.get(library, ()):
        outside = ", ".join(str(value) for value in values if not least <= value <= most)
        uses = f"{most} {name} at most" if least == 1 else f"{least} to {most} {name}"
        if outside:
            yield f"{name} {outside}: {library.upper()} uses {uses}"
    given = sorted(name for name in _variables_set(options, library) if name in os.environ)
    if given:
        yield f"{', '.join(given)} in your environment gives way to the values of the sweep"


def sweep_identity(options: SweepOptions, library: str) -> dict[str, Any]:
    """Identity that all points of a sweep share."""
    config: dict[str, Any] | None = None
    if options.command is None:
        source = options.config or ""
        preset = preset_of(source)
        config = {"preset": preset} if preset else {"sha256": file_digest(Path(source))}
    path = options.rocprof_input
    digest = None if path is None else file_digest(path)
    return {
        "command": None if options.command is None else masked_words(options.command),
        "config": config,
        "overrides": list(options.overrides),
        "nproc": options.nproc,
        "nnodes": options.nnodes,
        "path": options.path,
        "library": library,
        "rocprof": {"input_sha256": digest, "stats": options.stats} if options.rocprof else None,
        "ncu": None if options.ncu is None else list(options.ncu),
    }


def read_sweep_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the sweep in `folder`; None if it has none.

    Raises:
        JournalDamagedError: the manifest cannot be read.
    """
    path = folder / MANIFEST
    try:
        if not path.exists():
            return None
        found = read_json(path)
        if not isinstance(found, dict):
            raise RequestError(f"{path} is not an object")
    except RequestError as error:
        raise JournalDamagedError(
            error.message, hint="Use --fresh to begin anew; what is there is moved aside."
        ) from error
    return found


def _differences(manifest: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
    """Differences from the sweep of a manifest; an earlier version may have named the workload."""
    before = dict(manifest.get("identity", {}))
    if before.get("command"):
        before["command"] = list(as_today(before["command"]))
    return plan_differences(before, identity)


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
    if differences := _differences(manifest, identity):
        raise PlanMismatchError(
            f"{folder} holds another sweep: {differences}",
            hint="Give another --output folder, or begin anew with --fresh.",
        )
    return manifest


def sweep_folder(options: SweepOptions, identity: Mapping[str, Any]) -> Path:
    """The folder of the sweep: ``output``; to resume, the latest one of the same `identity` if
    there is one; else a new one, named by the time."""
    if options.output is not None:
        return options.output
    latest = sorted(DEFAULT_FOLDER.glob(f"sweep_*/{MANIFEST}"), reverse=True)
    for path in latest if options.resume else ():
        try:
            if not _differences(read_sweep_manifest(path.parent) or {}, identity):
                return path.parent
        except EnvironmentFailure:
            continue
    return DEFAULT_FOLDER / f"sweep_{datetime.now():%Y%m%d_%H%M%S}"


def point_command(
    sweep: PlannedSweep,
    point: PlannedPoint,
    folder: Path,
    *,
    meeting: str,
    environment: Mapping[str, str],
) -> tuple[str, ...]:
    """The command line of a point.

    Args:
        folder: the point's folder, absolute.
        meeting: distinguishes this attempt from others at the same rendezvous.
        environment: what is set for the point; a launcher's command line repeats it, as launchers
            need not pass their environment on.
    """
    options = sweep.options
    if options.command is None:
        command = _workload_command(sweep, point, folder, meeting)
    else:
        values = _values(sweep, point, folder) | dict(point.axes)
        known = re.compile("|".join(re.escape(f"{{{name}}}") for name in values))
        # Other braces stay as they are.
        command = tuple(
            known.sub(lambda found: values[found[0][1:-1]], word) for word in options.command
        )
        if options.ncu is not None:
            command = (*_ncu_command(options.ncu, folder, "report_%p"), *command)
    if options.rocprof:
        command = (*rocprof_command(options, folder / ROCPROF), *command)
    if options.launcher:
        settings = (f"{name}={value}" for name, value in environment.items())
        command = (*options.launcher, "env", *settings, *command)
    return command


def rocprof_command(options: SweepOptions, output: Path) -> tuple[str, ...]:
    """The beginning of a command line that runs what follows it under rocprofv3.

    Options that an input file leaves out are given here: a key that both have is an error of
    rocprofv3 where the values differ. Its own default format is a database since version 1.0, and
    its files are named by process, not by rank.

    Raises:
        RequestError: the input file cannot be read, or has mistakes.
    """
    keys: set[str] = set()
    beginning: tuple[str, ...] = ("rocprofv3", "--kernel-trace")
    if options.rocprof_input is not None:
        keys = {key for job in check_rocprof_input(options.rocprof_input).jobs for key in job}
        beginning = ("rocprofv3", "-i", str(options.rocprof_input))
    return (
        *beginning,
        *(("--stats",) if options.stats and "stats" not in keys else ()),
        *(("--output-format", "csv", "json") if "output_format" not in keys else ()),
        *(("-o", OUTPUT_FILE) if "output_file" not in keys else ()),
        *("-d", str(output), "--"),
    )


def point_environment(sweep: PlannedSweep, point: PlannedPoint, folder: Path) -> dict[str, str]:
    """Variables about the point for the user's own command."""
    values = _values(sweep, point, folder)
    return {f"GEMMETRY_{name.upper()}": value for name, value in values.items()}


def _workload_command(
    sweep: PlannedSweep, point: PlannedPoint, folder: Path, meeting: str
) -> tuple[str, ...]:
    options = sweep.options
    keys = {axis.name for axis in sweep.axes if axis.kind is AxisKind.KEY}
    overrides = [*options.overrides, *(f"{n}={v}" for n, v in point.axes if n in keys)]
    workload: tuple[str, ...] = ("-m", WORKLOAD)
    if options.ncu is not None:
        # Each rank has an ncu of its own: its reports are then named by rank.
        report = _ncu_command(options.ncu, folder, "rank%q{RANK}")
        workload = ("--no-python", *report, sys.executable, "-m", WORKLOAD)
        # torch.profiler and ncu exclude each other: both use CUPTI.
        overrides.append("profiling.enabled=false")
    # A free port is chosen on one host, so that several runs there do not meet.
    agents = (
        ("--standalone",)
        if options.nnodes == 1
        else ("--nnodes", str(options.nnodes), "--rdzv-backend", "c10d",
              "--rdzv-endpoint", options.rdzv_endpoint, "--rdzv-id", meeting)
    )  # fmt: skip
    return (
        # The module behind torchrun: the same Python as this one runs it.
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nproc-per-node", str(options.nproc), *agents, *workload),
        *("--config", str(options.config), "--output", str(folder)),
        *("--path", sweep.path_of(point)),
        *(("--override", *overrides) if overrides else ()),
    )


def _ncu_command(arguments: tuple[str, ...], folder: Path, name: str) -> tuple[str, ...]:
    return ("ncu", "--target-processes", "all", *arguments, "-f", "-o", str(folder / NCU / name))


def _values(sweep: PlannedSweep, point: PlannedPoint, folder: Path) -> dict[str, str]:
    """Placeholder in a command -> its value, without those of the axes."""
    return {
        "output": str(folder),
        "trace_dir": str(folder / TRACES),
        "threads": "" if point.threads is None else str(point.threads),
        "channels": "" if point.channels is None else str(point.channels),
        "repeat": str(point.repeat),
        "nproc": str(sweep.options.nproc),
        "path": sweep.path_of(point),
    }
