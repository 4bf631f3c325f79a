"""``gemmetry kernels check``."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmetry.cli.options import Json, Outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gemmetry.domain.tables import Table


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
    from gemmetry.api.kernels.catalogue import check_kernels
    from gemmetry.cli.console import stderr_console
    from gemmetry.cli.tables import check_outputs, emit
    from gemmetry.formats.files import user_cache
    from gemmetry.hardware.host import usable_cores
    from gemmetry.reports.progress import CountProgress

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
