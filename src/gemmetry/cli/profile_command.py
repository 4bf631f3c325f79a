"""``gemmetry profile``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from gemmetry.api.profile import Prepared

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

    Without options: three f32 shapes, every provider that works here, in less than a minute. The
    same command resumes what was interrupted. A spec file can say everything the options can.
    """
    from gemmetry.cli.requests import Source, plan_request, read_request

    source = Source(given=given, spec=spec, settings=set or (), save=save_spec)
    request = read_request(source)
    prepared = plan_request(request, source)
    if dry_run:
        from gemmetry.cli.dry_run import tell_plan

        tell_plan(prepared, as_json=json)
        return
    raise typer.Exit(run_and_report(prepared, fresh=fresh, json=json, verbose=verbose))


def run_and_report(prepared: Prepared, *, fresh: bool, json: bool, verbose: bool) -> int:
    """Run a plan, render its results, and return the exit status."""
    from gemmetry.cli.console import command_line, note, stderr_console
    from gemmetry.cli.requests import tell_idle_patterns
    from gemmetry.cli.results import check_rendering, render, rendering_of
    from gemmetry.engine import run
    from gemmetry.reports.progress import ProgressListener
    from gemmetry.store.experiment import Experiment

    report = prepared.experiment / "report.html"
    rendering = rendering_of(prepared.spec, json=json, html=report)
    check_rendering(rendering)
    console = stderr_console()
    if verbose:
        console.print_json(data=prepared.plan.document)
    with ProgressListener(console) as listener:
        summary = run(
            prepared.plan,
            prepared.experiment,
            listener=listener,
            fresh=fresh,
            command=command_line(),
            generated=prepared.generated,
        )
    tell_idle_patterns(prepared)
    with Experiment.open(prepared.experiment) as experiment:
        render(experiment.result_set(), rendering)
    note(f"experiment: {prepared.experiment}")
    if summary.failure:
        note(f"error: {summary.failure}")
        note("hint: The same command goes on where this one stopped.")
    return summary.exit_status
