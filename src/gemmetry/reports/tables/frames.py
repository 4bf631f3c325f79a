"""Results as a polars DataFrame, and as Parquet."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from gemmetry.domain.resultset import ResultSet
from gemmetry.reports.extras import require
from gemmetry.reports.tables.columns import (
    TableColumn,
    cell_text,
    select_columns,
    table_rows,
    tag_names,
)
from gemmetry.reports.tables.json_document import json_value


def to_polars(result_set: ResultSet, columns: Sequence[str] | None = None) -> Any:
    """A ``polars.DataFrame``, one row a record; lists stay lists, each tag is a column in front.

    Raises:
        RequestError: polars is not installed.
        UnknownNameError: no such column.
    """
    polars = require("polars", extra="analysis")
    chosen = select_columns(columns, tags=tag_names(result_set.records))
    rows = list(table_rows(result_set.records, chosen))
    return polars.DataFrame([
        _series(polars, column, [row[index] for row in rows])
        for index, column in enumerate(chosen)
    ])  # fmt: skip


def to_parquet(result_set: ResultSet, columns: Sequence[str] | None = None) -> bytes:
    """A Parquet file (zstd) of :func:`to_polars`."""
    buffer = io.BytesIO()
    to_polars(result_set, columns).write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def _series(polars: Any, column: TableColumn, values: list[Any]) -> Any:
    plain = [cell_text(v) if isinstance(v, dict) else json_value(v) for v in values]
    if any(isinstance(value, list) for value in plain):
        return polars.Series(column.heading, plain, dtype=polars.List(polars.String))
    if all(value is None for value in plain):
        # A type of its own, so that the files of two runs can be stacked.
        dtype = polars.Float64 if _is_number(column) else polars.String
        return polars.Series(column.heading, plain, dtype=dtype)
    if any(isinstance(value, float) for value in plain):
        return polars.Series(column.heading, plain, dtype=polars.Float64)
    return polars.Series(column.heading, plain)


def _is_number(column: TableColumn) -> bool:
    found = column.column
    return found is not None and bool(found.unit or found.direction or found.format)
