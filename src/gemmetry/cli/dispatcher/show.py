"""``gemmetry dispatcher show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.console import say
from gemmetry.cli.options import Json, Outputs


def show(
    table: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TABLE]",
            help="A file of gemmetry dispatcher build. Default: the one for the H200.",
        ),
    ] = None,
    json: Json = False,
    output: Outputs = None,
) -> None:
    """Show what a table chooses for each shape that was measured, and why."""
    from gemmetry.cli.console import print_json
    from gemmetry.cli.dispatcher.tables import open_table
    from gemmetry.cli.tables import check_outputs, emit, write_outputs
    from gemmetry.dispatcher.documents import entry_table
    from gemmetry.domain.units import counted

    check_outputs(output or ())
    found = open_table(table)
    if json:
        print_json(found.document())
        write_outputs(entry_table(found), output or ())
        return
    versions = ", ".join(f"{name} {text}" for name, text in sorted(found.versions.items()))
    say(f"{found.device} ({found.target}){', ' if versions else ''}{versions}")
    verified = counted(len(found.certificates), "verified candidate")
    say(f"{counted(len(found.entries), 'measured shape')}, {verified}")
    if found.entries:
        emit(entry_table(found), as_json=False, outputs=output or ())
    else:
        say("cuBLAS computes everything until the table is built from measurements.")
        write_outputs(entry_table(found), output or ())
