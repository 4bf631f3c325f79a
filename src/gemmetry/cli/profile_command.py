"""``gemmetry profile``."""

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

app = typer.Typer(add_completion=False)


@app.command(cls=WorkbenchCommand)
@with_request
def profile(
    given: dict[str, Any],
    spec: SpecFile = None,
    save_spec: SaveSpec = None,
    set: Settings = None,  # the option's name
    dry_run: DryRun = False,
    fresh: Fresh = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Generate, compile, verify, measure and report dispatches.

    Without options, three f32 shapes run with every provider that works here, in less than a
    minute. The same command resumes an interrupted run; with more shapes, providers, configurations
    or repeats and the same --experiment, the experiment grows. A spec file can contain everything
    that options can.
    """
    from gemmetry.cli.requests import Source, plan_request, read_request
    from gemmetry.cli.run import run_and_report

    source = Source(given=given, spec=spec, settings=set or (), save=save_spec)
    request = read_request(source)
    prepared = plan_request(request, source)
    if dry_run:
        from gemmetry.cli.dry_run import print_plan

        print_plan(prepared, as_json=json)
        return
    raise typer.Exit(run_and_report(prepared, fresh=fresh, json=json, verbose=verbose))
