"""The sheet ``GEMM`` of a trace, small enough to travel between processes and to be kept for every
rank of a sweep."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from gemmetry.domain.tables import Table


def packed_sheet(table: Table | None) -> bytes:
    """The rows of a table; b"" if there is none. Lists of kernels shrink to about a tenth."""
    if table is None or not table.rows:
        return b""
    return zlib.compress(msgspec.msgpack.encode((table.names, table.rows)), 1)


def gemm_rows(packed: bytes) -> list[dict[str, Any]]:
    """The rows, as dictionaries by the names of the columns."""
    if not packed:
        return []
    names, rows = msgspec.msgpack.decode(zlib.decompress(packed))
    return [dict(zip(names, row, strict=True)) for row in rows]
