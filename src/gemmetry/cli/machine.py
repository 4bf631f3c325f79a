"""``gemmetry list providers|support|configurations|operations|dtypes|columns``.

``gemmetry doctor``.

``gemmetry schema``.

``gemmetry help``.

``gemmetry cache``: the caches that make reading a trace, or checking a kernel, again fast.

``gemmetry agent``.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from gemmetry.cli.console import emit, say
from gemmetry.cli.main import PlainGroup
from gemmetry.cli.options import Json, Outputs, WorkbenchCommand, with_request
from gemmetry.cli.run import Source, plan_request, read_request
from gemmetry.domain.units import counted

if TYPE_CHECKING:
    from gemmetry.domain.dispatch import Plan
    from gemmetry.domain.tables import Table


list_app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    help="List providers, support, configurations, operations, dtypes or columns, without "
    "running anything.",
)

Limit = Annotated[int, typer.Option(help="List at most this many rows; 0: all.", min=0)]


@list_app.command(cls=WorkbenchCommand)
def providers(json: Json = False, output: Outputs = None) -> None:
    """Providers: on which devices each works here, or why it does not."""
    from gemmetry.domain.tables import Column, ColumnType, Table
    from gemmetry.engine.catalogue import InstalledCatalogue

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


@list_app.command(cls=WorkbenchCommand)
def support(json: Json = False, output: Outputs = None) -> None:
    """What each provider supports on each target: "yes", or the reason why not."""
    from gemmetry.domain.tables import Column, Table
    from gemmetry.engine.catalogue import support_rows

    found = list(support_rows())
    columns = tuple(map(Column, ("asked", "operation", *found[0].refusals)))
    rows = [
        (row.label, row.operation, *(refusal or "yes" for refusal in row.refusals.values()))
        for row in found
    ]
    emit(Table("support", columns, rows), as_json=json, outputs=output or [])


@list_app.command(cls=WorkbenchCommand)
def dtypes(json: Json = False, output: Outputs = None) -> None:
    """Number formats and their aliases."""
    from gemmetry.domain.operation import DTYPE_ALIASES, DTYPES
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


@list_app.command(cls=WorkbenchCommand)
def columns(json: Json = False, output: Outputs = None) -> None:
    """Columns of tables, CSV and JSON records."""
    from gemmetry.domain.columns import COLUMNS
    from gemmetry.domain.tables import Column, Table

    columns = tuple(map(Column, ("column", "unit", "description")))
    rows = [(c.name, c.unit or None, c.description) for c in COLUMNS]
    emit(Table("columns", columns, rows), as_json=json, outputs=output or [])


@list_app.command(cls=WorkbenchCommand)
@partial(with_request, saves=False)
def operations(
    source: Source,
    json: Json = False,
    limit: Limit = 1000,
    output: Outputs = None,
) -> None:
    """Operations of a request, with FLOPs and compulsory bytes; takes the options of `profile`."""
    from itertools import islice

    from gemmetry.domain.operation import operation_name
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


@list_app.command(cls=WorkbenchCommand)
@partial(with_request, saves=False)
def configurations(
    source: Source,
    json: Json = False,
    limit: Limit = 1000,
    output: Outputs = None,
) -> None:
    """Configurations that providers offer for a request; takes the options of `profile`."""
    from itertools import islice

    from gemmetry.domain.tables import Column, Table
    from gemmetry.engine.catalogue import list_dispatches

    columns = tuple(map(Column, ("provider", "target", "operation", "configuration", "refusal")))
    rows = [
        (d.provider, d.target.name, d.operation, d.configuration, d.refusal or None)
        for d in islice(list_dispatches(_plan(source)), limit or None)
    ]
    emit(Table("configurations", columns, rows), as_json=json, outputs=output or [])


def _plan(source: Source) -> Plan:
    return plan_request(read_request(source), source, shows_notes=False).plan


doctor_app = typer.Typer(add_completion=False)


@doctor_app.command(cls=WorkbenchCommand)
def doctor(json: Json = False, output: Outputs = None) -> None:
    """Report what this machine can do, and why it cannot do the rest. Nothing runs."""
    from gemmetry.domain.tables import Column, ColumnType, Table
    from gemmetry.hardware.doctor import doctor_rows

    columns = (
        Column("capability"),
        Column("available", ColumnType.BOOLEAN),
        Column("detail"),
        Column("next_step"),
    )
    rows = [(r.capability, r.available, r.detail, r.next_step or None) for r in doctor_rows()]
    table = Table("capabilities", columns, rows + _provider_rows())
    emit(table, as_json=json, outputs=output or [], show=_print)


def _print(table: Table) -> None:
    """Print each capability with what is available or missing, and the next step below it. Without
    a terminal sentences stay on one line, so that they can be searched."""
    from rich.table import Table as RichTable
    from rich.text import Text

    from gemmetry.cli.console import stdout_console

    console = stdout_console()
    rows = table.records()
    if not console.is_terminal:
        width = max(len(row["capability"]) for row in rows)
        for row in rows:
            can = "yes" if row["available"] else "no"
            say(f"{row['capability']:<{width}}  {can:<3}  {row['detail']}".rstrip())
            if row["next_step"]:
                say(f"{'':{width + 7}}→ {row['next_step']}")
        return
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        style = "green" if row["available"] else "yellow"
        text = Text(row["detail"])
        if row["next_step"]:
            text.append(f"\n→ {row['next_step']}", style="bold")
        grid.add_row(row["capability"], Text("yes" if row["available"] else "no", style), text)
    console.print(grid)


def _provider_rows() -> list[tuple[Any, ...]]:
    from gemmetry.engine.catalogue import InstalledCatalogue

    catalogue = InstalledCatalogue()
    rows: list[tuple[Any, ...]] = []
    for name in catalogue.provider_names():
        provider = catalogue.provider(name)
        reason = provider.available()
        detail = reason or ""
        if reason is None:
            targets = provider.targets()
            devices = ", ".join(t.device for t in targets if t.index is not None)
            ahead = ", ".join(t.name for t in targets if t.index is None)
            versions = ", ".join(f"{k} {v}" for k, v in provider.versions().items())
            parts = [f"runs on {devices}" if devices else "",
                     f"compiles for {ahead}" if ahead else "", versions,
                     *provider.doctor_notes()]  # fmt: skip
            detail = "; ".join(part for part in parts if part)
        # What a provider lacks is a sentence that ends with what to do.
        rows.append((f"provider {name}", reason is None, detail, None))
    return rows


schema_app = typer.Typer(add_completion=False)

_KINDS = ("spec", "results")


def _complete_kind(incomplete: str) -> list[str]:
    return [name for name in _KINDS if name.startswith(incomplete)]


@schema_app.command(cls=WorkbenchCommand)
def schema(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="spec (of spec files) or results (of --json).",
            autocompletion=_complete_kind,
        ),
    ] = "spec",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
) -> None:
    """Print the JSON schema of spec files, which lets editors complete and check them."""
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.domain.specs.schema import result_schema, spec_schema
    from gemmetry.results.emit import write_atomically

    if kind not in _KINDS:
        raise UnknownNameError("schema", kind, _KINDS)
    text = json.dumps(spec_schema() if kind == "spec" else result_schema(), indent=2) + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())


help_app = typer.Typer(add_completion=False)


@help_app.command("help", cls=WorkbenchCommand)
def help_(
    context: typer.Context,
    topic: Annotated[
        str,
        typer.Argument(metavar="[TOPIC]", help="A page, or a command. Default: all pages."),
    ] = "",
    json: Json = False,
) -> None:
    """Print a page of the documentation, or the list of all pages.

    The pages are those of the installed version. For the name of a command that has no page of its
    own it prints the command's --help.
    """
    from gemmetry.cli.console import emit
    from gemmetry.domain.tables import Column, Table

    found = pages()
    if not topic:
        columns = (Column("topic"), Column("title"))
        rows = [[name, _title(path)] for name, path in found.items()]
        emit(Table("topics", columns, rows), as_json=json)
        return
    if topic in found:
        text = found[topic].read_text(encoding="utf-8")
    else:
        text = _help_of(context, topic, found)
    if json:
        from gemmetry.cli.console import print_json

        print_json({"topic": topic, "text": text})
    else:
        typer.echo(text.rstrip())


def _help_of(context: typer.Context, name: str, topics: Iterable[str]) -> str:
    """What the command `name` prints with ``--help``."""
    from gemmetry.domain.errors import UnknownNameError

    group = cast(Any, context.find_root().command)
    commands = group.list_commands(context)
    if name not in commands:
        known = (*topics, *commands)
        raise UnknownNameError("topic or command", name, known, where="gemmetry help")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        group.main(args=[name, "--help"], prog_name="gemmetry", standalone_mode=False)
    return shown.getvalue()


def pages() -> dict[str, Path]:
    """Topic -> its page: of an installed package next to its modules, else of the checkout."""
    import gemmetry

    package = Path(gemmetry.__file__).parent
    folder = package / "pages"
    if not folder.is_dir():
        folder = package.parents[1] / "docs"
    return {path.stem: path for path in sorted(folder.glob("*.md"))}


def _title(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ") for line in lines if line.startswith("# ")), path.stem)


cache_app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    help="Manage the caches that make reading a trace again fast.",
)


@cache_app.callback()
def _group() -> None:
    """Manage the caches that make reading a trace again fast."""


@cache_app.command("clear", cls=WorkbenchCommand)
def clear(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Traces, or folders to search, whose caches are removed too, even if another "
            "user wrote them.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Remove the caches of traces: those that your runs wrote, and those of the given paths. Remove
    what `gemmetry kernels check` keeps.

    The traces themselves stay. A cache is written again when its trace is next read.
    """
    from gemmetry.cli.console import print_facts
    from gemmetry.domain.errors import RequestError
    from gemmetry.domain.files import clear_user_cache
    from gemmetry.traces.cache import clear_cache

    hint = "Give the path of a trace, or of a folder."
    for path in paths or ():
        try:
            if not path.exists():
                raise RequestError(f"{path} does not exist", hint=hint)
        except OSError as error:
            what = f"{path} cannot be read: {error.strerror}"
            raise RequestError(what, hint=hint) from error
    count, size = map(sum, zip(clear_cache(paths or ()), clear_user_cache("kernels"), strict=True))
    if json:
        print_facts(caches=count, bytes=size)
        return
    typer.echo(f"removed {counted(count, 'cache')}, {size / 1e6:,.1f} MB")
