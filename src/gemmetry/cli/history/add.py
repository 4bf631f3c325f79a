"""``gemmetry history add``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.console import say
from gemmetry.cli.history.options import Store
from gemmetry.cli.options import Json


def add(
    experiments: Annotated[
        list[Path], typer.Argument(metavar="EXPERIMENT...", help="Folders of experiments.")
    ],
    store: Store,
    commit: Annotated[
        str,
        typer.Option(
            metavar="SHA",
            help="Commit that was measured. Default: the one in which the run was started.",
        ),
    ] = "",
    label: Annotated[
        str, typer.Option(metavar="TEXT", help="Text that names the runs, such as nightly.")
    ] = "",
    time: Annotated[
        str,
        typer.Option(
            metavar="ISO",
            help="Time by which the runs are ordered (UTC). Default: when the run began.",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Add experiments to a history.

    An experiment that is in the history already is not added again; one that has grown since then
    replaces what was added. Lines are only ever appended. If one of the experiments cannot be read,
    none is added.
    """
    from gemmetry.api import history
    from gemmetry.cli.console import note, print_facts
    from gemmetry.cli.history.options import note_problems
    from gemmetry.domain.units import counted

    added, problems = history.add(*experiments, store=store, commit=commit, label=label, time=time)
    note_problems(problems)
    for one in added:
        path, run = one.experiment, one.run
        if one.state == "same":
            note(f"note: {path} is in the history already ({run.device})")
            continue
        if one.measured_before is not None:
            old = one.measured_before
            note(
                f"note: {path} measures commit {run.commit[:12]} again, which run {old.id} of "
                f"{old.time[:16]} measured before others: no change is looked for in it; place it "
                f"next to that run with --time {old.time[:10]}"
            )
        if one.is_older:
            note(f"note: {path} is older than the latest run and is placed by its time")
        more = ", replacing what was added before" if one.state == "replaced" else ""
        if json:
            continue
        say(f"{path}: {counted(len(run.points), 'dispatch', 'dispatches')} on "
                   f"{run.device}{more}")  # fmt: skip
    if json:
        print_facts(
            store=str(store),
            runs=[
                {
                    "experiment": str(one.experiment), "run": one.run.id, "device": one.run.device,
                    "dispatches": len(one.run.points), "state": one.state,
                    "is_older": one.is_older,
                }
                for one in added
            ],
            problems=list(map(str, problems)),
        )  # fmt: skip
