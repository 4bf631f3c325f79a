"""Records as a table of presets or columns of ``domain/columns.py``, after their tags; as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from gemmetry.domain.columns import COLUMNS, COLUMNS_BY_NAME, SCHEMA_VERSION, RecordColumn, row
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.tables import ColumnType, Table
from gemmetry.reports.dispatches import dispatch_profiler
from gemmetry.reports.tables.json import json_value

SUMMARY = (
    "provider", "operation", "configuration", "outcome", "verification", "median_ns",
    "ci_low_ns", "ci_high_ns", "gflops", "roofline_fraction",
)  # fmt: skip

PRESETS: dict[str, str] = {
    "gemmetry": "every column (gemmetry help columns)",
    "summary": f"{', '.join(SUMMARY)}",
    "dispatch-profiler": "the columns of the IREE dispatch profiler's CSV, under its names",
}
"""Preset -> the columns it holds, for people."""


def record_table(
    records: Iterable[Record],
    columns: Sequence[str] | None = None,
    *,
    name: str = "records",
    has_tags: bool = True,
) -> Table:
    """The `records` as a table of :func:`select_columns`, preceded by a column for each of their
    tags if `has_tags`.

    Raises:
        UnknownNameError: no such column or preset.
    """
    records = list(records)
    chosen = select_columns(columns, tags=tag_names(records) if has_tags else ())
    rows = []
    for record in records:
        operation, _ = split_dispatch_name(record.operation)
        rows.append([column.value(record, operation) for column in chosen])
    return Table(name, tuple(chosen), rows)


def select_columns(names: Sequence[str] | None, *, tags: Iterable[str] = ()) -> list[RecordColumn]:
    """The columns called `names` (of a preset or of the domain; default: all of the domain),
    preceded by the tags.

    Raises:
        UnknownNameError: no such column or preset.
    """
    chosen: dict[str, RecordColumn] = {}
    for name in names or ("gemmetry",):
        for column in _expand(name):
            chosen.setdefault(column.name, column)
    leading: dict[str, RecordColumn] = {}
    for tag in tags:
        heading = f"tag:{tag}" if tag in chosen else tag
        leading[heading] = RecordColumn(heading, value=_tag_value(tag))
    if leading:
        chosen.pop("tags", None)
    return [*leading.values(), *chosen.values()]


def tag_names(records: Iterable[Record]) -> list[str]:
    """The names of all tags, in the order in which they appear."""
    return list(dict.fromkeys(name for record in records for name in record.tags))


def to_json_document(result_set: ResultSet) -> dict[str, Any]:
    """``schema_version``, ``records`` (each column is a key, null where it does not apply),
    ``environments`` by id, and where the results come from. JSON values only."""
    return {
        "schema_version": SCHEMA_VERSION,
        "title": result_set.title,
        "command": result_set.command or None,
        "created": result_set.created or None,
        "experiment": result_set.path or None,
        "planned": result_set.planned,
        "remarks": list(result_set.remarks),
        "records": [json_value(row(record)) for record in result_set.records],
        "environments": {
            key: json_value(asdict(environment))
            for key, environment in result_set.environments.items()
        },
    }


def _expand(name: str) -> list[RecordColumn]:
    if name == "gemmetry":
        return list(COLUMNS)
    if name == "summary":
        return [COLUMNS_BY_NAME[item] for item in SUMMARY]
    if name == "dispatch-profiler":
        return [_profiler_column(heading) for heading in dispatch_profiler.CSV_HEADER]
    if name in COLUMNS_BY_NAME:
        return [COLUMNS_BY_NAME[name]]
    raise UnknownNameError("column", name, [*COLUMNS_BY_NAME, *PRESETS])


def _profiler_column(heading: str) -> RecordColumn:
    kind = ColumnType.INTEGER if heading in dispatch_profiler.INTEGERS else ColumnType.TEXT
    return RecordColumn(
        heading, kind, value=lambda record, _: dispatch_profiler.csv_row(record)[heading]
    )


def _tag_value(tag: str) -> Callable[[Record, Operation], Any]:
    return lambda record, _operation: record.tags.get(tag)
