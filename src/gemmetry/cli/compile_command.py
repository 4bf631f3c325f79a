"""``gemmetry compile``."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.options import LEGACY_DEFAULTS, runs_plan
from gemmetry.cli.requests import Source, plan_request, read_request

if TYPE_CHECKING:
    from gemmetry.api.profile import Prepared

app = typer.Typer(add_completion=False)

COLUMNS = ("provider", "target", "operation", "configuration", "outcome", "compile_ns",
           "registers", "spill_bytes", "shared_memory_bytes", "matrix_instruction",
           "reason")  # fmt: skip
"""The columns printed without --columns: facts of the build, no times."""


DEFAULTS = {"name": "compile", "columns": COLUMNS}


@app.command("compile", cls=WorkbenchCommand)
@partial(runs_plan, defaults={**LEGACY_DEFAULTS, **DEFAULTS})
def compile_dispatches(source: Source) -> Prepared:
    """Compile dispatches without running them.

    Without options, these are the 109 dispatches of IREE's dispatch profiler for CUDA sm_80, as in
    `generate`. The table has one row per dispatch with its outcome. A configuration that the
    compiler rejects is a row too and does not affect the others.
    """
    from gemmetry.engine import compile_plan
    from gemmetry.providers.traits import legacy_provider
    from gemmetry.specs.operations.defaults import legacy

    request = read_request(source, **DEFAULTS)
    prepared = plan_request(request, source, defaults=legacy(legacy_provider()))
    plan = compile_plan(prepared.plan)
    if not request.experiment:
        folder = prepared.experiment.parent / f"{plan.name}-{plan.hash}"
        prepared = dataclasses.replace(prepared, experiment=folder)
    return dataclasses.replace(prepared, plan=plan)
