"""``gemmetry counters metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gemmetry.cli.options import Json, Outputs
from gemmetry.cli.tables import emit

if TYPE_CHECKING:
    from gemmetry.domain.tables import Table


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
    from gemmetry.api.counters.collection import metric_table

    emit(metric_table(chip, concept), as_json=json, outputs=output or [], show=_print)


def _print(table: Table) -> None:
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
