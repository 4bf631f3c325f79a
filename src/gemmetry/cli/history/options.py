"""Options that several commands of ``gemmetry history`` have."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gemmetry.analysis.history.checking import HistoryCheck
    from gemmetry.store.history.folder import StoredHistory

Store = Annotated[
    Path, typer.Option("--store", metavar="DIR", help="Folder of the history.", show_default=False)
]
Latest = Annotated[
    int,
    typer.Option(
        "--latest",
        metavar="N",
        min=1,
        help="Changes whose first run is among the latest N runs are new.",
    ),
]
Threshold = Annotated[
    str, typer.Option("--threshold", metavar="SHARE", help="Changes up to this count as none.")
]

LATEST = 10
THRESHOLD = "2%"


def opened_history(folder: Path) -> StoredHistory:
    """The history at `folder`; a note names each line of it that was skipped."""
    from gemmetry.cli.console import note
    from gemmetry.store.history.folder import read_history

    history = read_history(folder)
    for problem in history.problems:
        note(f"note: {problem}")
    return history


def checked_history(
    folder: Path,
    *,
    latest: int,
    threshold: str,
    baseline: str | None,
    fail_on: Collection[str] = (),
) -> HistoryCheck:
    """The history at `folder` with its changes."""
    from gemmetry.analysis.history.checking import check_history
    from gemmetry.domain.units import parse_share

    share = parse_share(threshold)
    return check_history(opened_history(folder), latest=latest, threshold=share,
                         baseline=baseline, fail_on=fail_on)  # fmt: skip
