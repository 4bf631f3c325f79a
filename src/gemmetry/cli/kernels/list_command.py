"""``gemmetry kernels list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmetry.cli.options import Json, Outputs
from gemmetry.cli.tables import emit

if TYPE_CHECKING:
    from gemmetry.domain.tables import Table


def list_(json: Json = False, output: Outputs = None) -> None:
    """List the kernels: what each rung of the ladder adds, and its configurations."""
    from gemmetry.api.kernels.catalogue import list_kernels

    emit(list_kernels(), as_json=json, outputs=output or [], show=_print)


def _print(table: Table) -> None:
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
