"""``gemmetry dispatcher evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmetry.cli.console import say
from gemmetry.cli.options import Json, Outputs

if TYPE_CHECKING:
    from gemmetry.dispatcher.evaluation import Evaluation


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
    from gemmetry.cli.console import print_facts
    from gemmetry.cli.dispatcher.tables import open_table
    from gemmetry.cli.tables import check_outputs, write_outputs
    from gemmetry.dispatcher.documents import evaluation_document, library_name, replay_table
    from gemmetry.dispatcher.evaluation import evaluate as run
    from gemmetry.store.experiment import Experiment

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
    from gemmetry.dispatcher.documents import regret_table
    from gemmetry.domain.units import counted, format_percent
    from gemmetry.reports.tables.terminal import print_table

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
