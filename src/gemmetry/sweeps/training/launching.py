"""The command line of a point: torchrun and the workload, or the user's own command; around it
rocprofv3 or Nsight Compute, and in front of it what starts it on several nodes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gemmetry.sweeps.folder import ROCPROF, TRACES
from gemmetry.sweeps.training.axes import NCU, PATH_AXIS, AxisKind, PlannedPoint, SweepAxis
from gemmetry.sweeps.training.rocprof import OUTPUT_FILE, check_rocprof_input

WORKLOAD = "gemmetry.sweeps.workload"

_TORCHRUN = "torch.distributed.run"
"""The module behind ``torchrun``: the same Python as this one runs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RocprofLaunch:
    """How rocprofv3 is wrapped around a point."""

    input: Path | None = None
    """Its YAML or JSON file of jobs; None: all kernels are traced."""
    stats: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PointLaunch:
    """How every point is launched."""

    nproc: int = 1
    """Ranks per node."""
    nnodes: int = 1
    rdzv_endpoint: str = ""
    """``HOST:PORT`` at which torchrun's agents of several nodes meet."""
    launcher: tuple[str, ...] = ()
    """What starts the command that follows it on every node, such as ``srun``."""
    config: str = ""
    """The workload's configuration: a file or a preset."""
    overrides: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None
    """The user's own command; None: the workload."""
    path: str = "kernel"
    """How the bytes move, where no axis decides it."""
    rocprof: RocprofLaunch | None = None
    ncu: tuple[str, ...] | None = None
    """Arguments of ncu."""

    @property
    def world_size(self) -> int | None:
        """Number of ranks; None if the user's command decides it."""
        return self.nproc * self.nnodes if self.command is None else None

    def path_of(self, point: PlannedPoint) -> str:
        """How the bytes of a point move."""
        return dict(point.axes).get(PATH_AXIS, self.path)


def point_command(
    launch: PointLaunch,
    point: PlannedPoint,
    axes: tuple[SweepAxis, ...],
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
    if launch.command is None:
        command = _workload_command(launch, point, axes, folder, meeting)
    else:
        command = _with_values(launch.command, _values(launch, point, folder))
        if launch.ncu is not None:
            command = (*_ncu_command(launch.ncu, folder, "report_%p"), *command)
    if launch.rocprof is not None:
        command = (*rocprof_command(launch.rocprof, folder / ROCPROF), *command)
    if launch.launcher:
        settings = (f"{name}={value}" for name, value in environment.items())
        command = (*launch.launcher, "env", *settings, *command)
    return command


def rocprof_command(rocprof: RocprofLaunch, output: Path) -> tuple[str, ...]:
    """The beginning of a command line that runs what follows it under rocprofv3.

    Options that an input file leaves out are given here: a key that both have is an error of
    rocprofv3 where the values differ. Its own default format is a database since version 1.0, and
    its files are named by process, not by rank.

    Raises:
        RequestError: the input file cannot be read, or has mistakes.
    """
    keys: set[str] = set()
    beginning: tuple[str, ...] = ("rocprofv3", "--kernel-trace")
    if rocprof.input is not None:
        keys = {key for job in check_rocprof_input(rocprof.input).jobs for key in job}
        beginning = ("rocprofv3", "-i", str(rocprof.input))
    options = (
        *(("--stats",) if rocprof.stats and "stats" not in keys else ()),
        *(("--output-format", "csv", "json") if "output_format" not in keys else ()),
        *(("-o", OUTPUT_FILE) if "output_file" not in keys else ()),
    )
    return (*beginning, *options, "-d", str(output), "--")


def point_environment(launch: PointLaunch, point: PlannedPoint, folder: Path) -> dict[str, str]:
    """What the user's own command can read about its point."""
    return {f"GEMMETRY_{name.upper()}": value
            for name, value in _values(launch, point, folder, with_axes=False).items()}  # fmt: skip


def _workload_command(
    launch: PointLaunch,
    point: PlannedPoint,
    axes: tuple[SweepAxis, ...],
    folder: Path,
    meeting: str,
) -> tuple[str, ...]:
    keys = {axis.name for axis in axes if axis.kind is AxisKind.KEY}
    overrides = [*launch.overrides, *(f"{n}={v}" for n, v in point.axes if n in keys)]
    workload: tuple[str, ...] = ("-m", WORKLOAD)
    if launch.ncu is not None:
        # Each rank has an ncu of its own: its reports are then named by rank.
        report = _ncu_command(launch.ncu, folder, "rank%q{RANK}")
        workload = ("--no-python", *report, sys.executable, "-m", WORKLOAD)
        # torch.profiler and ncu exclude each other: both use CUPTI.
        overrides.append("profiling.enabled=false")
    return (
        sys.executable,
        "-m",
        _TORCHRUN,
        *_agent(launch, meeting),
        *workload,
        *("--config", launch.config, "--output", str(folder), "--path", launch.path_of(point)),
        *(("--override", *overrides) if overrides else ()),
    )


def _agent(launch: PointLaunch, meeting: str) -> tuple[str, ...]:
    """torchrun's own arguments."""
    ranks = ("--nproc-per-node", str(launch.nproc))
    if launch.nnodes == 1:
        # A free port is chosen, so that several runs on one host do not meet.
        return (*ranks, "--standalone")
    return (
        *ranks,
        *("--nnodes", str(launch.nnodes)),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", launch.rdzv_endpoint),
        *("--rdzv-id", meeting),
    )


def _ncu_command(arguments: tuple[str, ...], folder: Path, name: str) -> tuple[str, ...]:
    output = str(folder / NCU / name)
    return ("ncu", "--target-processes", "all", *arguments, "-f", "-o", output)


def _values(
    launch: PointLaunch, point: PlannedPoint, folder: Path, *, with_axes: bool = True
) -> dict[str, str]:
    """Placeholder in a command -> its value."""
    return {
        "output": str(folder),
        "trace_dir": str(folder / TRACES),
        "threads": "" if point.threads is None else str(point.threads),
        "channels": "" if point.channels is None else str(point.channels),
        "repeat": str(point.repeat),
        "nproc": str(launch.nproc),
        "path": launch.path_of(point),
        **(dict(point.axes) if with_axes else {}),
    }


def _with_values(command: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """Other braces stay as they are."""
    known = re.compile("|".join(re.escape(f"{{{name}}}") for name in values))
    return tuple(known.sub(lambda found: values[found[0][1:-1]], word) for word in command)
