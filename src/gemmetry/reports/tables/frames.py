"""Tables as polars DataFrames, and as Parquet."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.formats.naming import encodable
from gemmetry.reports.extras import require
from gemmetry.reports.tables.cells import cell_text

if TYPE_CHECKING:
    import polars

_INTEGER_LIMIT = 2**63
"""Columns with larger integers become floats: a Parquet file has no type for them."""


def frame(table: Table) -> polars.DataFrame:
    """The table as a ``polars.DataFrame`` whose types follow the columns' types.

    Lists stay lists, and mappings become one text. The types do not depend on the rows, so that the
    frames of two runs can be concatenated.

    Raises:
        RequestError: polars is not installed.
    """
    library = require("polars", extra="analysis")
    values = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.columns)
    made: polars.DataFrame = library.DataFrame([
        _series(library, column, list(of_column))
        for column, of_column in zip(table.columns, values, strict=True)
    ])  # fmt: skip
    return made


def parquet(table: Table) -> bytes:
    """A Parquet file (zstd) of :func:`frame`."""
    buffer = io.BytesIO()
    frame(table).write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def _series(polars: Any, column: Column, values: list[Any]) -> Any:
    converters: dict[ColumnType, tuple[Any, Callable[[Any], Any]]] = {
        ColumnType.INTEGER: (polars.Int64, int),
        ColumnType.NUMBER: (polars.Float64, float),
        ColumnType.BOOLEAN: (polars.Boolean, bool),
        ColumnType.TEXTS: (polars.List(polars.String), lambda texts: list(map(_text, texts))),
    }
    dtype, convert = converters.get(column.type, (polars.String, _text))
    if column.type is ColumnType.INTEGER and any(abs(v or 0) >= _INTEGER_LIMIT for v in values):
        dtype, convert = polars.Float64, float
    from gemmetry.reports.tables.json import json_value

    plain = [None if (v := json_value(value)) is None else convert(v) for value in values]
    return polars.Series(column.name, plain, dtype=dtype)


def _text(value: Any) -> str:
    return encodable(str(cell_text(value)))
