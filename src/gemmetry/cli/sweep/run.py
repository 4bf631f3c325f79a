"""``gemmetry sweep run``."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer

from gemmetry.cli.console import command_line, note, print_json, say, stderr_console
from gemmetry.cli.options import DryRun, Json
from gemmetry.cli.sweep import run_options as options

if TYPE_CHECKING:
    from gemmetry.api.sweep_runs import SweepPlan


def run(
    channels: options.Channels = None,
    threads: options.Threads = None,
    axis: options.Axis = None,
    repeats: options.Repeats = 1,
    order: options.Order = "random",
    seed: options.Seed = 0,
    config: options.Config = None,
    override: options.Override = None,
    nproc: options.Nproc = None,
    path: options.BytePath = "kernel",
    command: options.Command = None,
    library: options.Library = None,
    nnodes: options.Nnodes = 1,
    rdzv_endpoint: options.RdzvEndpoint = "",
    launcher: options.Launcher = "",
    executor: options.Executor = "local",
    executor_options: options.ExecutorOptions = "",
    listen: options.Listen = "127.0.0.1",
    token_file: options.TokenFile = "",
    agent_wait: options.AgentWait = "300s",
    rocprof: options.Rocprof = False,
    rocprof_input: options.RocprofInput = None,
    stats: options.Stats = False,
    ncu: options.Ncu = None,
    output: options.Output = None,
    resume: options.Resume = False,
    fresh: options.Fresh = False,
    timeout: options.Timeout = None,
    dry_run: DryRun = False,
    json: Json = False,
    no_aggregate: options.NoAggregate = False,
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
    from gemmetry.domain.units import parse_duration_s
    from gemmetry.specs.fields import read_options

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
        listen=listen,
        token_file=token_file,
        agent_wait_s=parse_duration_s(agent_wait),
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
    from gemmetry.reports.job_progress import JobProgress
    from gemmetry.training.points import LOG

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
