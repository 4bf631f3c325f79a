"""``gemmetry history show``."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmetry.cli.history.options import LATEST, THRESHOLD, Store, Threshold
from gemmetry.cli.options import Baseline, Json, Outputs


def show(
    store: Store,
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="[PATTERN]",
            help="Dispatches, as provider:name or a part of it, or a glob. Default: all.",
        ),
    ] = "*",
    json: Json = False,
    output: Outputs = None,
    baseline: Baseline = None,
    threshold: Threshold = THRESHOLD,
) -> None:
    """Show how the times of dispatches developed, and their changes.

    A single dispatch is shown with a plot and with each of its changes and their causes.
    """
    from gemmetry.cli.console import print_json, stdout_console
    from gemmetry.cli.history.options import checked_history
    from gemmetry.cli.tables import check_outputs, write_outputs
    from gemmetry.domain.errors import EmptySelectionError
    from gemmetry.reports.history.documents import history_document, series_table
    from gemmetry.reports.history.text import print_history

    check_outputs(output or ())
    check = checked_history(store, latest=LATEST, threshold=threshold, baseline=baseline)
    chosen = [
        (found, series)
        for found in check.devices
        for series in range(len(found.history.keys))
        if found.history.matches(series, pattern)
    ]
    if not chosen:
        raise EmptySelectionError(
            f"no dispatch of the history matches {pattern!r}",
            hint="Give provider:name, a part of it, or a glob such as 'torch:*'.",
        )
    if json:
        print_json(history_document(check, chosen))
    else:
        print_history(check, chosen, stdout_console())
    write_outputs(series_table(check, chosen), output or ())
