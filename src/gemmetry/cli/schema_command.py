"""``gemmetry schema``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gemmetry.cli.arguments import WorkbenchCommand

app = typer.Typer(add_completion=False)

_KINDS = ("spec", "results")


def _complete_kind(incomplete: str) -> list[str]:
    return [name for name in _KINDS if name.startswith(incomplete)]


@app.command(cls=WorkbenchCommand)
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
    from gemmetry.reports.tables.files import write_atomically
    from gemmetry.specs.schema import result_schema, spec_schema

    if kind not in _KINDS:
        raise UnknownNameError("schema", kind, _KINDS)
    text = json.dumps(spec_schema() if kind == "spec" else result_schema(), indent=2) + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())
