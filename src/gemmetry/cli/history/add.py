"""``gemmetry history add``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.history.options import Store


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
) -> None:
    """Add experiments to a history.

    An experiment that is in the history already is not added again; one that has grown since then
    replaces what was added. Lines are only ever appended.
    """
    from gemmetry.analysis.history.collecting import added_before, runs_of
    from gemmetry.cli.console import note
    from gemmetry.domain.errors import RequestError
    from gemmetry.domain.units import counted
    from gemmetry.store.experiment import Experiment
    from gemmetry.store.history.folder import StoredHistory, append, read_history

    entries = []
    for path in experiments:
        with Experiment.open(path) as opened:
            entries.append((path, runs_of(opened.result_set(), commit=commit, label=label,
                                          time=time)))  # fmt: skip
    try:
        history = read_history(store)
    except RequestError:
        history = StoredHistory()
    for problem in history.problems:
        note(f"note: {problem}")
    for path, runs in entries:
        for run in runs:
            known = history.runs.setdefault(run.device, [])
            state = added_before(run, known)
            if state == "same":
                note(f"note: {path} is in the history already ({run.device})")
                continue
            if known and run.time < known[-1].time:
                note(f"note: {path} is older than the latest run and is placed by its time")
            append(store, [run])
            known.append(run)
            more = ", replacing what was added before" if state else ""
            typer.echo(f"{path}: {counted(len(run.points), 'dispatch', 'dispatches')} on "
                       f"{run.device}{more}")  # fmt: skip
