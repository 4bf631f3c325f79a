"""``gemmetry dispatcher show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.console import say
from gemmetry.cli.options import Json, Outputs
from gemmetry.domain.tables import Column, Table


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
    from gemmetry.cli.console import print_facts
    from gemmetry.cli.dispatcher.tables import open_table
    from gemmetry.cli.tables import check_outputs, emit, write_outputs
    from gemmetry.dispatcher.documents import entry_table, library_name
    from gemmetry.domain.units import counted

    check_outputs(output or ())
    found = open_table(table)
    if json:
        print_facts(**found.document())
        write_outputs(entry_table(found), output or ())
        return
    versions = ", ".join(f"{name} {text}" for name, text in sorted(found.versions.items()))
    say(f"{found.device} ({found.target}){', ' if versions else ''}{versions}")
    verified = counted(len(found.certificates), "verified candidate")
    say(f"{counted(len(found.entries), 'measured shape')}, {verified}")
    if found.entries:
        emit(entry_table(found), as_json=False, outputs=output or (), show=_print)
    else:
        library = library_name(found.target)
        say(f"{library} computes everything until the table is built from measurements.")
        write_outputs(entry_table(found), output or ())


def _print(table: Table) -> None:
    """Print the choices of each signature in one line each, with names elided to the width."""
    from gemmetry.cli.console import stdout_console
    from gemmetry.reports.tables.terminal import print_table
    from gemmetry.reports.texts import elide

    console = stdout_console()
    shown = [n for n, one in enumerate(table.columns) if one.name not in ("signature", "verdict")]
    columns = tuple(Column(table.columns[n].label) for n in shown)
    choice = [one.name for one in columns].index("choice")
    signatures = table.values("signature")
    for signature in dict.fromkeys(signatures):
        texts = [
            [table.columns[n].text(row[n]) for n in shown]
            for row, own in zip(table.rows, signatures, strict=True)
            if own == signature
        ]
        widths = [max(map(len, one)) for one in zip((c.name for c in columns), *texts, strict=True)]
        room = console.width - sum(widths) + widths[choice] - 2 * len(columns)
        for row in texts:
            row[choice] = elide(row[choice], max(room, len("choice")))
        say(f"\n{signature}")
        print_table(Table("choices", columns, texts), console)
