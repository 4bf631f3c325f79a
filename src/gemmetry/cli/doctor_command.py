"""``gemmetry doctor``."""

from __future__ import annotations

import typer

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.cli.options import Json, Outputs
from gemmetry.cli.tables import Row, emit

app = typer.Typer(add_completion=False)


@app.command(cls=WorkbenchCommand)
def doctor(json: Json = False, output: Outputs = None) -> None:
    """Tell what this machine can do, and why not the rest. Nothing is run."""
    from gemmetry.hardware.doctor import doctor_rows

    rows: list[Row] = [
        {
            "capability": row.capability,
            "available": row.available,
            "detail": row.detail,
            "next_step": row.next_step or None,
        }
        for row in doctor_rows()
    ]
    emit("capabilities", [*rows, *_provider_rows()], as_json=json, outputs=output or [])


def _provider_rows() -> list[Row]:
    from gemmetry.api.catalogue import InstalledCatalogue

    catalogue = InstalledCatalogue()
    rows: list[Row] = []
    for name in catalogue.provider_names():
        provider = catalogue.provider(name)
        reason = provider.available()
        detail, next_step = reason or "", reason
        if reason is None:
            targets = provider.targets()
            devices = ", ".join(t.device for t in targets if t.index is not None)
            ahead = ", ".join(t.name for t in targets if t.index is None)
            versions = ", ".join(f"{k} {v}" for k, v in provider.versions().items())
            parts = [f"runs on {devices}" if devices else "",
                     f"compiles for {ahead}" if ahead else "", versions,
                     *provider.doctor_notes()]  # fmt: skip
            detail, next_step = "; ".join(part for part in parts if part), None
        rows.append(
            {
                "capability": f"provider {name}",
                "available": reason is None,
                "detail": detail,
                "next_step": next_step,
            }
        )
    return rows
