"""Values for the cells of files: one text or number each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def cell_text(value: Any) -> Any:
    """Lists and mappings as one text, booleans as ``yes`` or ``no``, all others unchanged."""
    if isinstance(value, Mapping):
        return "; ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "; ".join(str(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value
