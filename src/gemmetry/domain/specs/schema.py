"""JSON schemas of spec files and of the JSON results."""

from __future__ import annotations

from typing import Any

from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.specs.keys import ALIASES
from gemmetry.domain.tables import Column, ColumnType

_DRAFT = "https://json-schema.org/draft/2020-12/schema"

_JSON_TYPES = {
    ColumnType.TEXT: "string",
    ColumnType.INTEGER: "integer",
    ColumnType.NUMBER: "number",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.TEXTS: "array",
    ColumnType.MAPPING: "object",
}


def spec_schema() -> dict[str, Any]:
    """JSON schema of spec files; aliases of keys are properties too."""
    # The model takes most of the time of a command, and the schema of results does without it.
    from gemmetry.domain.specs.model import ProfileSpec

    schema = ProfileSpec.model_json_schema()
    properties = schema["properties"]
    for alias, name in ALIASES.items():
        if name in properties:
            properties[alias] = {
                **properties[name], "description": f"Another name of {name}."
            }  # fmt: skip
    return {"$schema": _DRAFT, **schema, "title": "gemmetry spec"}


def result_schema() -> dict[str, Any]:
    """JSON schema of the output of ``--json``: every key of a record is always there, null where it
    does not apply."""
    record = {
        "type": "object",
        "properties": {column.name: _property(column) for column in COLUMNS},
        "required": [column.name for column in COLUMNS],
    }
    return {
        "$schema": _DRAFT,
        "title": "gemmetry results",
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "records": {"type": "array", "items": record},
        },
        "required": ["schema_version", "records"],
    }


def _property(column: Column) -> dict[str, Any]:
    kind = _JSON_TYPES[column.type]
    schema: dict[str, Any] = {"type": kind if column.required else [kind, "null"]}
    if column.type is ColumnType.TEXTS:
        schema["items"] = {"type": "string"}
    if column.choices:
        schema["enum"] = [*column.choices, *(() if column.required else (None,))]
    unit = f" Unit: {column.unit}." if column.unit else ""
    schema["description"] = f"{column.description}{unit}"
    return schema
