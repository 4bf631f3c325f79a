"""``gemmetry counters import``."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmetry.cli.options import Json, Outputs

if TYPE_CHECKING:
    from rich.console import Console

    from gemmetry.api.counters.reports import CounterReports
    from gemmetry.formats.counters.launches import ProfiledLaunch

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
    from gemmetry.api.counters.reports import read_reports
    from gemmetry.cli.console import note, print_json
    from gemmetry.cli.tables import check_outputs
    from gemmetry.reports.tables.files import write_atomically
    from gemmetry.reports.tables.json import json_file
    from gemmetry.reports.tables.writing import write_tables

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
    from gemmetry.reports.lines import print_line
    from gemmetry.reports.texts import printable

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
    from gemmetry.reports.texts import cut, printable

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
