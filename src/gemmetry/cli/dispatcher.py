"""``gemmetry dispatcher``: the group of commands about tables of fast kernels.

``gemmetry dispatcher build``.

``gemmetry dispatcher evaluate``.

``gemmetry dispatcher show``.

Opens the table that a command is about.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from gemmetry.cli.console import say
from gemmetry.cli.main import LazyGroup, group_app
from gemmetry.cli.options import Json, Outputs
from gemmetry.domain.tables import Column, Table

if TYPE_CHECKING:
    from gemmetry.tuning.dispatcher.evaluation import Evaluation
    from gemmetry.tuning.dispatcher.table import DispatchTable


class DispatcherGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    modules: ClassVar = {
        "build": "dispatcher:build",
        "show": "dispatcher:show",
        "evaluate": "dispatcher:evaluate",
    }


app = group_app(DispatcherGroup, "Build, show and evaluate the tables of gemmetry.matmul.")


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
    from gemmetry.domain.units import counted
    from gemmetry.engine.store.experiment import Experiment
    from gemmetry.providers.registry import load_provider
    from gemmetry.results.emit import check_writable
    from gemmetry.tuning.dispatcher.building import build_table
    from gemmetry.tuning.dispatcher.evaluation import library_name
    from gemmetry.tuning.dispatcher.table import CUBLAS, write_table

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


def evaluate(
    experiment: Annotated[
        Path,
        typer.Argument(
            metavar="EXPERIMENT",
            help="Folder of an experiment with shapes that the table does not have, in which all "
            "candidates were measured.",
        ),
    ],
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file of gemmetry dispatcher build. Default: the one for the H200.",
        ),
    ] = None,
    json: Json = False,
    output: Outputs = None,
) -> None:
    """Judge a table by how much slower its choices are than the best candidates of shapes that it
    has never seen, cuBLAS included.

    A replay of stored times: nothing runs, and no GPU is needed.
    """
    from gemmetry.cli.console import check_outputs, print_facts, write_outputs
    from gemmetry.engine.store.experiment import Experiment
    from gemmetry.tuning.dispatcher.evaluation import evaluate as run
    from gemmetry.tuning.dispatcher.evaluation import (
        evaluation_document,
        library_name,
        replay_table,
    )

    check_outputs(output or ())
    opened = Experiment.open(experiment)
    try:
        used = open_table(table)
        found = run(used, opened.result_set())
    finally:
        opened.close()
    if json:
        print_facts(**evaluation_document(found))
    else:
        _print(found, library_name(used.target))
    write_outputs(replay_table(found), output or ())


def _print(found: Evaluation, library: str) -> None:
    from gemmetry.cli.console import stdout_console
    from gemmetry.dispatches.terminal import print_table
    from gemmetry.domain.units import counted, format_percent
    from gemmetry.tuning.dispatcher.evaluation import regret_table

    shapes = counted(len(found.replayed), "unseen shape")
    left_out = [f"{found.seen} in the table"] if found.seen else []
    left_out += [f"{found.unusable} without a time of {library}"] if found.unusable else []
    say(shapes + (f"; left out: {', '.join(left_out)}" if left_out else ""))
    print_table(regret_table(found, library), stdout_console())
    restricted = sum(one.was_restricted for one in found.replayed)
    if restricted:
        say(
            f"The first choice was not measured at {counted(restricted, 'shape')}; the next one "
            "that was stands for it."
        )
    noise = found.noise
    if noise.geometric_mean is None:
        say("Noise: unknown, no candidate was measured twice.")
    else:
        say(
            f"Noise: two times of one kernel differ by {format_percent(noise.geometric_mean)} on "
            f"average and {format_percent(noise.largest)} at most ({noise.shapes} pairs)."
        )


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
    from gemmetry.cli.console import check_outputs, emit, print_facts, write_outputs
    from gemmetry.domain.units import counted
    from gemmetry.tuning.dispatcher.evaluation import entry_table, library_name

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
        emit(entry_table(found), as_json=False, outputs=output or (), show=_show_print)
    else:
        library = library_name(found.target)
        say(f"{library} computes everything until the table is built from measurements.")
        write_outputs(entry_table(found), output or ())


def _show_print(table: Table) -> None:
    """Print the choices of each signature in one line each, with names elided to the width."""
    from gemmetry.cli.console import stdout_console
    from gemmetry.dispatches.terminal import print_table
    from gemmetry.results.texts import elide

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


_SHIPPED = "NVIDIA H200"


def open_table(path: Path | None) -> DispatchTable:
    """The table in a file, or the one that comes with gemmetry.

    Raises:
        TableError: it cannot be read or is damaged.
    """
    from gemmetry.tuning.dispatcher.table import read_table, shipped_table

    if path is not None:
        return read_table(path)
    found = shipped_table(_SHIPPED)
    assert found is not None
    return found
