"""Every column of a record, declared once: a row of ``columns.csv``.

The JSON records and their schema, the tables in each format, the page ``docs/columns.md`` and the
console follow these declarations; nothing else names columns. A row of the file has

- name, type (``!``: every record has a value), unit, which of two values is better;
- how it is shown: one of :data:`_SHOWN`, or a format after a factor; what is shown where there is
  none (``–`` by default); its heading, if that is not the name;
- where its value is: a path of attributes of the record, or after ``@`` of its operation (``?``: an
  empty one is none), or ``=``, a function of :data:`_DERIVED`;
- its description.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gemmetry.domain import units
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import Outcome, Stage, Verification
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Record
from gemmetry.domain.rows import DRAFT
from gemmetry.domain.rows import SCHEMA_VERSION as SCHEMA_VERSION
from gemmetry.domain.tables import Column, ColumnType, Direction


@dataclass(frozen=True, slots=True)
class RecordColumn(Column):
    """A column of records."""

    value: Callable[[Record, Operation], Any] = field(kw_only=True)
    """Takes the value from a record and its parsed operation; None where it does not apply."""


def _checks(*outcomes: str) -> Callable[[Record], list[str]]:
    """The checks whose text begins with one of `outcomes`; passed checks are listed by name only,
    warned ones with their whole text, and others with the reason, as the column's name states the
    rest."""

    def value(record: Record) -> list[str]:
        found = []
        for name, text in record.verdict.checks.items():
            outcome, _, why = text.partition(": ")
            if outcome.partition(":")[0] in outcomes:
                shown = text if outcome == "warned" else why or outcome
                found.append(name if text == "passed" else f"{name}: {shown}")
        return found

    return value


_DERIVED: dict[str, Callable[[Record], Any]] = {
    # Errors of a wrong result do not come from rounding.
    "accuracy_class": lambda record: record.verdict.accuracy_class
    if record.verdict.status in (Verification.PASSED, Verification.WARNED) else None,
    "checks_passed": _checks("passed"),
    "checks_failed": _checks("failed", "warned"),
    "checks_not_applicable": _checks("not applicable"),
    "checks_incomplete": _checks("incomplete"),
    "properties": _checks("property"),
    "arithmetic_intensity": lambda record: record.flops / record.bytes if record.bytes else None,
    "input_sha256": lambda record: [
        f"{role}:{digest}" for role, digest in record.trace.input_sha256.items()
    ] if record.trace else [],
}  # fmt: skip

_SHOWN: dict[str, Callable[[Any], str]] = {
    "ns": partial(units.format_ns, even=True),
    "gflops": partial(units.format_gflops, even=True),
    "percent": units.format_percent,
    "joules": units.format_joules,
    "bytes": units.format_bytes,
    "count": lambda values: str(len(values)),
}

_CHOICES = {"outcome": Outcome, "stage": Stage, "verification": Verification}


def _shown(text: str) -> Callable[[Any], str] | None:
    if not text or text in _SHOWN:
        return _SHOWN.get(text)
    factor, form = ("1", text) if text.startswith("{") else text.split(" ", 1)
    return lambda value: form.format(float(factor) * value)


def _value(name: str, path: str, kind: ColumnType) -> Callable[[Record, Operation], Any]:
    if path == "=":
        derived = _DERIVED[name]
        return lambda record, _operation: derived(record)
    steps = path.strip("@?").split(".")
    is_of_operation, may_be_empty = path.startswith("@"), not path.endswith("?")

    def value(record: Record, operation: Operation) -> Any:
        found: Any = operation if is_of_operation else record
        for step in steps:
            found = None if found is None else getattr(found, step)
        if kind is ColumnType.TEXTS:
            return list(map(str, found or ()))
        if found is None or not (found or may_be_empty):
            return None
        if kind is ColumnType.MAPPING:
            return dict(found)
        return str(found) if kind is ColumnType.TEXT else found

    return value


def _columns() -> Iterable[RecordColumn]:
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        for one in csv.DictReader(file):
            kind = ColumnType(one["type"].removesuffix("!"))
            yield RecordColumn(
                one["name"], kind, one["unit"], one["description"], Direction(one["better"]),
                _shown(one["shown"]), one["absent"] or "–", one["heading"],
                required=one["type"].endswith("!"),
                choices=tuple(map(str, _CHOICES.get(one["name"], ()))),
                value=_value(one["name"], one["value"], kind),
            )  # fmt: skip


COLUMNS: tuple[RecordColumn, ...] = tuple(_columns())

COLUMNS_BY_NAME: dict[str, RecordColumn] = {column.name: column for column in COLUMNS}


def row(record: Record, columns: Iterable[RecordColumn] = COLUMNS) -> dict[str, Any]:
    """The record as one flat row of JSON values in which every column is present."""
    operation = parse_operation(record.operation)
    return {column.name: column.value(record, operation) for column in columns}


_JSON_TYPES = {
    ColumnType.TEXT: "string", ColumnType.TEXTS: "array", ColumnType.MAPPING: "object",
}  # fmt: skip
"""Types of JSON that have another name."""


def result_schema() -> dict[str, Any]:
    """JSON schema of the output of ``--json``: every key of a record is always there, null where it
    does not apply."""
    record = {
        "type": "object",
        "properties": {column.name: _property(column) for column in COLUMNS},
        "required": [column.name for column in COLUMNS],
    }
    return {
        "$schema": DRAFT,
        "title": "gemmetry results",
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "records": {"type": "array", "items": record},
        },
        "required": ["schema_version", "records"],
    }


def _property(column: Column) -> dict[str, Any]:
    kind = _JSON_TYPES.get(column.type, str(column.type))
    schema: dict[str, Any] = {"type": kind if column.required else [kind, "null"]}
    if column.type is ColumnType.TEXTS:
        schema["items"] = {"type": "string"}
    if column.choices:
        schema["enum"] = [*column.choices, *(() if column.required else (None,))]
    unit = f" Unit: {column.unit}." if column.unit else ""
    schema["description"] = f"{column.description}{unit}"
    return schema
