"""``gemmetry history show``."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmetry.cli.history.options import THRESHOLD, Store, Threshold
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
    from gemmetry.cli.history.options import loaded_history
    from gemmetry.cli.tables import check_outputs, write_outputs
    from gemmetry.reports.history.documents import history_document, series_table
    from gemmetry.reports.history.text import print_history

    check_outputs(output or ())
    found = loaded_history(store, threshold=threshold, baseline=baseline)
    check, chosen = found.check, found.chosen(pattern)
    if json:
        print_json(history_document(check, chosen))
    else:
        print_history(check, chosen, stdout_console())
    write_outputs(series_table(check, chosen), output or ())
