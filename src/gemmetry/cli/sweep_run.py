"""The options of ``gemmetry sweep run``.

``gemmetry sweep run``.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmetry.cli.console import command_line, note, print_json, say, stderr_console
from gemmetry.cli.options import DryRun, Json, option

if TYPE_CHECKING:
    from gemmetry.sweeps.runs import SweepPlan


_AXES = "What varies"
_TRAINING = "What trains"
_NODES = "Several nodes"
_PROFILERS = "Further profilers"


Channels = Annotated[
    list[str] | None,
    option(
        "--channels",
        "-c",
        panel=_AXES,
        metavar="NUMBERS",
        help="Channels of NCCL or RCCL. Default: the library's choice.",
    ),
]
Threads = Annotated[
    list[str] | None,
    option(
        "--threads",
        "-t",
        panel=_AXES,
        metavar="NUMBERS",
        help="Threads per channel. Default: the library's choice.",
    ),
]
Axis = Annotated[
    list[str] | None,
    option(
        "--axis",
        panel=_AXES,
        metavar="NAME=VALUES",
        help="A further axis: an environment variable (NCCL_ALGO=Ring,Tree), a key of the "
        "configuration (distributed.bucket_cap_mb=16,32), a {placeholder} of --command, or "
        "path (kernel,copy_engine).",
    ),
]
Repeats = Annotated[
    int,
    option(
        "--repeats",
        panel=_AXES,
        min=1,
        help="Runs of each point. Default: 1.",
        show_default=False,
    ),
]
Order = Annotated[
    str,
    option(
        "--order",
        panel=_AXES,
        metavar="ORDER",
        choices=("random", "given"),
        help="Order of the points: random (shuffled for each repeat) or given (as listed). "
        "Default: random.",
        show_default=False,
    ),
]
Seed = Annotated[
    int,
    option("--seed", panel=_AXES, help="Seed of the random order. Default: 0.", show_default=False),
]
Config = Annotated[
    str | None,
    option(
        "--config",
        "-f",
        panel=_TRAINING,
        metavar="FILE",
        choices=("document", "tiny"),
        help="Configuration of the workload: a YAML file, or the preset document (the "
        "default) or tiny (for a CPU).",
    ),
]
Override = Annotated[
    list[str] | None,
    option(
        "--override",
        panel=_TRAINING,
        metavar="KEY=VALUE",
        help="Replace a key of the configuration, for every point.",
    ),
]
Nproc = Annotated[
    int | None,
    option(
        "--nproc",
        "-p",
        panel=_TRAINING,
        min=1,
        help="Ranks per node. Default: the number of GPUs, or 2 on a CPU.",
    ),
]
BytePath = Annotated[
    str,
    option(
        "--path",
        panel=_TRAINING,
        metavar="PATH",
        choices=("kernel", "symmetric", "copy_engine"),
        help="How bytes move: kernel, symmetric or copy_engine. Default: kernel.",
        show_default=False,
    ),
]
Command = Annotated[
    str | None,
    option(
        "--command",
        panel=_TRAINING,
        metavar="COMMAND",
        help="Your own training command in place of the workload, such as "
        "'torchrun --nproc-per-node 8 train.py'. It writes its traces to "
        "$GEMMETRY_TRACE_DIR.",
    ),
]
Library = Annotated[
    str | None,
    option(
        "--library",
        panel=_TRAINING,
        metavar="LIBRARY",
        choices=("nccl", "rccl", "gloo"),
        help="The library whose variables are set: nccl, rccl or gloo. Default: the one that "
        "this machine's devices use.",
    ),
]
Nnodes = Annotated[
    int,
    option(
        "--nnodes", panel=_NODES, min=1, help="Number of nodes. Default: 1.", show_default=False
    ),
]
RdzvEndpoint = Annotated[
    str,
    option(
        "--rdzv-endpoint",
        panel=_NODES,
        metavar="HOST:PORT",
        help="Where the agents of torchrun on all nodes meet.",
        show_default=False,
    ),
]
Launcher = Annotated[
    str,
    option(
        "--launcher",
        panel=_NODES,
        metavar="COMMAND",
        help="A command that starts what follows it on every node, such as "
        "'srun --ntasks-per-node=1'.",
        show_default=False,
    ),
]
Executor = Annotated[
    str,
    option(
        "--executor",
        panel=_NODES,
        metavar="NAME",
        help="Where the points run: local (this machine), or ray (a node of a Ray cluster).",
    ),
]
ExecutorOptions = Annotated[
    str,
    option(
        "--executor-options",
        panel=_NODES,
        metavar="NAME=VALUE",
        help="Options of the executor ray: address, num_gpus, num_cpus, resources, retries.",
        show_default=False,
    ),
]
Shard = Annotated[
    str,
    option(
        "--shard",
        panel=_NODES,
        metavar="K/N",
        help="Run one of N parts of the points, as in 1/2 and 2/2.",
        show_default=False,
    ),
]
Rocprof = Annotated[
    bool, option("--rocprof", "-r", panel=_PROFILERS, help="Run each point under rocprofv3.")
]
RocprofInput = Annotated[
    Path | None,
    option(
        "--rocprof-input",
        panel=_PROFILERS,
        metavar="FILE",
        help="Its input file: kernels, counters. Implies --rocprof.",
    ),
]
Stats = Annotated[
    bool,
    option("--stats", "-m", panel=_PROFILERS, help="Let rocprofv3 write statistics of its times."),
]
Ncu = Annotated[
    str | None,
    option(
        "--ncu",
        panel=_PROFILERS,
        metavar="ARGUMENTS",
        help="Run each rank under Nsight Compute with these arguments; no traces are recorded.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        "--output-dir",
        metavar="DIR",
        help="Folder of the sweep. Default: gemmetry-out/sweep_<date>_<time>.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        "-s",
        "--skip-existing",
        help="Continue the sweep in --output, or the latest one if there is one.",
    ),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Begin anew in --output; what is there is moved aside.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0,
        help="End a point that takes longer. Default: no limit.",
    ),
]
NoAggregate = Annotated[bool, typer.Option("--no-aggregate", "-n", hidden=True)]


def run(
    channels: Channels = None,
    threads: Threads = None,
    axis: Axis = None,
    repeats: Repeats = 1,
    order: Order = "random",
    seed: Seed = 0,
    config: Config = None,
    override: Override = None,
    nproc: Nproc = None,
    path: BytePath = "kernel",
    command: Command = None,
    library: Library = None,
    nnodes: Nnodes = 1,
    rdzv_endpoint: RdzvEndpoint = "",
    launcher: Launcher = "",
    executor: Executor = "local",
    executor_options: ExecutorOptions = "",
    shard: Shard = "",
    rocprof: Rocprof = False,
    rocprof_input: RocprofInput = None,
    stats: Stats = False,
    ncu: Ncu = None,
    output: Output = None,
    resume: Resume = False,
    fresh: Fresh = False,
    timeout: Timeout = None,
    dry_run: DryRun = False,
    json: Json = False,
    no_aggregate: NoAggregate = False,
) -> None:
    """Train once for each combination of communication settings, and trace every run.

    Each point of the sweep gets a folder, <T>thread/nccl_<C>channels/, with the traces of all
    ranks, the log and point.json; sweep.json describes the sweep. A point that fails is marked and
    the others run. The same command continues an interrupted sweep: points that succeeded are kept,
    and further values and repeats are added.

    Without --command, gemmetry's own workload trains: a transformer with DDP or FSDP2.
    """  # fmt: skip
    from gemmetry.cli.sweep import parse_axes, parse_counts
    from gemmetry.domain.specs.fields import read_options
    from gemmetry.sweeps.runs import plan

    planned = plan(
        output,
        resume=resume,
        fresh=fresh,
        channels=parse_counts(channels or (), "--channels"),
        threads=parse_counts(threads or (), "--threads"),
        axes=parse_axes(axis or ()),
        repeats=repeats,
        order=order,
        seed=seed,
        config=config,
        overrides=override or (),
        nproc=nproc,
        path=path,
        command=command,
        library=library,
        nnodes=nnodes,
        rdzv_endpoint=rdzv_endpoint,
        launcher=launcher,
        executor=executor,
        executor_options=read_options(executor_options) if executor_options else {},
        shard=shard,
        rocprof=rocprof,
        rocprof_input=rocprof_input,
        stats=stats,
        ncu=ncu,
        timeout_s=timeout,
    )
    if no_aggregate:
        note("note: --no-aggregate has no effect: gemmetry sweep analyze is a separate command")
    for text in planned.notes:
        note(f"note: {text}")
    if dry_run:
        _show(planned, as_json=json)
    else:
        raise typer.Exit(_run(planned, fresh=fresh, as_json=json))


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
