"""``gemmetry list providers|support|configurations|operations|dtypes|columns``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.help_text import PlainGroup
from gemmetry.cli.options import Json, Outputs, Settings, SpecFile, with_request
from gemmetry.cli.tables import Row, emit

app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    help="List providers, support, configurations, operations, dtypes, columns. Nothing is run.",
)

Limit = Annotated[int, typer.Option(help="Most rows to list; 0: all.", min=0)]


@app.command(cls=WorkbenchCommand)
def providers(json: Json = False, output: Outputs = None) -> None:
    """Who can compute: whether it works here and where, or why not."""
    from gemmetry.api.catalogue import InstalledCatalogue

    catalogue = InstalledCatalogue()
    rows: list[Row] = []
    for name in catalogue.listed_names():
        provider = catalogue.provider(name)
        reason = provider.available()
        targets = provider.targets() if reason is None else ()
        rows.append(
            {
                "provider": name,
                "available": reason is None,
                "devices": [t.device for t in targets if t.index is not None],
                "compiles_for": [t.name for t in targets if t.index is None],
                "description": str(getattr(provider, "description", "")),
                "reason": reason,
            }
        )
    emit("providers", rows, as_json=json, outputs=output or [])


@app.command(cls=WorkbenchCommand)
def support(json: Json = False, output: Outputs = None) -> None:
    """Which provider can do what on which target, and why not; "yes" or the reason."""
    from gemmetry.api.support import support_rows

    rows: list[Row] = [
        {"asked": row.asked, "operation": row.operation}
        | {place: refusal or "yes" for place, refusal in row.refusals.items()}
        for row in support_rows()
    ]
    emit("support", rows, as_json=json, outputs=output or [])


@app.command(cls=WorkbenchCommand)
def dtypes(json: Json = False, output: Outputs = None) -> None:
    """Number formats, with their other names."""
    from gemmetry.domain.dtypes import DTYPE_ALIASES, DTYPES

    rows: list[Row] = [
        {
            "dtype": dtype.name,
            "bits": dtype.storage_bits,
            "significand_bits": dtype.significand_bits or None,
            "maximum": dtype.maximum,
            "also": [alias for alias, name in DTYPE_ALIASES.items() if name == dtype.name],
            "description": dtype.description,
        }
        for dtype in DTYPES.values()
    ]
    emit("dtypes", rows, as_json=json, outputs=output or [])


@app.command(cls=WorkbenchCommand)
def columns(json: Json = False, output: Outputs = None) -> None:
    """Columns of tables, CSV and JSON records."""
    from gemmetry.domain.columns import COLUMNS

    rows: list[Row] = [
        {"column": c.name, "unit": c.unit or None, "description": c.description} for c in COLUMNS
    ]
    emit("columns", rows, as_json=json, outputs=output or [])


@app.command(cls=WorkbenchCommand)
@with_request
def operations(
    given: dict[str, Any],
    spec: SpecFile = None,
    set: Settings = None,
    json: Json = False,
    limit: Limit = 1000,
    output: Outputs = None,
) -> None:
    """Operations of a request, with FLOPs and compulsory bytes; takes the options of `profile`."""
    from itertools import islice

    from gemmetry.domain.names import operation_name

    plan = _plan(given, spec, set)
    wanted = islice(plan.operations, limit or None)
    rows: list[Row] = [
        {
            "operation": operation_name(operation),
            "kind": str(operation.kind),
            "flops": operation.flops,
            "bytes": operation.bytes,
        }
        for operation in wanted
    ]
    emit("operations", rows, as_json=json, outputs=output or [])


@app.command(cls=WorkbenchCommand)
@with_request
def configurations(
    given: dict[str, Any],
    spec: SpecFile = None,
    set: Settings = None,
    json: Json = False,
    limit: Limit = 1000,
    output: Outputs = None,
) -> None:
    """Configurations that providers offer for a request; takes the options of `profile`."""
    from itertools import islice

    from gemmetry.api.listing import list_dispatches

    rows: list[Row] = [
        {
            "provider": dispatch.provider,
            "target": dispatch.target.name,
            "operation": dispatch.operation,
            "configuration": dispatch.configuration,
            "refusal": dispatch.refusal or None,
        }
        for dispatch in islice(list_dispatches(_plan(given, spec, set)), limit or None)
    ]
    emit("configurations", rows, as_json=json, outputs=output or [])


def _plan(given: dict[str, Any], spec: Path | None, settings: list[str] | None) -> Any:
    from gemmetry.cli.requests import Source, plan_request, read_request

    source = Source(given=given, spec=spec, settings=settings or ())
    return plan_request(read_request(source), source, tell=False).plan
