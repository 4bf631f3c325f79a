"""Prints and writes the results of an experiment as the options request.

``--dry-run``: the contents of a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gemmetry.cli.console import note, print_json, say, stdout_console
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.settings import RAY

if TYPE_CHECKING:
    from gemmetry.dispatches.profile import Prepared
    from gemmetry.domain.record import ResultSet
    from gemmetry.domain.specs.model import ProfileSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """What to print and which files to write."""

    outputs: tuple[Path, ...] = ()
    append: bool = False
    columns: tuple[str, ...] = ()
    baseline: str | None = None
    format: str = "table"
    json: bool = False
    html: Path | None = None


def rendering_of(spec: ProfileSpec, *, json: bool) -> Rendering:
    """The rendering that a spec's keys request."""
    return Rendering(
        outputs=tuple(Path(path) for path in spec.output),
        append=spec.append,
        columns=columns_of(spec.columns, spec.format),
        baseline=spec.baseline,
        format=spec.format,
        json=json,
        html=Path(spec.html) if spec.html else None,
    )


def columns_of(names: tuple[str, ...] | list[str] | None, format: str) -> tuple[str, ...]:
    """Names of columns from comma lists; ``all`` is another name of ``gemmetry``. Without any, the
    format of the dispatch profiler has its columns in files, too."""
    if not names and format == "block":
        return ("dispatch-profiler",)
    parts = [part for name in names or () for part in name.replace(",", " ").split()]
    return tuple("gemmetry" if part == "all" else part for part in parts)


def check_rendering(rendering: Rendering, *, tags: Iterable[str] | None = None) -> None:
    """Check, before anything runs, that the results can be written.

    `tags` are the names of the results' tags, where they are known.

    Raises:
        RequestError: unknown suffix or column, or a file to append to that has other columns.
        StorageError: a file cannot be written.
    """
    from gemmetry.dispatches.records import select_columns
    from gemmetry.dispatches.writers import check_libraries, suffixes
    from gemmetry.results.emit import check_suffix, check_writable
    from gemmetry.results.tables import check_append

    select_columns(rendering.columns)
    for path in (*rendering.outputs, *((rendering.html,) if rendering.html else ())):
        suffix = check_suffix(path, suffixes())
        check_libraries(suffix)
        check_writable(path)
        if rendering.append and suffix == ".csv" and tags is not None:
            check_append(path, select_columns(rendering.columns, tags=tags))


def render(result_set: ResultSet, rendering: Rendering) -> None:
    """Print and write `result_set`.

    Raises:
        RequestError: a column does not exist or a library is missing.
        StorageError: a file cannot be written.
    """
    from gemmetry.dispatches.records import to_json_document
    from gemmetry.dispatches.writers import with_columns, write

    if rendering.json:
        document = {**to_json_document(result_set), "command": result_set.command}
        print_json(document)
    else:
        _print(result_set, rendering)
    if rendering.json or rendering.format != "table" or rendering.columns:
        for remark in result_set.remarks:  # A table of one's own has no place for them.
            note(f"warning: {remark}")
    for path in rendering.outputs:
        suffix = path.suffix.lower()
        columns = rendering.columns if suffix in with_columns() else None
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
        from gemmetry.dispatches.records import format_block

        typer.echo(format_block(result_set.records))
    elif rendering.format == "csv":
        from gemmetry.dispatches.writers import to_csv

        typer.echo(to_csv(result_set, columns), nl=False)
    elif rendering.format == "md":
        from gemmetry.dispatches.writers import to_markdown

        typer.echo(to_markdown(result_set, columns), nl=False)
    elif rendering.format == "table":
        from gemmetry.dispatches.console import print_table

        print_table(result_set, stdout_console(), columns=columns, baseline=rendering.baseline)


_SHOWN = 20


def print_plan(prepared: Prepared, *, as_json: bool) -> None:
    """Print the counts of a plan and its first dispatches; nothing is run or written."""
    from gemmetry.cli.run import warn_of_idle_patterns
    from gemmetry.engine.catalogue import list_dispatches

    counts: Counter[tuple[str, str]] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    operations: Counter[str] = Counter()
    first: list[str] = []
    for dispatch in list_dispatches(prepared.plan):
        lane = (dispatch.provider, dispatch.target.name)
        counts[lane] += 1
        operations[dispatch.operation] += 1
        refused[lane] += bool(dispatch.refusal)
        if len(first) < _SHOWN:
            text = f"  unsupported: {dispatch.refusal}" if dispatch.refusal else ""
            first.append(f"{dispatch.provider}:{dispatch.name}{text}")
    warn_of_idle_patterns(prepared)
    total = sum(counts.values())
    if as_json:
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "plan_hash": prepared.plan.hash,
            "experiment": str(prepared.experiment),
            "dispatches": total,
            "operations": len(operations),
            "providers": [
                {"provider": provider, "target": target, "dispatches": count,
                 "unsupported": refused[provider, target]}
                for (provider, target), count in counts.items()
            ],
            "plan": prepared.plan.document,
        }  # fmt: skip
        print_json(document)
        return
    dispatches = "dispatch" if total == 1 else "dispatches"
    kinds = "operation" if len(operations) == 1 else "operations"
    say(f"{total} {dispatches} of {len(operations)} {kinds} would run:")
    for (provider, target), count in counts.items():
        missing = refused[provider, target]
        text = f" ({missing} unsupported)" if missing else ""
        say(f"  {provider} on {target}: {count}{text}")
    if prepared.plan.settings.executor == RAY:
        say("  The nodes decide whether they have the devices and libraries for this.")
    for line in first:
        say(f"    {line}")
    if total > len(first):
        say(f"    ... and {total - len(first)} more")
    say(f"experiment: {prepared.experiment}")
