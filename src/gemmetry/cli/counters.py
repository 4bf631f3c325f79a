"""``gemmetry counters``: the group of commands about hardware counters.

``gemmetry counters collect``.

``gemmetry counters compare``.

``gemmetry counters diagnose``.

``gemmetry counters import``.

``gemmetry counters metrics``.
"""

from __future__ import annotations

import shlex
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import typer

from gemmetry.cli.console import emit, note, print_facts, print_json, say
from gemmetry.cli.main import LazyGroup, group_app
from gemmetry.cli.options import DrawingOutputs, DryRun, Json, Outputs, WorkbenchCommand, option

if TYPE_CHECKING:
    from rich.console import Console

    from gemmetry.counters.api import CounterReports
    from gemmetry.counters.collecting.collector import Collected, Collection
    from gemmetry.domain.tables import Table
    from gemmetry.formats.counters.launches import ProfiledLaunch


class CountersGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    modules: ClassVar = {
        "collect": "counters:collect_app",
        "import": "counters:import_",
        "diagnose": "counters:diagnose",
        "compare": "counters:compare",
        "metrics": "counters:metrics",
    }


app = group_app(CountersGroup, "Collect, read and diagnose the hardware counters of kernels.")


_WHAT = "What is collected"
_WHICH = "Of which launches"
_HOW = "How"
_SETS = ("quick", "gemm", "full", "document")
"""Keys of :data:`~gemmetry.counters.collecting.tools.SETS`, without its import."""


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
    from gemmetry.counters.api import plan_counters
    from gemmetry.counters.collecting.collector import collect as run
    from gemmetry.counters.collecting.tools import CollectRequest
    from gemmetry.engine.opaque import run_command

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
    collected = run(planned, run_command, replace=force)
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


collect_app = typer.Typer(add_completion=False)
# What follows the command belongs to it, also without the two hyphens.
collect_app.command(
    "collect", cls=WorkbenchCommand, context_settings={"allow_interspersed_args": False}
)(collect)


def compare(
    reports: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B...",
            help="Reports, as for gemmetry counters diagnose; the others are compared with A. Of "
            "one report: launches of one kernel with different grids.",
        ),
    ],
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME", help="Name of a report, once per report."),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="REGEX", help="Only kernels whose name contains it."),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="NAMES",
            help="Further concepts of gemmetry counters metrics, or ids of metrics; separated by "
            "commas.",
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Relative differences up to this are ignored: 5% or 0.05. Default: 1%.",
        ),
    ] = None,
    operation: Annotated[
        str | None,
        typer.Option(
            "--operation",
            metavar="NAME",
            help="What the GEMMs compute: matmul_4096x4096x4096_bf16t_bf16n_bf16t.",
        ),
    ] = None,
    json: Json = False,
    output: DrawingOutputs = None,
) -> None:
    """Compare the counters of kernels, and what the diagnosis says about them.

    Where a kernel was launched often enough, differences have a verdict from an interval; of a
    single launch they are undecided.
    """
    from gemmetry.cli.console import check_outputs, note, print_json, stdout_console
    from gemmetry.counters.api import compare as run
    from gemmetry.counters.comparison import THRESHOLD
    from gemmetry.domain.units import parse_share
    from gemmetry.results.emit import FORMATS
    from gemmetry.results.tables import PICTURES

    check_outputs(output or (), (*FORMATS, *PICTURES), draws=True)
    wanted = [name.strip() for text in metrics or () for name in text.split(",") if name.strip()]
    found = run(
        *reports, labels=label or (), kernel=kernel, metrics=wanted, operation=operation,
        threshold=THRESHOLD if threshold is None else parse_share(threshold),
    )  # fmt: skip
    for problem in found.problems:
        note(f"warning: {problem}")
    if json:
        print_json(found.document())
    else:
        from gemmetry.counters.text import hidden_kernels, print_comparison

        print_comparison(found.comparison, stdout_console())
        if hidden := hidden_kernels(found.comparison):
            note(f"{hidden} more kernels took less time; --kernel REGEX selects, --json has all")
    for path in output or ():
        found.write(path)
        note(f"wrote {path}")


def diagnose(
    reports: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Reports of Nsight Compute (.ncu-rep, CSV), counters of rocprofv3, or folders of "
            "gemmetry counters collect.",
        ),
    ],
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="REGEX", help="Only kernels whose name contains it."),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape", metavar="MxNxK", help="What the GEMMs compute, to check the work they did."
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="NAME",
            help="Format of A and B: bf16; with that of C: bf16:bf16:f32.",
        ),
    ] = None,
    operation: Annotated[
        str | None,
        typer.Option(
            "--operation",
            metavar="NAME",
            help="Instead of both: matmul_4096x4096x4096_bf16t_bf16n_bf16t.",
        ),
    ] = None,
    brief: Annotated[
        bool,
        typer.Option("--brief", help="The verdict and three findings per kernel, in eleven lines."),
    ] = False,
    checklist: Annotated[
        bool,
        typer.Option(
            "--beside",
            help="Also what the checklist of the Nsight Compute document and NVIDIA's rules say.",
        ),
    ] = False,
    json: Json = False,
    output: DrawingOutputs = None,
) -> None:
    """Report what bounds each kernel, with evidence, threshold, confidence and remedy.

    A unit at its limit comes first; stalls and occupancy count only where no unit is near its
    limit. What was not counted is named, with the options that collect it.
    """
    from gemmetry.cli.console import check_outputs, note, print_json, stdout_console
    from gemmetry.counters.api import diagnose as diagnose_reports
    from gemmetry.domain.errors import RequestError
    from gemmetry.results.emit import FORMATS
    from gemmetry.results.tables import PICTURES

    check_outputs(output or (), (*FORMATS, *PICTURES), draws=True)
    if brief and checklist and not (json or output):
        raise RequestError(
            "--brief and --beside cannot be shown together: the checklist takes more than the "
            "lines of --brief",
            hint="Leave one of them out, or write the checklist to a file: -o diagnosis.html.",
        )
    found = diagnose_reports(*reports, kernel=kernel, shape=shape, dtype=dtype, operation=operation)
    for problem in found.problems:
        note(f"warning: {problem}")
    if json:
        print_json(found.document(brief=brief, checklists=checklist))
    else:
        from gemmetry.counters.text import print_brief, print_diagnoses

        shown = found.groups(checklists=checklist)
        (print_brief if brief else print_diagnoses)(shown, stdout_console())
        if hidden := found.hidden_groups:
            note(f"{hidden} more kernels took less time; --kernel REGEX selects, --json has all")
    for path in output or ():
        found.write(path, checklists=checklist)
        note(f"wrote {path}")


_MOST = 50
"""Most launches of a report that are printed."""


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Reports, or folders of rocprofv3's files."),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="GLOB",
            help="Only metrics with this id: 'dram__bytes*'. Repeatable.",
        ),
    ] = None,
    json: Json = False,
    output: Outputs = None,
) -> None:
    """Read reports of hardware counters, with all values in base units.

    Reads Nsight Compute's reports and its CSV files, rocprofv3's counters and rocprof-compute's
    tables. Files have one row per launch and a column for each metric; JSON also has the units and
    the conclusions of the profiler's rules. Exit status 1 if some of the files cannot be read.
    """
    from gemmetry.cli.console import check_outputs, note, print_json
    from gemmetry.counters.api import read_reports
    from gemmetry.results.emit import write_atomically, write_tables
    from gemmetry.results.json_text import json_file

    check_outputs(output or [])
    reports = read_reports(files, metric or [])
    if json:
        print_json(reports.document())
    else:
        _print(reports, with_metrics=bool(metric))
    for path in output or []:
        if path.suffix.lower() == ".json":
            write_atomically(path, json_file(reports.document()))
        else:
            write_tables([reports.wide()], path)
        note(f"wrote {path}")
    for problem in reports.problems():
        note(f"warning: {problem}")
    raise typer.Exit(1 if reports.errors else 0)


def _print(reports: CounterReports, *, with_metrics: bool) -> None:
    """Print each report with its launches, and the metrics of each if they were chosen."""
    from rich.text import Text

    from gemmetry.cli.console import stdout_console
    from gemmetry.domain.units import counted
    from gemmetry.results.lines import print_line
    from gemmetry.results.texts import printable

    console = stdout_console()
    for number, table in enumerate(reports.tables):
        if number:
            console.print()
        devices = sorted({f"{one.device} {one.capability}".strip() for one in table.infos})
        counts = counted(len(table), "launch", "launches"), counted(len(table.values), "metric")
        parts = f"{table.tool} {table.version}".strip(), *devices, *counts
        head = printable(f"{table.source}: {', '.join(filter(None, parts))}")
        print_line(Text(head), console, indent=2)
        for launch in islice(table, _MOST):
            _print_launch(launch, console, with_metrics=with_metrics)
        if len(table) > _MOST:
            more = f"{len(table) - _MOST:,} more launches: -o FILE writes all of them"
            print_line(Text(more), console, indent=2)


def _print_launch(launch: ProfiledLaunch, console: Console, *, with_metrics: bool) -> None:
    from rich.text import Text

    from gemmetry.domain.units import format_ns
    from gemmetry.results.texts import cut, printable

    number = "" if launch.info.number is None else f"{launch.info.number:>4}  "
    name = Text.assemble(number, (cut(launch.name, len(launch.name)), "bold"))
    if console.is_terminal:
        name.truncate(console.width, overflow="ellipsis")
    console.print(name, soft_wrap=True)
    sizes = {what: getattr(launch.info, what) for what in ("grid", "block", "cluster")}
    parts = [f"{what} {'×'.join(map(str, size))}" for what, size in sizes.items() if size]
    if launch.duration_ns is not None:
        parts.insert(0, format_ns(launch.duration_ns))
    console.print(Text(f"      {', '.join(parts)}", "dim"), soft_wrap=True)
    if with_metrics:
        values = {
            one: (_digits(value), launch.unit(one)) for one, value in launch.metrics().items()
        }
        values |= {one: (printable(text), "") for one, text in launch.texts().items()}
        for metric, (value, unit) in values.items():
            console.print(Text(f"      {metric}  {value} {unit}".rstrip()), soft_wrap=True)


def _digits(value: float) -> str:
    return str(int(value)) if value.is_integer() else f"{value:.10g}"


def metrics(
    chip: Annotated[
        str | None,
        typer.Option(
            "--chip",
            metavar="CHIP",
            help="A chip (gh100), compute capability (9.0) or architecture (gfx942). Default: "
            "that of this machine's GPU.",
        ),
    ] = None,
    concept: Annotated[
        str | None,
        typer.Option("--concept", metavar="GLOB", help="Only concepts with this name: 'dram_*'."),
    ] = None,
    json: Json = False,
    output: Outputs = None,
) -> None:
    """List what hardware counters show, and the metrics that show it on a chip."""
    from gemmetry.counters.api import metric_table

    emit(metric_table(chip, concept), as_json=json, outputs=output or [], show=_metrics_print)


def _metrics_print(table: Table) -> None:
    """Print each concept with its meaning, and below it the metrics and how they are collected."""
    from textwrap import wrap

    from rich.text import Text

    from gemmetry.cli.console import stdout_console

    console = stdout_console()
    width = min(console.width, 100)

    def show(text: str, indent: int, style: str) -> None:
        # A metric's name may be longer than a line; it is searched for, and so not broken.
        for line in wrap(text, width - indent, break_long_words=False, break_on_hyphens=False):
            console.print(Text(f"{'':{indent}}{line}", style), soft_wrap=True)

    for row in table.records():
        unit = f" ({row['unit']})" if row["unit"] else ""
        console.print(Text.assemble((row["concept"], "bold"), unit))
        show(row["meaning"], 2, "")
        if row["metric"] is None:
            show(f"no metric of {row['chip']} shows it", 4, "dim")
            continue
        show(row["metric"], 4, "cyan")
        show(row["collect"] or "", 4, "dim")  # some counters need no option
