"""``gemmetry kernels``: the group of commands about our own kernels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.cli.console import command_line, note, stderr_console, stdout_console
from gemmetry.cli.main import group_app
from gemmetry.cli.options import Restartable, Written, argument, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gemmetry.dispatches.ladder import Ladder
    from gemmetry.dispatches.ladder_run import LadderRun
    from gemmetry.domain.tables import Table


@dataclass(kw_only=True)
class Check(Written):
    names: list[str] = argument(
        "Kernels and configurations as `gemmetry kernels list` prints them, or globs: r07, "
        "r11_128x256_c2x1_b8, 'decode*'. Default: all.",
        "[NAME]...",
        default=None,
    )
    kernel: str | None = option("The same as NAME.", metavar="GLOB")
    jobs: int = option("Threads that compile; 0: one per core.", min=0, default=0)


def check(options: Check) -> int:
    """Compile kernels in each of their configurations, and check the machine code.

    No GPU is needed. What was found is kept until a source or the compiler changes.

    Exit status 1 if a kernel does not compile, spills registers, uses local memory, lacks an
    instruction that it is built on, or is slower than its source by a note of the compiler: matrix
    instructions that wait for each other, requests for registers that are ignored.
    """
    from gemmetry.dispatches.progress import CountProgress
    from gemmetry.domain.files import user_cache
    from gemmetry.engine.catalogue import check_kernels
    from gemmetry.hardware.host import usable_cores

    options.check()
    wanted = [*options.names, *([options.kernel] if options.kernel else ())]
    jobs, cache = options.jobs or usable_cores(), user_cache("kernels")
    with CountProgress("compiled", stderr_console()) as progress:
        table = check_kernels(wanted, jobs=jobs, kept_in=cache, progress=progress)
    options.emit(table, _print)
    return int("failed" in table.values("status"))


def _print(table: Table) -> None:
    """Print a line for each kernel, and below it what is wrong with which configuration."""
    from rich.text import Text

    console = stdout_console()
    for _, rows in groupby(table.records(), key=lambda row: row["name"]):
        found = list(rows)
        is_ok = all(row["status"] == "ok" for row in found)
        style = "" if is_ok else "red"
        for line in _summary(found):
            console.print(Text(line, style), soft_wrap=True)
        for row in found:
            for problem in row["problems"]:
                names = ", ".join(row["configurations"])
                console.print(Text(f"    {names}: {problem}", "red"))
    if reasons := {reason for reason in table.values("not_disassembled") if reason}:
        console.print(Text(f"Instructions were not checked: {reasons.pop()}", "yellow"))


def _summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Up to three lines about the compilations of one kernel."""
    from gemmetry.domain.units import counted, format_bytes

    first = rows[0]
    failed = sum(row["status"] == "failed" for row in rows)
    verdict = f"{failed} of {len(rows)} failed" if failed else "ok"
    head = f"{first['name']}: {verdict}, {counted(len(rows), 'compilation')}"
    registers = [row["registers"] for row in rows if row["registers"] is not None]
    if not registers:
        return [head]
    shared = max(row["shared_bytes"] or 0 for row in rows)
    memory = f"up to {format_bytes(shared)} of shared memory" if shared else "no shared memory"
    facts = [f"{_range(registers)} registers", memory]
    lines = [head, f"    {', '.join(facts)}"]
    expecting = [row for row in rows if row["expected_instructions"]]
    if expecting and all(row["missing_instructions"] == [] for row in expecting):
        names = dict.fromkeys(name for row in expecting for name in row["expected_instructions"])
        lines.append(f"    with {', '.join(names)}")
    return lines


def _range(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    return str(least) if least == most else f"{least} to {most}"


@dataclass(kw_only=True)
class LadderOptions(Written, Restartable):
    folder: Path | None = argument(
        "A folder with results, which are shown; nothing runs. Default: run the ladder.",
        "[EXPERIMENT]",
    )
    sizes: str | None = option(
        "M = N = K. Rungs 0 to 2 run up to 512, those from 2 on above. Default: "
        "256,2048,4096,8192.",
        metavar="SIZES",
    )
    rungs: str | None = option("Only these: 2,5-11. Default: all.", metavar="NUMBERS")
    dtype: str = option("Format of A, B and C: bf16 or f16.", metavar="NAME", default="bf16")
    configurations: int = option("How many of each rung, the best by plan.", min=1, default=2)
    regime: str = option("Thermal regime: burst or sustained.", metavar="NAME", default="burst")
    device: str | None = option("cuda:1. Default: the first Hopper GPU.", metavar="DEVICE")
    experiment: Path | None = option(
        "Folder. Default: gemmetry-out/ladder-<hash of plan>.", metavar="DIR"
    )


def ladder(options: LadderOptions) -> int:
    """Verify and measure every rung of the ladder, interleaved with cuBLAS, and show its gain.

    A rung is compared with the one before only on sizes that both ran. All intervals hold together.
    The gains that were planned for each phase are shown next to what was measured. Files: tables
    (csv, json, parquet, xlsx, md, html) or a picture (png, svg).
    """
    from gemmetry.dispatches.ladder_report import SUFFIXES, ladder_tables, print_ladder
    from gemmetry.dispatches.ladder_run import SIZES, ladder_of, parse_rungs, prepare_ladder
    from gemmetry.domain.specs.ranges import parse_sizes
    from gemmetry.engine.experiment import Experiment
    from gemmetry.results.emit import FORMATS, tables_document

    options.check((*FORMATS, *SUFFIXES))
    folder, status = options.folder, 0
    if folder is None:
        prepared = prepare_ladder(
            sizes=parse_sizes(options.sizes) if options.sizes else SIZES,
            dtype=options.dtype,
            rungs=parse_rungs(options.rungs) if options.rungs else None,
            configurations=options.configurations,
            device=options.device,
            regime=options.regime,
            experiment=options.experiment,
        )
        folder, status = prepared.experiment, _run(prepared, fresh=options.fresh)
    with Experiment.open(folder) as stored:
        found = ladder_of(stored.result_set())
        options.deliver(
            lambda: tables_document(ladder_tables(found)),
            lambda console: print_ladder(found, console),
            lambda path: _write(found, path),
        )
    return status


def _run(prepared: LadderRun, *, fresh: bool) -> int:
    """Run the ladder; the exit status."""
    from gemmetry.cli.run import print_failure, reporting_what_is_kept
    from gemmetry.dispatches.ladder_run import run_ladder
    from gemmetry.dispatches.progress import ProgressListener

    progress = ProgressListener(stderr_console())
    with reporting_what_is_kept(prepared.experiment, fresh=fresh), progress as listener:
        summary = run_ladder(prepared, listener=listener, fresh=fresh, command=command_line())
    note(f"experiment: {prepared.experiment}")
    if summary.failure:
        print_failure(summary.failure)
    return summary.exit_status


def _write(found: Ladder, path: Path) -> None:
    """Write the tables or the picture; a file for one table holds the rungs."""
    from gemmetry.dispatches.ladder_report import SUFFIXES, ladder_picture, ladder_tables
    from gemmetry.results.emit import write_atomically, write_tables

    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        write_atomically(path, ladder_picture(found, suffix.removeprefix(".")))
        return
    tables = ladder_tables(found)
    write_tables(tables[:1] if suffix in (".csv", ".parquet") else tables, path)


def list_(options: Written) -> None:
    """List the kernels: what each rung of the ladder adds, and its configurations."""
    from gemmetry.engine.catalogue import list_kernels

    options.emit(list_kernels(), _print_list)


def _print_list(table: Table) -> None:
    """Print each kernel with what it adds, and below it the names of its configurations."""
    from textwrap import wrap

    from rich.text import Text

    console = stdout_console()
    width = min(console.width, 100)
    for row in table.records():
        rung = "" if row["rung"] is None else f" (rung {row['rung']})"
        console.print(Text.assemble((row["name"], "bold"), rung))
        for text, style in ((row["adds"], ""), (" ".join(row["configurations"]), "dim")):
            for line in wrap(text, width - 4, break_on_hyphens=False):
                console.print(Text(f"    {line}", style))


app = group_app(
    "List, check and measure this project's own CUDA kernels.",
    {"list": list_, "check": check, "ladder": ladder},
)
