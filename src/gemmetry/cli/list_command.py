"""``gemmetry list providers|support|configurations|operations|dtypes|columns``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.help_text import PlainGroup
from gemmetry.cli.options import Json, Outputs, with_request
from gemmetry.cli.requests import Source, plan_request, read_request
from gemmetry.cli.tables import emit

if TYPE_CHECKING:
    from gemmetry.domain.dispatch import Plan

app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    help="List providers, support, configurations, operations, dtypes or columns, without "
    "running anything.",
)

Limit = Annotated[int, typer.Option(help="List at most this many rows; 0: all.", min=0)]


@app.command(cls=WorkbenchCommand)
def providers(json: Json = False, output: Outputs = None) -> None:
    """Providers: on which devices each works here, or why it does not."""
    from gemmetry.api.catalogue import InstalledCatalogue
    from gemmetry.domain.tables import Column, ColumnType, Table

    columns = (
        Column("provider"),
        Column("available", ColumnType.BOOLEAN),
        Column("devices", ColumnType.TEXTS),
        Column("compiles_for", ColumnType.TEXTS),
        Column("description"),
        Column("reason"),
    )
    catalogue = InstalledCatalogue()
    rows = []
    for name in catalogue.provider_names():
        provider = catalogue.provider(name)
        reason = provider.available()
        targets = provider.targets() if reason is None else ()
        devices = [t.device for t in targets if t.index is not None]
        ahead = [t.name for t in targets if t.index is None]
        description = str(getattr(provider, "description", ""))
        rows.append((name, reason is None, devices, ahead, description, reason))
    emit(Table("providers", columns, rows), as_json=json, outputs=output or [])


@app.command(cls=WorkbenchCommand)
def support(json: Json = False, output: Outputs = None) -> None:
    """What each provider supports on each target: "yes", or the reason why not."""
    from gemmetry.api.support import support_rows
    from gemmetry.domain.tables import Column, Table

    found = list(support_rows())
    columns = tuple(map(Column, ("asked", "operation", *found[0].refusals)))
    rows = [
        (row.label, row.operation, *(refusal or "yes" for refusal in row.refusals.values()))
        for row in found
    ]
    emit(Table("support", columns, rows), as_json=json, outputs=output or [])


@app.command(cls=WorkbenchCommand)
def dtypes(json: Json = False, output: Outputs = None) -> None:
    """Number formats and their aliases."""
    from gemmetry.domain.dtypes import DTYPE_ALIASES, DTYPES
    from gemmetry.domain.tables import Column, ColumnType, Table

    columns = (
        Column("dtype"),
        Column("bits", ColumnType.INTEGER),
        Column("significand_bits", ColumnType.INTEGER),
        Column("maximum", ColumnType.NUMBER),
        Column("also", ColumnType.TEXTS),
        Column("description"),
    )
    rows = [
        (
            dtype.name,
            dtype.storage_bits,
            dtype.significand_bits or None,
            dtype.maximum,
            [alias for alias, name in DTYPE_ALIASES.items() if name == dtype.name],
            dtype.description,
        )
        for dtype in DTYPES.values()
    ]
    emit(Table("dtypes", columns, rows), as_json=json, outputs=output or [])


@app.command(cls=WorkbenchCommand)
def columns(json: Json = False, output: Outputs = None) -> None:
    """Columns of tables, CSV and JSON records."""
    from gemmetry.domain.columns import COLUMNS
    from gemmetry.domain.tables import Column, Table

    columns = tuple(map(Column, ("column", "unit", "description")))
    rows = [(c.name, c.unit or None, c.description) for c in COLUMNS]
    emit(Table("columns", columns, rows), as_json=json, outputs=output or [])


@app.command(cls=WorkbenchCommand)
@partial(with_request, saves=False)
def operations(
    source: Source,
    json: Json = False,
    limit: Limit = 1000,
    output: Outputs = None,
) -> None:
    """Operations of a request, with FLOPs and compulsory bytes; takes the options of `profile`."""
    from itertools import islice

    from gemmetry.domain.names import operation_name
    from gemmetry.domain.tables import Column, ColumnType, Table

    columns = (
        Column("operation"),
        Column("kind"),
        Column("flops", ColumnType.INTEGER, "FLOP"),
        Column("bytes", ColumnType.INTEGER, "B"),
    )
    rows = [
        (operation_name(operation), str(operation.kind), operation.flops, operation.bytes)
        for operation in islice(_plan(source).operations, limit or None)
    ]
    emit(Table("operations", columns, rows), as_json=json, outputs=output or [])


@app.command(cls=WorkbenchCommand)
@partial(with_request, saves=False)
def configurations(
    source: Source,
    json: Json = False,
    limit: Limit = 1000,
    output: Outputs = None,
) -> None:
    """Configurations that providers offer for a request; takes the options of `profile`."""
    from itertools import islice

    from gemmetry.api.listing import list_dispatches
    from gemmetry.domain.tables import Column, Table

    columns = tuple(map(Column, ("provider", "target", "operation", "configuration", "refusal")))
    rows = [
        (d.provider, d.target.name, d.operation, d.configuration, d.refusal or None)
        for d in islice(list_dispatches(_plan(source)), limit or None)
    ]
    emit(Table("configurations", columns, rows), as_json=json, outputs=output or [])


def _plan(source: Source) -> Plan:
    return plan_request(read_request(source), source, shows_notes=False).plan
