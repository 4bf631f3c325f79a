"""``gemmetry counters``: the group of commands about hardware counters."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import typer

from gemmetry.cli.console import Found, note, notes, print_facts, print_json, say, stdout_console
from gemmetry.cli.main import group_app, named
from gemmetry.cli.options import (
    Drawn,
    DryRun,
    Options,
    Printed,
    WorkbenchCommand,
    Written,
    argument,
    option,
    split_names,
    threshold,
    values,
)

if TYPE_CHECKING:
    from rich.console import Console

    from gemmetry.counters.api import CounterReports
    from gemmetry.counters.collector import Collected
    from gemmetry.counters.tools import Collection
    from gemmetry.domain.tables import Table
    from gemmetry.formats.counters.launches import ProfiledLaunch


_SETS = ("quick", "gemm", "full", "document")
"""Keys of :data:`~gemmetry.counters.tools.SETS`, without its import."""


class CollectCommand(WorkbenchCommand):
    """A command after which another one follows: what follows that belongs to it, also without
    the two hyphens."""

    allow_interspersed_args = False


class What(Options):
    PANEL: ClassVar = "What is collected"

    metric_set: str = option(
        "quick: four sections; gemm: what a diagnosis of a GEMM uses; full: everything; document: "
        "the eight metrics of the Nsight Compute document.",
        "--set NAME",
        default="gemm",
        complete=_SETS,
    )
    sections: tuple[str, ...] = option(
        "A further section of ncu.", "--section ID", parse=split_names
    )
    metrics: tuple[str, ...] = option("Further metrics or counters.", "IDS", parse=split_names)


class Which(Options):
    PANEL: ClassVar = "Of which launches"

    kernel: str | None = option(
        "Only kernels with a demangled name in which this is found. Default: all but those of "
        "collectives.",
        "-k REGEX",
    )
    collectives: bool = option("Also kernels of NCCL and RCCL: run alone, they may wait forever.")
    launch_skip: int = option("Launches to leave out.", "-s", min=0, default=0)
    launch_count: int | None = option("Launches to profile.", "-c", min=1)
    nvtx: tuple[str, ...] = option(
        "Only launches within this NVTX range, or expression of ncu.", "RANGE"
    )


class How(Options):
    PANEL: ClassVar = "How"

    clock_control: Literal["none", "base"] = option(
        "none: leave the clocks alone; base: fix them.", "none|base", default="none"
    )
    cache_control: Literal["all", "none"] = option(
        "all: empty the caches before each pass; none: do not.",
        "all|none",
        default="all",
    )
    replay_mode: Literal["kernel", "application", "range", "app-range"] = option(
        "What is run once per pass: kernel, application, range or app-range.",
        "MODE",
        default="kernel",
    )
    target_processes: Literal["all", "application-only"] = option(
        "all: also the processes that the command starts; application-only: not those.",
        "all|application-only",
        default="all",
    )


class With(Options):
    PANEL: ClassVar = "How"

    tool: Literal["ncu", "rocprofv3"] | None = option("ncu or rocprofv3; by the GPU.", "NAME")


class Wanted(What, Which, How):
    """Data to collect, and its source."""

    command: tuple[str, ...] = argument(
        "The application with its arguments.", "-- COMMAND", default=None
    )


class Collect(Wanted, With, DryRun, Printed):
    command_class: ClassVar = CollectCommand

    output: Path | None = option(
        "A folder, or a file .ncu-rep. Default: counters_DATE_TIME.", "-o FOLDER"
    )
    force: bool = option(
        "Replace the files of an earlier collection.", "--force --force-overwrite -f"
    )
    csv: bool = option("Print the counters as CSV on stdout.")


def collect(options: Collect) -> None:
    """Run a command under Nsight Compute or rocprofv3, and keep the counters of its kernels.

    Kernels run once per pass, one after the other, so that the command takes much longer and its
    own times mean nothing. Its output goes to a file.
    """
    from gemmetry.counters.collector import collect as run
    from gemmetry.counters.collector import plan
    from gemmetry.counters.tools import CollectRequest
    from gemmetry.engine.external import run_command

    request = CollectRequest(**values(options, Wanted))
    planned = plan(request, options.output, tool=options.tool, is_shown_only=options.dry_run)
    if options.dry_run:
        _show_plan(planned, as_json=options.json)
        return
    notes(planned.notes)
    note(f"{planned.profiler.name} {planned.profiler.version} runs {shlex.join(request.command)}")
    collected = run(planned, run_command, replace=options.force)
    notes(collected.notes[len(planned.notes) :], "warning")
    if options.json:
        from json import loads

        print_json(loads(planned.files.description.read_text()))
    elif options.csv and planned.files.table.exists():
        typer.echo(planned.files.table.read_text(), nl=False)
    else:
        _show(collected)


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
    notes(planned.notes)


def _show(collected: Collected) -> None:
    from gemmetry.domain.units import plural

    parts = [plural(collected.launches, "launch", "launches")] if collected.launches else []
    if collected.passes:
        parts.append(f"{plural(collected.passes, 'pass', 'passes')} each")
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


class OfKernels(Drawn):
    """The options of a command about the kernels of reports."""

    kernel: str | None = option("Only kernels whose name contains it.", "REGEX")

    def report(
        self, found: Found, problems: Iterable[str], show: Callable[[Console], None], hidden: int
    ) -> None:
        """Warn of problems, and print and write what was found; `hidden` kernels are not shown."""
        notes(problems, "warning")
        self.deliver(found, show)
        if hidden and not self.json:
            note(f"{hidden} more kernels took less time; --kernel REGEX selects, --json has all")


class Compare(OfKernels):
    reports: list[Path] = argument(
        "Reports, as for gemmetry counters diagnose; the others are compared with A. Of one "
        "report: launches of one kernel with different grids.",
        "A B...",
    )
    label: list[str] = option("Name of a report, once per report.", "NAME")
    metrics: list[str] = option(
        "Further concepts of gemmetry counters metrics, or ids of metrics; separated by commas.",
        "NAMES",
        parse=split_names,
    )
    threshold: float = threshold("1%", default="1%")
    operation: str | None = option(
        "What the GEMMs compute: matmul_4096x4096x4096_bf16t_bf16n_bf16t.", "NAME"
    )


def compare(options: Compare) -> None:
    """Compare the counters of kernels, and what the diagnosis says about them.

    Where a kernel was launched often enough, differences have a verdict from an interval; of a
    single launch they are undecided.
    """
    from gemmetry.counters.api import compare as run
    from gemmetry.counters.text import hidden_kernels, print_comparison
    from gemmetry.results.emit import FORMATS, IMAGES

    options.check((*FORMATS, *IMAGES), draws=True)
    found = run(
        *options.reports,
        labels=options.label,
        kernel=options.kernel,
        metrics=options.metrics,
        operation=options.operation,
        threshold=options.threshold,
    )
    options.report(
        found, found.problems, lambda console: print_comparison(found, console),
        hidden_kernels(found),
    )  # fmt: skip


class Diagnose(OfKernels):
    reports: list[Path] = argument(
        "Reports of Nsight Compute (.ncu-rep, CSV), counters of rocprofv3, or folders of gemmetry "
        "counters collect.",
        "FILE...",
    )
    shape: str | None = option("What the GEMMs compute, to check the work they did.", "MxNxK")
    dtype: str | None = option("Format of A and B: bf16; with that of C: bf16:bf16:f32.", "NAME")
    operation: str | None = option(
        "Instead of both: matmul_4096x4096x4096_bf16t_bf16n_bf16t.", "NAME"
    )
    brief: bool = option(
        "The verdict and three findings per kernel, in eleven lines; with --json at most 4 KB."
    )
    checklist: bool = option(
        "Also what the checklist of the Nsight Compute document and NVIDIA's rules say.", "--beside"
    )


def diagnose(options: Diagnose) -> None:
    """Report what bounds each kernel, with evidence, threshold, confidence and remedy.

    A unit at its limit comes first; stalls and occupancy count only where no unit is near its
    limit. What was not counted is named, with the options that collect it.
    """
    from gemmetry.counters.api import diagnose as run
    from gemmetry.counters.text import print_brief, print_diagnoses
    from gemmetry.domain.errors import RequestError
    from gemmetry.results.emit import FORMATS, IMAGES

    options.check((*FORMATS, *IMAGES), draws=True)
    brief, checklist = options.brief, options.checklist
    if brief and checklist and not (options.json or options.output):
        raise RequestError(
            "--brief and --beside cannot be shown together: the checklist takes more than the "
            "lines of --brief",
            hint="Leave one of them out, or write the checklist to a file: -o diagnosis.html.",
        )
    found = run(
        *options.reports,
        kernel=options.kernel,
        shape=options.shape,
        dtype=options.dtype,
        operation=options.operation,
    )
    show = print_brief if brief else print_diagnoses
    options.report(
        found.result(checklists=checklist),
        found.problems,
        lambda console: show(found.groups(checklists=checklist), console),
        found.hidden_groups,
    )


_MOST = 50
"""Maximum number of launches of a report to print."""


class Import(Written):
    files: list[Path] = argument("Reports, or folders of rocprofv3's files.", "FILE...")
    metric: list[str] = option("Only metrics with this id: 'dram__bytes*'. Repeatable.", "GLOB")


def import_(options: Import) -> int:
    """Read reports of hardware counters, with all values in base units.

    Reads Nsight Compute's reports and its CSV files, rocprofv3's counters and rocprof-compute's
    tables. Files have one row per launch and a column for each metric; JSON also has the units and
    the conclusions of the profiler's rules. Exit status 1 if some of the files cannot be read.
    """
    from gemmetry.counters.api import read_reports
    from gemmetry.results.emit import Result

    options.check()
    reports = read_reports(options.files, options.metric)
    files = Result(rows={"launches": reports.wide}, whole=reports.document)
    has_metrics = bool(options.metric)
    options.deliver(files, lambda console: _print(reports, console, with_metrics=has_metrics))
    notes(reports.problems(), "warning")
    return int(bool(reports.errors))


def _print(reports: CounterReports, console: Console, *, with_metrics: bool) -> None:
    """Print each report with its launches, and the metrics of each if they were chosen."""
    from rich.text import Text

    from gemmetry.domain.units import plural
    from gemmetry.results.lines import print_line
    from gemmetry.results.texts import printable

    for number, table in enumerate(reports.tables):
        if number:
            console.print()
        devices = sorted({f"{one.device} {one.capability}".strip() for one in table.infos})
        counts = (
            plural(len(table), "launch", "launches"),
            plural(len(table.values), "metric"),
        )
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


class Metrics(Written):
    chip: str | None = option(
        "A chip (gh100), compute capability (9.0) or architecture (gfx942). Default: that of this "
        "machine's GPU.",
        "CHIP",
    )
    concept: str | None = option("Only concepts with this name: 'dram_*'.", "GLOB")


def metrics(options: Metrics) -> None:
    """List what hardware counters show, and the metrics that show it on a chip."""
    from gemmetry.counters.api import metric_table

    options.emit(metric_table(options.chip, options.concept), _print_metrics)


def _print_metrics(table: Table) -> None:
    """Print each concept with its meaning, and below it the metrics and how they are collected."""
    from textwrap import wrap

    from rich.text import Text

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


app = group_app(
    "Collect, read and diagnose the hardware counters of kernels.",
    named(collect, import_, diagnose, compare, metrics),
)
