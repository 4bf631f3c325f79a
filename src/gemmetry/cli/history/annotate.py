"""``gemmetry history annotate``."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmetry.cli.console import say
from gemmetry.cli.history.options import Store
from gemmetry.cli.options import Json


def annotate(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN",
            help="Dispatches, as provider:name or a part of it, or a glob; '*' for all.",
        ),
    ],
    store: Store,
    run: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="The first run after the change, as history check prints it: the beginning of its "
            "id, commit or time.",
        ),
    ],
    text: Annotated[str, typer.Option(metavar="TEXT", help="The remark.")],
    keep_alarm: Annotated[
        bool, typer.Option("--keep-alarm", help="Add the remark, but keep the alarm.")
    ] = False,
    json: Json = False,
) -> None:
    """Add a remark to a change, which is then acknowledged: `history check` no longer fails on it.

    Remarks are stored in annotations.jsonl in the folder of the history.
    """
    from gemmetry.analysis.history.annotations import annotation_of
    from gemmetry.cli.console import print_facts
    from gemmetry.cli.history.options import note_problems
    from gemmetry.store.history.folder import append, read_history

    history = read_history(store)
    note_problems(history.problems)
    found = annotation_of(history, pattern, run, text, acknowledged=not keep_alarm)
    append(store, [found])
    if json:
        print_facts(
            store=str(store), dispatches=pattern, run=found.run, text=text,
            is_acknowledged=not keep_alarm,
        )  # fmt: skip
        return
    say(f"{'remark on' if keep_alarm else 'acknowledged'}: {pattern} at run {found.run}")
