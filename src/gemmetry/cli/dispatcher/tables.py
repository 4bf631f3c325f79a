"""Opens the table that a command is about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmetry.dispatcher.table import DispatchTable

_SHIPPED = "NVIDIA H200"


def open_table(path: Path | None) -> DispatchTable:
    """The table in a file, or the one that comes with gemmetry.

    Raises:
        TableError: it cannot be read or is damaged.
    """
    from gemmetry.dispatcher.table import read_table, shipped_table

    if path is not None:
        return read_table(path)
    found = shipped_table(_SHIPPED)
    assert found is not None
    return found
