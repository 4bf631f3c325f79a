"""``gemmetry sweep run``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gemmetry.cli.console import command_line, note, print_json, say, stderr_console
from gemmetry.cli.options import DryRun, Printed, option
from gemmetry.cli.sweep import SweepCommand
from gemmetry.sweeps.options import SweepOptions

if TYPE_CHECKING:
    from gemmetry.sweeps.run import SweepPlan


@dataclass(kw_only=True)
class Run(SweepOptions, DryRun, Printed):
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
    from gemmetry.sweeps.plan import plan_sweep
    from gemmetry.sweeps.run import SweepPlan

    planned = SweepPlan(plan_sweep(options))
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
    from gemmetry.sweeps.run import JobProgress, succeeded

    folder = shlex.quote(str(planned.folder))
    again = f"the same command with -o {folder}" + (" and without --fresh" if fresh else "")
    count = len(planned.plan.points)
    try:
        with JobProgress("points", str(planned.folder), stderr_console()) as listener:
            found = planned.run(listener=listener, command=command_line())
    except KeyboardInterrupt:
        done = sum(map(succeeded, planned.ends().values()))
        raise InterruptedRunError(
            f"{done} of {counted(count, 'point')} {noun_for(done, 'has its', 'have their')} traces "
            f"in {planned.folder}",
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
