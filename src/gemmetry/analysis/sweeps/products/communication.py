"""The collectives of all points in one table, with the columns of the sweep analysis document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gemmetry.analysis.sweeps.products.columns import AXES, CONFIGURATION, configuration_cells
from gemmetry.analysis.sweeps.products.model import ProductPoint
from gemmetry.domain.tables import Column, Table
from gemmetry.traces.tracelens.columns import text
from gemmetry.traces.tracelens.sheets import BY_NAME

SOURCE = "nccl_summary_implicit_sync"
"""The sheet whose rows it has."""

_OF_SHEET = {column.name: column for column in BY_NAME[SOURCE].columns}
_SIZE, _OPERATION = "Full msg size (MB)", "Collective name"


def _four(name: str) -> tuple[Column, ...]:
    return tuple(_OF_SHEET[f"{name}_{what}"] for what in ("mean", "median", "min", "max"))


MASTER = (
    text("operation_id", "number of the operation by size of its message; operations of one size "
         "that differ in name or type have their own numbers"),
    text("operation_name", "size of the message: tiny (in KB = 2¹⁰ bytes), medium or large (in MB "
         "= 2²⁰ bytes)"),
    _OF_SHEET[_SIZE],
    _OF_SHEET["In msg nelems"],
    *(CONFIGURATION[name] for name in ("threads_num", "thread_config", "channels_num",
                                       "channel_config", "full_config")),
    *(_OF_SHEET[name] for name in (_OPERATION, "dtype", "Group size", "count")),
    *_four("comm_latency"),
    _OF_SHEET["Total comm latency (ms)"],
    *_four("algo bw (GB/s)"),
    *_four("bus bw (GB/s)"),
    *_four("skew in start time"),
    *_four("skew in end time"),
    _OF_SHEET["Process Group Name"],
    text("source_file", "workbook with the collectives of the point"),
    *AXES,
)  # fmt: skip

TINY_MB, MEDIUM_MB = 0.01, 100
"""Bounds of the sizes that the document's script calls tiny and medium."""

_LARGEST = float("inf")


def master_table(of_points: Iterable[tuple[ProductPoint, str, Table]]) -> Table:
    """``NCCL_Data``: one row per point and kind of collective, by operation and point.

    Args:
        of_points: each point with the name of its workbook and the sheet
            ``nccl_summary_implicit_sync``.
    """
    rows: list[tuple[ProductPoint, dict[str, Any]]] = []
    for point, file, sheet in of_points:
        cells = {**configuration_cells(point), "source_file": file}
        rows += [(point, {**record, **cells}) for record in sheet.records()]
    identities = {
        key: f"OP_{number:02d}" for number, key in enumerate(sorted({_key(r) for _, r in rows}), 1)
    }
    for _, row in rows:
        row["operation_id"] = identities[_key(row)]
        row["operation_name"] = operation_size(row.get(_SIZE))
    rows.sort(key=lambda one: (_key(one[1]), one[0].configuration.order, one[0].repeat or 0))
    return Table("NCCL_Data", MASTER, [[row.get(c.name) for c in MASTER] for _, row in rows])


def operation_size(megabytes: float | None) -> str:
    """``medium_32.00MB``; ``unknown`` where the size is not known."""
    if megabytes is None:
        return "unknown"
    if megabytes < TINY_MB:
        return f"tiny_{megabytes * 1024:.3f}KB"
    return f"{'medium' if megabytes < MEDIUM_MB else 'large'}_{megabytes:.2f}MB"


def _key(row: Mapping[str, Any]) -> tuple[float, str, str]:
    """What distinguishes an operation; those of unknown size come last."""
    size = row.get(_SIZE)
    return _LARGEST if size is None else size, str(row.get(_OPERATION)), str(row.get("dtype"))
