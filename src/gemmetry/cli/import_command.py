"""``gemmetry import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.console import say
from gemmetry.cli.options import Json

app = typer.Typer(add_completion=False)


@app.command("import", cls=WorkbenchCommand)
def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Results of cutlass_profiler, hipblaslt-bench or tritonbench (CSV), "
            "FlashInfer-Bench (JSON lines) or Kernel Tuner (JSON); also compressed.",
        ),
    ],
    into: Annotated[
        Path,
        typer.Option(
            "--into",
            "-o",
            metavar="DIR",
            help="Folder to create; it must not contain an experiment yet.",
        ),
    ],
    operation: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What the kernels compute, where a file does not state it: formats and layouts "
            "(f16t_f16t_f16t), or a whole operation "
            "(matmul_4096x4096x4096_f32t_f32t_f32t). Default: none.",
        ),
    ] = "",
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="EXPERIMENT",
            help="Folder of an experiment on the same device and inputs, so that merging both "
            "compares their dispatches. Default: none.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Import results of other benchmarks as an experiment; they are marked as not verified here.

    Rows that cannot be imported are listed with the reason, and the others are imported. Exit
    status 2 if there is none.
    """
    from gemmetry.cli.console import command_line, note, print_facts
    from gemmetry.domain.units import counted
    from gemmetry.store.imported import MeasuredOn, import_results, measured_like

    summary = import_results(
        files,
        into,
        operation=operation,
        measured_on=MeasuredOn() if like is None else measured_like(like),
        command=command_line(),
    )
    for problem in summary.problems:
        note(f"left out: {problem}")
    if json:
        print_facts(
            experiment=str(into), records=summary.records, formats=dict(summary.by_format),
            left_out=summary.problems,
        )  # fmt: skip
        return
    by_format = ", ".join(f"{count} of {name}" for name, count in summary.by_format.items())
    left_out = f", {counted(len(summary.problems), 'row')} left out" if summary.problems else ""
    say(f"{into}: {counted(summary.records, 'record')} ({by_format}){left_out}")
