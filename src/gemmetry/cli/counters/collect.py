"""``gemmetry counters collect``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.completion import option
from gemmetry.cli.console import note, print_facts, print_json, say
from gemmetry.cli.options import DryRun, Json

if TYPE_CHECKING:
    from gemmetry.counters.collecting.collector import Collected, Collection

_WHAT = "What is collected"
_WHICH = "Of which launches"
_HOW = "How"
_SETS = ("quick", "gemm", "full", "document")
"""Keys of :data:`~gemmetry.counters.collecting.sets.SETS`, without its import."""


def collect(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="The application with its arguments."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER",
            help="A folder, or a file .ncu-rep. Default: counters_DATE_TIME.",
        ),
    ] = None,
    metric_set: Annotated[
        str,
        option(
            "--set", panel=_WHAT, choices=_SETS, metavar="NAME",
            help="quick: four sections; gemm: what a diagnosis of a GEMM uses; full: everything; "
            "document: the eight metrics of the Nsight Compute document.",
        ),
    ] = "gemm",
    section: Annotated[
        list[str] | None,
        option("--section", panel=_WHAT, metavar="ID", help="A further section of ncu."),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        option("--metrics", panel=_WHAT, metavar="IDS", help="Further metrics or counters."),
    ] = None,
    kernel: Annotated[
        str | None,
        option(
            "--kernel", "-k", panel=_WHICH, metavar="REGEX",
            help="Only kernels with a demangled name in which this is found. Default: all but "
            "those of collectives.",
        ),
    ] = None,
    collectives: Annotated[
        bool,
        option(
            "--collectives", panel=_WHICH,
            help="Also kernels of NCCL and RCCL: run alone, they may wait forever.",
        ),
    ] = False,
    launch_skip: Annotated[
        int, option("--launch-skip", "-s", panel=_WHICH, min=0, help="Launches to leave out."),
    ] = 0,
    launch_count: Annotated[
        int | None,
        option("--launch-count", "-c", panel=_WHICH, min=1, help="Launches to profile."),
    ] = None,
    nvtx: Annotated[
        list[str] | None,
        option(
            "--nvtx", panel=_WHICH, metavar="RANGE",
            help="Only launches within this NVTX range, or expression of ncu.",
        ),
    ] = None,
    clock_control: Annotated[
        Literal["none", "base"],
        option(
            "--clock-control", panel=_HOW, metavar="none|base",
            help="none: leave the clocks alone; base: fix them.",
        ),
    ] = "none",
    cache_control: Annotated[
        Literal["all", "none"],
        option(
            "--cache-control", panel=_HOW, metavar="all|none",
            help="all: empty the caches before each pass; none: do not.",
        ),
    ] = "all",
    replay_mode: Annotated[
        Literal["kernel", "application", "range", "app-range"],
        option(
            "--replay-mode", panel=_HOW, metavar="MODE",
            help="What is run once per pass: kernel, application, range or app-range.",
        ),
    ] = "kernel",
    tool: Annotated[
        Literal["ncu", "rocprofv3"] | None,
        option("--tool", panel=_HOW, metavar="NAME", help="ncu or rocprofv3; by the GPU."),
    ] = None,
    target_processes: Annotated[
        Literal["all", "application-only"],
        option(
            "--target-processes", panel=_HOW, metavar="all|application-only",
            help="all: also the processes that the command starts; application-only: not those.",
        ),
    ] = "all",
    force: Annotated[
        bool,
        typer.Option(
            "--force", "--force-overwrite", "-f",
            help="Replace the files of an earlier collection.",
        ),
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print the counters as CSV on stdout.")
    ] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Run a command under Nsight Compute or rocprofv3, and keep the counters of its kernels.

    Kernels run once per pass, one after the other, so that the command takes much longer and its
    own times mean nothing. Its output goes to a file.
    """
    from gemmetry.api.counters.collection import collect_counters, plan_counters
    from gemmetry.counters.collecting.request import CollectRequest

    request = CollectRequest(
        command=tuple(command or ()),
        metric_set=metric_set,
        sections=_names(section),
        metrics=_names(metrics),
        kernel=kernel,
        collectives=collectives,
        launch_skip=launch_skip,
        launch_count=launch_count,
        nvtx=tuple(nvtx or ()),
        clock_control=clock_control,
        cache_control=cache_control,
        replay_mode=replay_mode,
        target_processes=target_processes,
    )
    planned = plan_counters(request, output, tool=tool, is_shown_only=dry_run)
    if dry_run:
        _show_plan(planned, as_json=json)
        return
    for text in planned.notes:
        note(f"note: {text}")
    note(f"{planned.profiler.name} {planned.profiler.version} runs {shlex.join(request.command)}")
    collected = collect_counters(planned, replace=force)
    for text in collected.notes[len(planned.notes) :]:
        note(f"warning: {text}")
    if json:
        from json import loads

        print_json(loads(planned.files.description.read_text()))
    elif csv and planned.files.table.exists():
        typer.echo(planned.files.table.read_text(), nl=False)
    else:
        _show(collected)


def _names(given: list[str] | None) -> tuple[str, ...]:
    return tuple(one for text in given or () for one in text.replace(",", " ").split())


def _show_plan(planned: Collection, *, as_json: bool) -> None:
    if as_json:
        print_facts(
            command=list(planned.argv),
            input=None if planned.input is None else planned.input.text,
            notes=list(planned.notes),
        )
        return
    if planned.input is not None:
        say(f"# {planned.files.passes}")
        say(planned.input.text)
    say(shlex.join(planned.argv))
    for text in planned.notes:
        note(f"note: {text}")


def _show(collected: Collected) -> None:
    from gemmetry.domain.units import counted

    parts = [counted(collected.launches, "launch", "launches")] if collected.launches else []
    if collected.passes:
        parts.append(f"{counted(collected.passes, 'pass', 'passes')} each")
    say(f"collected {', '.join(parts) if parts else 'counters'}")
    files = collected.files
    for path, what in (
        (files.report, "the report"),
        (files.table, "its counters as CSV"),
        (files.description, "how it was collected"),
        (files.application_log, "the command's output"),
    ):
        if path.exists():
            say(f"  {path}  {what}")
    if files.table.exists():
        command = ["gemmetry", "counters", "diagnose", str(files.table)]
        note("what bounds them:", command=shlex.join(command))


app = typer.Typer(add_completion=False)
# What follows the command belongs to it, also without the two hyphens.
app.command("collect", cls=WorkbenchCommand, context_settings={"allow_interspersed_args": False})(
    collect
)
