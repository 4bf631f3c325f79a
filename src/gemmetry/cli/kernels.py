"""``gemmetry kernels``: the group of commands about our own kernels.

``gemmetry kernels check``.

``gemmetry kernels ladder``.

``gemmetry kernels list``.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from gemmetry.cli.console import emit
from gemmetry.cli.main import LazyGroup, group_app
from gemmetry.cli.options import Fresh, Json, Outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gemmetry.dispatches.ladder import Ladder
    from gemmetry.dispatches.ladder_run import LadderRun
    from gemmetry.domain.tables import Table


class KernelsGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    modules: ClassVar = {
        "list": "kernels:list_",
        "check": "kernels:check",
        "ladder": "kernels:ladder",
    }


app = group_app(KernelsGroup, "List, check and measure this project's own CUDA kernels.")


def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Kernels and configurations as `gemmetry kernels list` prints them, or globs: "
            "r07, r11_128x256_c2x1_b8, 'decode*'. Default: all.",
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option("--kernel", metavar="GLOB", help="The same as NAME.")
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", help="Threads that compile; 0: one per core.", min=0)
    ] = 0,
    json: Json = False,
    output: Outputs = None,
) -> None:
    """Compile kernels in each of their configurations, and check the machine code.

    No GPU is needed. What was found is kept until a source or the compiler changes.

    Exit status 1 if a kernel does not compile, spills registers, uses local memory, lacks an
    instruction that it is built on, or is slower than its source by a note of the compiler: matrix
    instructions that wait for each other, requests for registers that are ignored.
    """
    from gemmetry.cli.console import check_outputs, emit, stderr_console
    from gemmetry.dispatches.progress import CountProgress
    from gemmetry.domain.files import user_cache
    from gemmetry.engine.kernels import check_kernels
    from gemmetry.hardware.host import usable_cores

    check_outputs(output or ())
    wanted = [*(names or ()), *([kernel] if kernel else ())]
    with CountProgress("compiled", stderr_console()) as progress:
        table = check_kernels(
            wanted, jobs=jobs or usable_cores(), kept_in=user_cache("kernels"), progress=progress
        )
    emit(table, as_json=json, outputs=output or [], show=_print)
    if "failed" in table.values("status"):
        raise typer.Exit(1)


def _print(table: Table) -> None:
    """Print a line for each kernel, and below it what is wrong with which configuration."""
    from rich.text import Text

    from gemmetry.cli.console import stdout_console

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


def ladder(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[EXPERIMENT]",
            help="A folder with results, which are shown; nothing runs. Default: run the ladder.",
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            metavar="SIZES",
            help="M = N = K. Rungs 0 to 2 run up to 512, those from 2 on above. "
            "Default: 256,2048,4096,8192.",
        ),
    ] = None,
    rungs: Annotated[
        str | None,
        typer.Option("--rungs", metavar="NUMBERS", help="Only these: 2,5-11. Default: all."),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="NAME", help="Format of A, B and C: bf16 or f16.")
    ] = "bf16",
    configurations: Annotated[
        int,
        typer.Option("--configurations", help="How many of each rung, the best by plan.", min=1),
    ] = 2,
    regime: Annotated[
        str,
        typer.Option("--regime", metavar="NAME", help="Thermal regime: burst or sustained."),
    ] = "burst",
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="DEVICE", help="cuda:1. Default: the first Hopper GPU."),
    ] = None,
    experiment: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder. Default: gemmetry-out/ladder-<hash of plan>."),
    ] = None,
    json: Json = False,
    output: Outputs = None,
    fresh: Fresh = False,
) -> None:
    """Verify and measure every rung of the ladder, interleaved with cuBLAS, and show its gain.

    A rung is compared with the one before only on sizes that both ran. All intervals hold together.
    The gains that were planned for each phase are shown next to what was measured. Files: tables
    (csv, json, parquet, xlsx, md, html) or a picture (png, svg).
    """
    from gemmetry.cli.console import check_outputs, note, print_json, stdout_console
    from gemmetry.dispatches.ladder_report import SUFFIXES, ladder_tables, print_ladder
    from gemmetry.dispatches.ladder_run import SIZES, ladder_of, parse_rungs, prepare_ladder
    from gemmetry.domain.specs.ranges import parse_sizes
    from gemmetry.engine.store.experiment import Experiment
    from gemmetry.results.emit import FORMATS, tables_document

    check_outputs(output or (), (*FORMATS, *SUFFIXES))
    status = 0
    if folder is None:
        prepared = prepare_ladder(
            sizes=parse_sizes(sizes) if sizes else SIZES,
            dtype=dtype,
            rungs=parse_rungs(rungs) if rungs else None,
            configurations=configurations,
            device=device,
            regime=regime,
            experiment=experiment,
        )
        folder, status = prepared.experiment, _run(prepared, fresh=fresh)
    with Experiment.open(folder) as stored:
        found = ladder_of(stored.result_set())
        if json:
            print_json(tables_document(ladder_tables(found)))
        else:
            print_ladder(found, stdout_console())
        for path in output or ():
            _write(found, path)
            note(f"wrote {path}")
    raise typer.Exit(status)


def _run(prepared: LadderRun, *, fresh: bool) -> int:
    """Run the ladder; the exit status."""
    from gemmetry.cli.console import command_line, note, stderr_console
    from gemmetry.cli.run import print_failure, reporting_what_is_kept
    from gemmetry.dispatches.ladder_run import run_ladder
    from gemmetry.dispatches.progress import ProgressListener

    progress = ProgressListener(stderr_console())
    with reporting_what_is_kept(prepared.experiment, fresh=fresh), progress as listener:
        summary = run_ladder(prepared, listener=listener, fresh=fresh, command=command_line())
    note(f"experiment: {prepared.experiment}")
    if summary.failure:
        print_failure(summary)
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


def list_(json: Json = False, output: Outputs = None) -> None:
    """List the kernels: what each rung of the ladder adds, and its configurations."""
    from gemmetry.engine.kernels import list_kernels

    emit(list_kernels(), as_json=json, outputs=output or [], show=_list_command_print)


def _list_command_print(table: Table) -> None:
    """Print each kernel with what it adds, and below it the names of its configurations."""
    from textwrap import wrap

    from rich.text import Text

    from gemmetry.cli.console import stdout_console

    console = stdout_console()
    width = min(console.width, 100)
    for row in table.records():
        rung = "" if row["rung"] is None else f" (rung {row['rung']})"
        console.print(Text.assemble((row["name"], "bold"), rung))
        for text, style in ((row["adds"], ""), (" ".join(row["configurations"]), "dim")):
            for line in wrap(text, width - 4, break_on_hyphens=False):
                console.print(Text(f"    {line}", style))
