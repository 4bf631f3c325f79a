"""``gemmetry sweep run``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmetry.cli.completion import complete_names
from gemmetry.cli.console import command_line, note, print_json, stderr_console
from gemmetry.cli.options import DryRun, Json

if TYPE_CHECKING:
    from gemmetry.api.sweep_runs import SweepPlan

_AXES = "What varies"
_TRAINING = "What trains"
_NODES = "Several nodes"
_PROFILERS = "Further profilers"


def _option(*names: str, panel: str, choices: tuple[str, ...] = (), **more: Any) -> Any:
    completer = complete_names(*choices) if choices else None
    return typer.Option(*names, rich_help_panel=panel, autocompletion=completer, **more)


def run(
    channels: Annotated[
        list[str] | None,
        _option(
            "--channels",
            "-c",
            panel=_AXES,
            metavar="NUMBERS",
            help="Channels of NCCL or RCCL. Default: the library's choice.",
        ),
    ] = None,
    threads: Annotated[
        list[str] | None,
        _option(
            "--threads",
            "-t",
            panel=_AXES,
            metavar="NUMBERS",
            help="Threads per channel. Default: the library's choice.",
        ),
    ] = None,
    axis: Annotated[
        list[str] | None,
        _option(
            "--axis",
            panel=_AXES,
            metavar="NAME=VALUES",
            help="A further axis: an environment variable (NCCL_ALGO=Ring,Tree), a key of the "
            "configuration (distributed.bucket_cap_mb=16,32), a {placeholder} of --command, or "
            "path (kernel,copy_engine).",
        ),
    ] = None,
    repeats: Annotated[
        int,
        _option(
            "--repeats",
            panel=_AXES,
            min=1,
            help="Runs of each point. Default: 1.",
            show_default=False,
        ),
    ] = 1,
    order: Annotated[
        str,
        _option(
            "--order",
            panel=_AXES,
            metavar="ORDER",
            choices=("random", "given"),
            help="Order of the points: random (shuffled for each repeat) or given (as listed). "
            "Default: random.",
            show_default=False,
        ),
    ] = "random",
    seed: Annotated[
        int,
        _option(
            "--seed", panel=_AXES, help="Seed of the random order. Default: 0.", show_default=False
        ),
    ] = 0,
    config: Annotated[
        str | None,
        _option(
            "--config",
            "-f",
            panel=_TRAINING,
            metavar="FILE",
            choices=("document", "tiny"),
            help="Configuration of the workload: a YAML file, or the preset document (the "
            "default) or tiny (for a CPU).",
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        _option(
            "--override",
            panel=_TRAINING,
            metavar="KEY=VALUE",
            help="Replace a key of the configuration, for every point.",
        ),
    ] = None,
    nproc: Annotated[
        int | None,
        _option(
            "--nproc",
            "-p",
            panel=_TRAINING,
            min=1,
            help="Ranks per node. Default: the number of GPUs, or 2 on a CPU.",
        ),
    ] = None,
    path: Annotated[
        str,
        _option(
            "--path",
            panel=_TRAINING,
            metavar="PATH",
            choices=("kernel", "symmetric", "copy_engine"),
            help="How bytes move: kernel, symmetric or copy_engine. Default: kernel.",
            show_default=False,
        ),
    ] = "kernel",
    command: Annotated[
        str | None,
        _option(
            "--command",
            panel=_TRAINING,
            metavar="COMMAND",
            help="Your own training command in place of the workload, such as "
            "'torchrun --nproc-per-node 8 train.py'. It writes its traces to "
            "$GEMMETRY_TRACE_DIR.",
        ),
    ] = None,
    library: Annotated[
        str | None,
        _option(
            "--library",
            panel=_TRAINING,
            metavar="LIBRARY",
            choices=("nccl", "rccl", "gloo"),
            help="The library whose variables are set: nccl, rccl or gloo. Default: the one that "
            "this machine's devices use.",
        ),
    ] = None,
    nnodes: Annotated[
        int,
        _option(
            "--nnodes", panel=_NODES, min=1, help="Number of nodes. Default: 1.", show_default=False
        ),
    ] = 1,
    rdzv_endpoint: Annotated[
        str,
        _option(
            "--rdzv-endpoint",
            panel=_NODES,
            metavar="HOST:PORT",
            help="Where the agents of torchrun on all nodes meet.",
            show_default=False,
        ),
    ] = "",
    launcher: Annotated[
        str,
        _option(
            "--launcher",
            panel=_NODES,
            metavar="COMMAND",
            help="A command that starts what follows it on every node, such as "
            "'srun --ntasks-per-node=1'.",
            show_default=False,
        ),
    ] = "",
    rocprof: Annotated[
        bool, _option("--rocprof", "-r", panel=_PROFILERS, help="Run each point under rocprofv3.")
    ] = False,
    rocprof_input: Annotated[
        Path | None,
        _option(
            "--rocprof-input",
            panel=_PROFILERS,
            metavar="FILE",
            help="Its input file: kernels, counters. Implies --rocprof.",
        ),
    ] = None,
    stats: Annotated[
        bool,
        _option(
            "--stats", "-m", panel=_PROFILERS, help="Let rocprofv3 write statistics of its times."
        ),
    ] = False,
    ncu: Annotated[
        str | None,
        _option(
            "--ncu",
            panel=_PROFILERS,
            metavar="ARGUMENTS",
            help="Run each rank under Nsight Compute with these arguments; no traces are recorded.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            "--output-dir",
            metavar="DIR",
            help="Folder of the sweep. Default: gemmetry-out/sweep_<date>_<time>.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            "-s",
            "--skip-existing",
            help="Continue the sweep in --output, or the latest one.",
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew in --output; what is there is moved aside.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0,
            help="End a point that takes longer. Default: no limit.",
        ),
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
    no_aggregate: Annotated[bool, typer.Option("--no-aggregate", "-n", hidden=True)] = False,
) -> None:
    """Train once for each combination of communication settings, and trace every run.

    Each point of the sweep gets a folder, <T>thread/nccl_<C>channels/, with the traces of all
    ranks, the log and point.json; sweep.json describes the sweep. A point that fails is marked and
    the others run. The same command continues an interrupted sweep: points that succeeded are kept,
    and further values and repeats are added.

    Without --command, gemmetry's own workload trains: a transformer with DDP or FSDP2.
    """  # fmt: skip
    from gemmetry.api.sweep_runs import plan
    from gemmetry.cli.sweep.arguments import parse_axes, parse_counts

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


def _run(planned: SweepPlan, *, fresh: bool, as_json: bool) -> int:
    from gemmetry.domain.errors import InterruptedRunError
    from gemmetry.domain.units import counted, noun_for
    from gemmetry.reports.job_progress import JobProgress

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
    note(f"sweep: {planned.folder}")
    if failed < count:
        note("analyse it:", command=f"gemmetry sweep analyze {folder}")
    return 1 if failed else 0


def _show(planned: SweepPlan, *, as_json: bool) -> None:
    """Print the points in the order in which they would run, and the command of the first."""
    if as_json:
        print_json(planned.document(), indent=1)
        return
    from gemmetry.domain.units import counted

    first = planned.jobs[0]
    typer.echo(f"{counted(len(planned.jobs), 'point')} would run, in this order:")
    for job in planned.jobs:
        typer.echo(f"  {job.name}")
    typer.echo(f"environment of {first.name}:")
    for name, value in first.environment.items():
        typer.echo(f"  {name}={value}")
    typer.echo(f"command:\n  {shlex.join(first.argv)}")
    typer.echo(f"sweep: {planned.folder}")
