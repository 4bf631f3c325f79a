"""Tables of traces, which are lists of rows, as files; the suffix picks the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.reports.tables.cells import cell_text
from gemmetry.reports.tables.files import write_atomically
from gemmetry.reports.tables.json_document import to_json_text
from gemmetry.reports.tables.writing import check_suffix, write_tables

Row = Mapping[str, Any]


def write_rows(
    name: str,
    rows: Sequence[Row],
    path: Path,
    *,
    columns: Sequence[str] = (),
    document: Mapping[str, Any] | None = None,
) -> None:
    """Write `rows` (all with the same keys), whole or not at all.

    Args:
        columns: the keys, for the header of a table that may have no rows.
        document: what a json file holds (default: the rows under `name`).

    Raises:
        RequestError: unknown suffix, or a library is missing. StorageError: not writable.
    """
    if document is not None and check_suffix(path) == ".json":
        write_atomically(path, to_json_text(document).encode())
        return
    is_json = path.suffix.lower() == ".json"
    flat = [{k: v if is_json or isinstance(v, bool) else cell_text(v) for k, v in row.items()}
            for row in rows]  # fmt: skip
    names = list(rows[0] if rows else columns)
    typed = [Column(key, _type_of([row[key] for row in flat])) for key in names]
    write_tables([Table.from_records(name, typed, flat)], path)


def _type_of(values: Sequence[Any]) -> ColumnType:
    kinds = {type(value) for value in values if value is not None}
    for allowed, found in (
        ({bool}, ColumnType.BOOLEAN),
        ({int}, ColumnType.INTEGER),
        ({int, float}, ColumnType.NUMBER),
    ):
        if kinds and kinds <= allowed:
            return found
    return ColumnType.TEXT
