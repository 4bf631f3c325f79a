"""``gemmetry dispatcher build``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.console import say
from gemmetry.cli.options import Json


def build(
    experiments: Annotated[
        list[Path],
        typer.Argument(
            metavar="EXPERIMENT...",
            help="Folders of experiments on one device, with torch among the providers. Of a shape "
            "in several of them, the last one counts.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Write the table here.")
    ],
    json: Json = False,
) -> None:
    """Make a table of fast kernels from experiments.

    A shape gets another candidate than cuBLAS only where that is shown to be faster, and only
    candidates that passed verification at level standard are ever chosen.
    """
    from gemmetry.cli.console import note, print_facts
    from gemmetry.dispatcher.building import build_table
    from gemmetry.dispatcher.documents import library_name
    from gemmetry.dispatcher.problems import CUBLAS
    from gemmetry.dispatcher.table import write_table
    from gemmetry.domain.units import counted
    from gemmetry.providers.registry import load_provider
    from gemmetry.reports.tables.files import check_writable
    from gemmetry.store.experiment import Experiment

    check_writable(output)
    opened = [Experiment.open(path) for path in experiments]
    try:
        built = build_table([one.result_set() for one in opened], load_provider)
    finally:
        for experiment in opened:
            experiment.close()
    write_table(built.table, output)
    for text in built.notes:
        note(text)
    entries = built.table.entries
    faster = sum(entry.choice != CUBLAS for entry in entries)
    undecided = sum(entry.verdict == "undecided" for entry in entries)
    if json:
        print_facts(**built.table.document())
    else:
        library = library_name(built.table.target)
        say(
            f"{counted(len(entries), 'shape')} of {built.table.device}: {faster} with a candidate "
            f"that is shown to be faster than {library}, {undecided} undecided"
        )
        say(f"{counted(len(built.table.certificates), 'verified candidate')}")
    note(f"wrote {output}")
