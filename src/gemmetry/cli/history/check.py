"""``gemmetry history check``."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmetry.cli.compare_command import Undecided
from gemmetry.cli.history.options import (
    LATEST,
    THRESHOLD,
    Latest,
    OnUndecided,
    Store,
    Threshold,
)
from gemmetry.cli.options import Baseline, ComparisonOutputs, Json


def check(
    store: Store,
    json: Json = False,
    output: ComparisonOutputs = None,
    latest: Latest = LATEST,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="CAUSES",
            help="Causes on which slower changes fail: kernel, baseline, host, method, "
            "environment, undecided, noise, or lost for dispatches that are no longer ok; none for "
            "none.",
        ),
    ] = "kernel,lost",
    baseline: Baseline = None,
    threshold: Threshold = THRESHOLD,
    undecided: OnUndecided = None,
) -> None:
    """Find changes in a history and their causes, for continuous integration.

    Exit status 1 if a dispatch became slower, or was lost, within the latest N runs, by one of the
    causes of --fail-on, and nobody has acknowledged it (gemmetry history annotate); or if ten runs
    or more differ too much to find one (fewer with --undecided fail; never with --undecided pass).
    """
    from gemmetry.cli.console import note, print_json, stdout_console
    from gemmetry.cli.history.options import loaded_history
    from gemmetry.cli.tables import check_outputs
    from gemmetry.reports.history.files import check_suffixes
    from gemmetry.reports.history.text import print_check

    check_outputs(output or (), check_suffixes())
    causes = [name for name in fail_on.replace(",", " ").split() if name != "none"]
    found = loaded_history(
        store, latest=latest, threshold=threshold, baseline=baseline, fail_on=causes,
        undecided_fails=None if undecided is None else undecided is Undecided.FAIL,
    )  # fmt: skip
    if json:
        print_json(found.document())
    else:
        print_check(found.check, stdout_console())
    for path in output or ():
        found.write(path)
        note(f"wrote {path}")
    raise typer.Exit(1 if found.check.has_failed else 0)
