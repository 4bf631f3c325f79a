"""``gemmetry doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.console import say
from gemmetry.cli.options import Json, Outputs
from gemmetry.cli.tables import emit

if TYPE_CHECKING:
    from gemmetry.domain.tables import Table

app = typer.Typer(add_completion=False)


@app.command(cls=WorkbenchCommand)
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
    from gemmetry.api.catalogue import InstalledCatalogue

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
