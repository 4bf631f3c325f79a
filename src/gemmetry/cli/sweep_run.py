"""``gemmetry sweep run``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gemmetry.cli.console import command_line, note, print_json, say, stderr_console
from gemmetry.cli.options import DryRun, Printed, option, values
from gemmetry.cli.sweep import SweepCommand, parse_axes, parse_counts

if TYPE_CHECKING:
    from gemmetry.sweeps.runs import SweepPlan


_AXES = "What varies"
_TRAINING = "What trains"
_NODES = "Several nodes"
_PROFILERS = "Further profilers"


def parse_options(text: str, option: str) -> dict[str, str]:
    """``name=value,name=value``; none in an empty text."""
    from gemmetry.domain.specs.fields import read_options

    return read_options(text) if text else {}


@dataclass(kw_only=True)
class Training:
    """What a sweep runs, and where."""

    channels: tuple[int, ...] = option(
        "Channels of NCCL or RCCL. Default: the library's choice.",
        "-c",
        panel=_AXES,
        metavar="NUMBERS",
        parse=parse_counts,
    )
    threads: tuple[int, ...] = option(
        "Threads per channel. Default: the library's choice.",
        "-t",
        panel=_AXES,
        metavar="NUMBERS",
        parse=parse_counts,
    )
    axes: dict[str, tuple[str, ...]] = option(
        "A further axis: an environment variable (NCCL_ALGO=Ring,Tree), a key of the "
        "configuration (distributed.bucket_cap_mb=16,32), a {placeholder} of --command, or path "
        "(kernel,copy_engine).",
        "--axis",
        panel=_AXES,
        metavar="NAME=VALUES",
        parse=parse_axes,
    )
    repeats: int = option("Runs of each point. Default: 1.", panel=_AXES, min=1, default=1)
    order: str = option(
        "Order of the points: random (shuffled for each repeat) or given (as listed). Default: "
        "random.",
        panel=_AXES,
        metavar="ORDER",
        complete=("random", "given"),
        default="random",
    )
    seed: int = option("Seed of the random order. Default: 0.", panel=_AXES, default=0)
    config: str | None = option(
        "Configuration of the workload: a YAML file, or the preset document (the default) or tiny"
        " (for a CPU).",
        "-f",
        panel=_TRAINING,
        metavar="FILE",
        complete=("document", "tiny"),
    )
    overrides: list[str] = option(
        "Replace a key of the configuration, for every point.",
        "--override",
        panel=_TRAINING,
        metavar="KEY=VALUE",
    )
    nproc: int | None = option(
        "Ranks per node. Default: the number of GPUs, or 2 on a CPU.", "-p", panel=_TRAINING, min=1
    )
    path: str = option(
        "How bytes move: kernel, symmetric or copy_engine. Default: kernel.",
        panel=_TRAINING,
        metavar="PATH",
        complete=("kernel", "symmetric", "copy_engine"),
        default="kernel",
    )
    command: str | None = option(
        "Your own training command in place of the workload, such as 'torchrun --nproc-per-node 8"
        " train.py'. It writes its traces to $GEMMETRY_TRACE_DIR.",
        panel=_TRAINING,
        metavar="COMMAND",
    )
    library: str | None = option(
        "The library whose variables are set: nccl, rccl or gloo. Default: the one that this "
        "machine's devices use.",
        panel=_TRAINING,
        metavar="LIBRARY",
        complete=("nccl", "rccl", "gloo"),
    )
    nnodes: int = option("Number of nodes. Default: 1.", panel=_NODES, min=1, default=1)
    rdzv_endpoint: str = option(
        "Where the agents of torchrun on all nodes meet.",
        panel=_NODES,
        metavar="HOST:PORT",
        default="",
    )
    launcher: str = option(
        "A command that starts what follows it on every node, such as 'srun --ntasks-per-node=1'.",
        panel=_NODES,
        metavar="COMMAND",
        default="",
    )
    executor: str = option(
        "Where the points run: local (this machine), or ray (a node of a Ray cluster).",
        panel=_NODES,
        metavar="NAME",
        default="local",
    )
    executor_options: dict[str, str] = option(
        "Options of the executor ray: address, num_gpus, num_cpus, resources, retries.",
        panel=_NODES,
        metavar="NAME=VALUE",
        default="",
        parse=parse_options,
    )
    shard: str = option(
        "Run one of N parts of the points, as in 1/2 and 2/2.",
        panel=_NODES,
        metavar="K/N",
        default="",
    )
    rocprof: bool = option("Run each point under rocprofv3.", "-r", panel=_PROFILERS)
    rocprof_input: Path | None = option(
        "Its input file: kernels, counters. Implies --rocprof.", panel=_PROFILERS, metavar="FILE"
    )
    stats: bool = option("Let rocprofv3 write statistics of its times.", "-m", panel=_PROFILERS)
    ncu: str | None = option(
        "Run each rank under Nsight Compute with these arguments; no traces are recorded.",
        panel=_PROFILERS,
        metavar="ARGUMENTS",
    )
    output: Path | None = option(
        "Folder of the sweep. Default: gemmetry-out/sweep_<date>_<time>.",
        "--output",
        "-o",
        "--output-dir",
        metavar="DIR",
    )
    resume: bool = option(
        "Continue the sweep in --output, or the latest one if there is one.",
        "--resume",
        "-s",
        "--skip-existing",
    )
    fresh: bool = option("Begin anew in --output; what is there is moved aside.")
    timeout_s: float | None = option(
        "End a point that takes longer. Default: no limit.", "--timeout", metavar="SECONDS", min=0
    )


@dataclass(kw_only=True)
class Run(Training, DryRun, Printed):
    command_class: ClassVar = SweepCommand

    no_aggregate: bool = option("No effect.", "-n", hidden=True)


def run(options: Run) -> int:
    """Train once for each combination of communication settings, and trace every run.

    Each point of the sweep gets a folder, <T>thread/nccl_<C>channels/, with the traces of all
    ranks, the log and point.json; sweep.json describes the sweep. A point that fails is marked and
    the others run. The same command continues an interrupted sweep: points that succeeded are kept,
    and further values and repeats are added.

    Without --command, gemmetry's own workload trains: a transformer with DDP or FSDP2.
    """
    from gemmetry.sweeps.runs import plan

    planned = plan(**values(options, Training))
    if options.no_aggregate:
        note("note: --no-aggregate has no effect: gemmetry sweep analyze is a separate command")
    for text in planned.notes:
        note(f"note: {text}")
    if options.dry_run:
        _show(planned, as_json=options.json)
        return 0
    return _run(planned, fresh=options.fresh, as_json=options.json)


_MOST_LOGS = 5
"""Failed points whose logs are named."""


def _run(planned: SweepPlan, *, fresh: bool, as_json: bool) -> int:
    from gemmetry.domain.errors import InterruptedRunError
    from gemmetry.domain.units import counted, noun_for
    from gemmetry.sweeps.folder import LOG
    from gemmetry.sweeps.progress import JobProgress

    folder = shlex.quote(str(planned.folder))
    again = f"the same command with -o {folder}" + (" and without --fresh" if fresh else "")
    count = len(planned.plan.points)
    try:
        with JobProgress("points", str(planned.folder), stderr_console()) as listener:
            found = planned.run(listener=listener, command=command_line())
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"{planned.succeeded} of {counted(count, 'point')} "
            f"{noun_for(planned.succeeded, 'has its', 'have their')} traces in {planned.folder}",
            hint=f"Continue it: {again}.",
        ) from None
    if as_json:
        print_json(found.document(), indent=1)
    failed = len(found.failed)
    if failed:
        again = f"{again} runs {noun_for(failed, 'it', 'them')} again"
        note(f"{failed} of {counted(count, 'point')} failed; {again}")
        for point in found.failed[:_MOST_LOGS]:
            note(f"  {point.folder}: {planned.folder / point.folder / LOG}")
        if failed > _MOST_LOGS:
            note(f"  and {failed - _MOST_LOGS} more, each with a {LOG}")
    note(f"sweep: {planned.folder}")
    if failed < count:
        note("analyse it:", command=f"gemmetry sweep analyze {folder}")
    return 1 if failed else 0


def _show(planned: SweepPlan, *, as_json: bool) -> None:
    """Print the points in the order in which they would run, and the command of the first."""
    if as_json:
        print_json(planned.document(), indent=1)
        return
    say(_heading(planned))
    for job in planned.jobs:
        say(f"  {job.name}" + ("  (kept)" if job.name in planned.kept else ""))
    waiting = [job for job in planned.jobs if job.name not in planned.kept]
    if waiting:
        say(f"environment of {waiting[0].name}:")
        for name, value in waiting[0].environment.items():
            say(f"  {name}={value}")
        say(f"command:\n  {shlex.join(waiting[0].argv)}")
    say(f"sweep: {planned.folder}")


def _heading(planned: SweepPlan) -> str:
    from gemmetry.domain.units import counted, noun_for

    count, kept = len(planned.jobs), len(planned.kept)
    if not kept:
        return f"{counted(count, 'point')} would run, in this order:"
    if kept == count:
        return f"no point would run: {noun_for(count, 'it has', 'all have')} succeeded earlier:"
    rest = f"{kept} {noun_for(kept, 'has', 'have')} succeeded earlier"
    return f"{count - kept} of {counted(count, 'point')} would run, in this order; {rest}:"
