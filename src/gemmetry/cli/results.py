"""Results of an experiment to stdout and files, as the options ask."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gemmetry.cli.console import note, stdout_console
from gemmetry.domain.errors import RequestError

if TYPE_CHECKING:
    from gemmetry.domain.resultset import ResultSet
    from gemmetry.specs.model import ProfileSpec

_WITH_COLUMNS = frozenset((".csv", ".parquet", ".xlsx", ".md"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """What is printed and written."""

    outputs: tuple[Path, ...] = ()
    append: bool = False
    columns: tuple[str, ...] = ()
    baseline: str | None = None
    format: str = "table"
    json: bool = False
    html: Path | None = None


def rendering_of(spec: ProfileSpec, *, json: bool, html: Path | None = None) -> Rendering:
    """The rendering that a spec's keys ask for; `html` is where the report goes by default."""
    return Rendering(
        outputs=tuple(Path(path) for path in spec.output),
        append=spec.append,
        columns=columns_of(spec.columns),
        baseline=spec.baseline,
        format=spec.format,
        json=json,
        html=Path(spec.html) if spec.html else html,
    )


def columns_of(names: tuple[str, ...] | list[str] | None) -> tuple[str, ...]:
    """Names of columns from comma lists; ``all`` is another name of ``gemmetry``."""
    parts = [part for name in names or () for part in name.replace(",", " ").split()]
    return tuple("gemmetry" if part == "all" else part for part in parts)


def check_rendering(rendering: Rendering) -> None:
    """Refuse, before anything runs, what could not be written after it.

    Raises:
        RequestError: unknown suffix or column, or a folder that is not there.
    """
    from gemmetry.reports.tables import select_columns
    from gemmetry.reports.writers import SUFFIXES

    select_columns(rendering.columns)
    for path in (*rendering.outputs, *((rendering.html,) if rendering.html else ())):
        if path.suffix.lower() not in SUFFIXES:
            raise RequestError(
                f"cannot tell the format of {path}: unknown suffix {path.suffix!r}",
                hint=f"Give a name that ends in one of {', '.join(SUFFIXES)}.",
            )
        if path.is_dir():
            raise RequestError(f"{path} is a folder", hint="Give the name of a file.")


def render(result_set: ResultSet, rendering: Rendering) -> None:
    """Print and write `result_set`.

    Raises:
        RequestError: a column does not exist or a library is missing.
        StorageError: a file cannot be written.
    """
    from gemmetry.reports.writers import to_json_document, write

    if rendering.json:
        document = {**to_json_document(result_set), "command": result_set.command}
        json.dump(document, sys.stdout, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")
    else:
        _print(result_set, rendering)
    for path in rendering.outputs:
        suffix = path.suffix.lower()
        columns = rendering.columns if suffix in _WITH_COLUMNS else None
        is_csv = suffix == ".csv"
        note(f"Writing performance report to {path}")
        write(
            result_set,
            path,
            columns=columns or None,
            append=rendering.append and is_csv,
            baseline=rendering.baseline,
        )
    if rendering.html is not None:
        write(result_set, rendering.html, baseline=rendering.baseline)
        note(f"HTML report: {rendering.html}")


def _print(result_set: ResultSet, rendering: Rendering) -> None:
    columns = rendering.columns or None
    if rendering.format == "block":
        from gemmetry.reports.console import format_block

        typer.echo(format_block(result_set.records))
    elif rendering.format == "csv":
        from gemmetry.reports.csv_table import to_csv

        typer.echo(to_csv(result_set, columns), nl=False)
    elif rendering.format == "md":
        from gemmetry.reports.markdown_table import to_markdown

        typer.echo(to_markdown(result_set, columns), nl=False)
    elif rendering.format == "table":
        from gemmetry.reports.console import print_table

        print_table(result_set, stdout_console(), columns=columns, baseline=rendering.baseline)
