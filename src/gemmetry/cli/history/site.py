"""``gemmetry history site``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.history.options import LATEST, THRESHOLD, Latest, Store, Threshold
from gemmetry.cli.options import Baseline, Json


def site(
    store: Store,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.")],
    title: Annotated[
        str, typer.Option(metavar="TEXT", help="Title of the pages.")
    ] = "GEMM history",
    latest: Latest = LATEST,
    baseline: Baseline = None,
    threshold: Threshold = THRESHOLD,
    json: Json = False,
) -> None:
    """Write a static site: health, trends with changes and remarks, a board of providers, and the
    latest run for a pull request.

    It needs no server and loads nothing from the network: open its index.html.
    """
    from gemmetry.cli.console import note, print_facts
    from gemmetry.cli.history.options import loaded_history

    found = loaded_history(store, latest=latest, threshold=threshold, baseline=baseline)
    found.write_site(output, title)
    note(f"wrote {output / 'index.html'}")
    if json:
        files = sorted(str(path) for path in output.rglob("*") if path.is_file())
        print_facts(site=str(output), files=files)
