"""Options that several commands of ``gemmetry history`` have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemmetry.cli.compare_command import Undecided

if TYPE_CHECKING:
    from gemmetry.api.history import History

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

OnUndecided = Annotated[
    Undecided | None,
    typer.Option(
        "--undecided",
        help="How a history with too few runs, or too noisy ones, for a verdict affects the exit "
        "status; by default it passes while it has fewer than 10 runs, and fails from then on.",
    ),
]

LATEST = 10
THRESHOLD = "2%"


def loaded_history(folder: Path, *, threshold: str, **options: Any) -> History:
    """The history at `folder` with its changes; a note names each line of it that was skipped.
    `options` are those of :func:`gemmetry.api.history.load`."""
    from gemmetry.api.history import load
    from gemmetry.domain.units import parse_share

    found = load(folder, threshold=parse_share(threshold), **options)
    note_problems(found.problems)
    return found


def note_problems(problems: Iterable[str]) -> None:
    """Report lines of a history that were skipped."""
    from gemmetry.cli.console import note

    for problem in problems:
        note(f"note: {problem}")
