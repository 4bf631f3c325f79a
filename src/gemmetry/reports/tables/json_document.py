"""Tables and documents as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from gemmetry.domain.columns import SCHEMA_VERSION
from gemmetry.domain.tables import Table
from gemmetry.formats.naming import encodable


def tables_document(tables: Sequence[Table]) -> dict[str, Any]:
    """A mapping of ``schema_version`` and of each table's name to a list of objects, as JSON
    values."""
    return {
        "schema_version": SCHEMA_VERSION,
        **{table.name: json_value(table.records()) for table in tables},
    }


def to_json_text(document: Any) -> str:
    """The document as text; it must not contain NaN or infinities, which JSON lacks."""
    return encodable(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)) + "\n"


def json_value(value: Any) -> Any:
    """`value` with tuples as lists, mappings as dicts, NaN and infinities as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return value
