"""``gemmetry dispatcher``: the group of commands about tables of fast kernels."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.cli.console import note, print_facts, say, stdout_console, write_outputs
from gemmetry.cli.main import group_app
from gemmetry.cli.options import Printed, Written, argument, option
from gemmetry.domain.tables import Column, Table

if TYPE_CHECKING:
    from gemmetry.tuning.dispatcher.evaluation import Evaluation
    from gemmetry.tuning.dispatcher.table import DispatchTable


_TABLE = "A file of gemmetry dispatcher build. Default: the one for the H200."


@dataclass(kw_only=True)
class Build(Printed):
    experiments: list[Path] = argument(
        "Folders of experiments on one device, with torch among the providers. Of a shape in "
        "several of them, the last one counts.",
        "EXPERIMENT...",
    )
    output: Path = option("Write the table here.", "-o", metavar="FILE")


def build(options: Build) -> None:
    """Make a table of fast kernels from experiments.

    A shape gets another candidate than cuBLAS only where that is shown to be faster, and only
    candidates that passed verification at level standard are ever chosen.
    """
    from gemmetry.domain.units import counted
    from gemmetry.engine.store.experiment import Experiment
    from gemmetry.providers.registry import load_provider
    from gemmetry.results.emit import check_writable
    from gemmetry.tuning.dispatcher.building import build_table
    from gemmetry.tuning.dispatcher.evaluation import library_name
    from gemmetry.tuning.dispatcher.table import CUBLAS, write_table

    check_writable(options.output)
    with ExitStack() as stack:
        opened = [stack.enter_context(Experiment.open(path)) for path in options.experiments]
        built = build_table([one.result_set() for one in opened], load_provider)
    write_table(built.table, options.output)
    for text in built.notes:
        note(text)
    entries = built.table.entries
    faster = sum(entry.choice != CUBLAS for entry in entries)
    undecided = sum(entry.verdict == "undecided" for entry in entries)
    if options.json:
        print_facts(**built.table.document())
    else:
        library = library_name(built.table.target)
        say(
            f"{counted(len(entries), 'shape')} of {built.table.device}: {faster} with a candidate "
            f"that is shown to be faster than {library}, {undecided} undecided"
        )
        say(f"{counted(len(built.table.certificates), 'verified candidate')}")
    note(f"wrote {options.output}")


@dataclass(kw_only=True)
class Evaluate(Written):
    experiment: Path = argument(
        "Folder of an experiment with shapes that the table does not have, in which all "
        "candidates were measured.",
        "EXPERIMENT",
    )
    table: Path | None = option(_TABLE, metavar="FILE")


def evaluate(options: Evaluate) -> None:
    """Judge a table by how much slower its choices are than the best candidates of shapes that it
    has never seen, cuBLAS included.

    A replay of stored times: nothing runs, and no GPU is needed.
    """
    from gemmetry.engine.store.experiment import Experiment
    from gemmetry.tuning.dispatcher.evaluation import evaluate as run
    from gemmetry.tuning.dispatcher.evaluation import (
        evaluation_document,
        library_name,
        replay_table,
    )

    options.check()
    with Experiment.open(options.experiment) as opened:
        used = open_table(options.table)
        found = run(used, opened.result_set())
    if options.json:
        print_facts(**evaluation_document(found))
    else:
        _print(found, library_name(used.target))
    write_outputs(replay_table(found), options.output)


def _print(found: Evaluation, library: str) -> None:
    from gemmetry.dispatches.terminal import print_table
    from gemmetry.domain.units import counted, format_percent
    from gemmetry.tuning.dispatcher.evaluation import regret_table

    shapes = counted(len(found.replayed), "unseen shape")
    left_out = [f"{found.seen} in the table"] if found.seen else []
    left_out += [f"{found.unusable} without a time of {library}"] if found.unusable else []
    say(shapes + (f"; left out: {', '.join(left_out)}" if left_out else ""))
    print_table(regret_table(found, library), stdout_console())
    restricted = sum(one.restricted for one in found.replayed)
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


@dataclass(kw_only=True)
class Show(Written):
    table: Path | None = argument(_TABLE, "[TABLE]")


def show(options: Show) -> None:
    """Show what a table chooses for each shape that was measured, and why."""
    from gemmetry.domain.units import counted
    from gemmetry.tuning.dispatcher.evaluation import entry_table, library_name

    options.check()
    found = open_table(options.table)
    if options.json:
        print_facts(**found.document())
    else:
        versions = "".join(f", {name} {text}" for name, text in sorted(found.versions.items()))
        say(f"{found.device} ({found.target}){versions}")
        verified = counted(len(found.certificates), "verified candidate")
        say(f"{counted(len(found.entries), 'measured shape')}, {verified}")
        if found.entries:
            _print_choices(entry_table(found))
        else:
            library = library_name(found.target)
            say(f"{library} computes everything until the table is built from measurements.")
    write_outputs(entry_table(found), options.output)


def _print_choices(table: Table) -> None:
    """Print the choices of each signature in one line each, with names elided to the width."""
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


app = group_app(
    "Build, show and evaluate the tables of gemmetry.matmul.",
    {"build": build, "show": show, "evaluate": evaluate},
)
