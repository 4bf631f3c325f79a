"""Results as one JSON document: the external contract of ``--json`` and ``-o FILE.json``."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from gemmetry.domain.columns import SCHEMA_VERSION, row
from gemmetry.domain.resultset import ResultSet
from gemmetry.formats.naming import encodable


def to_json_document(result_set: ResultSet) -> dict[str, Any]:
    """``schema_version``, ``records`` (every column a key, null where it does not apply),
    ``environments`` by id, and where the results come from. JSON values only."""
    return {
        "schema_version": SCHEMA_VERSION,
        "title": result_set.title,
        "command": result_set.command or None,
        "created": result_set.created or None,
        "experiment": result_set.path or None,
        "records": [json_value(row(record)) for record in result_set.records],
        "environments": {
            key: json_value(asdict(environment))
            for key, environment in result_set.environments.items()
        },
    }


def to_json_text(document: Any) -> str:
    """The document as text; NaN and infinities, which JSON lacks, must not be in it."""
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
