"""``gemmetry profile``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.options import runs_plan
from gemmetry.cli.requests import Source, plan_request, read_request

if TYPE_CHECKING:
    from gemmetry.api.profile import Prepared

app = typer.Typer(add_completion=False)


@app.command(cls=WorkbenchCommand)
@runs_plan
def profile(source: Source) -> Prepared:
    """Generate, compile, verify, measure and report dispatches.

    Without options, three f32 shapes run with every provider that works here, in less than a
    minute. The same command resumes an interrupted run; with more shapes, providers, configurations
    or repeats and the same --experiment, the experiment grows. A spec file can contain everything
    that options can.
    """
    return plan_request(read_request(source), source)
