"""``gemmetry verify run``."""

from __future__ import annotations

from typing import Any

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.options import (
    DryRun,
    Fresh,
    Json,
    SaveSpec,
    Settings,
    SpecFile,
    Verbose,
    with_request,
)

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Prove dispatches right without timing them."
)

COLUMNS = ("provider", "operation", "configuration", "outcome", "verification",
           "max_error_ratio", "relative_frobenius_error", "accuracy_class", "reason")  # fmt: skip


@app.callback()
def _group() -> None:
    """Prove dispatches right without timing them."""


@app.command(cls=WorkbenchCommand)
@with_request
def run(
    given: dict[str, Any],
    spec: SpecFile = None,
    save_spec: SaveSpec = None,
    set: Settings = None,
    dry_run: DryRun = False,
    fresh: Fresh = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compile and verify dispatches; nothing is timed. Exit status 1 if one is wrong."""
    from gemmetry.cli.requests import Source, plan_request, read_request
    from gemmetry.cli.run import run_and_report

    given["profiling_enabled"] = False
    source = Source(given=given, spec=spec, settings=set or (), save=save_spec)
    request = read_request(source, name="verify", columns=COLUMNS)
    prepared = plan_request(request, source)
    if dry_run:
        from gemmetry.cli.dry_run import tell_plan

        tell_plan(prepared, as_json=json)
        return
    raise typer.Exit(run_and_report(prepared, fresh=fresh, json=json, verbose=verbose))
