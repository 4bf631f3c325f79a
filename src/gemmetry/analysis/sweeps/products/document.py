"""A sweep of which only TraceLens' workbooks are left, as a document that can be compared.

It has the keys of ``analysis.json``. Workbooks show no steps, and not which instances of a GEMM ran
next to communication: these figures are None, and the times of whole traces and of all instances
take their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gemmetry.analysis.sweeps.comparison.figures import WORKBOOKS
from gemmetry.analysis.sweeps.document import SCHEMA_VERSION, configuration_entry, kind_entry
from gemmetry.analysis.sweeps.model import GemmKind
from gemmetry.analysis.sweeps.products.communication import SOURCE
from gemmetry.analysis.sweeps.products.model import (
    ProductPoint,
    ProductSweep,
    RankGemm,
    Timeline,
    comparable_gemms,
)
from gemmetry.statistics.quantiles import median
from gemmetry.traces.collectives.summary import operation_name

_PARTS = {
    "compute_ms": "computation_time",
    "exposed_comm_ms": "exposed_comm_time",
    "exposed_copy_ms": "exposed_memcpy_time",
    "idle_ms": "idle_time",
}
"""Part of the time -> its row in ``gpu_timeline``."""
_WHOLE = "total_time"
_MIB = 2**20

Entry = dict[str, Any]


def workbook_document(sweep: ProductSweep, folder: str) -> Entry:
    """The document of `sweep`, whose folder is `folder`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "source": WORKBOOKS,
        "sweep": folder,
        "points": [_point(one) for one in sweep.points],
        "gemms": [],
        "pooled_gemms": [entry for one in sweep.points for entry in _gemms(one)],
        "collectives": [
            {**_keys(one), **entry}
            for one in sweep.points
            for table in sweep.collectives(one)
            if table.name == SOURCE
            for entry in _collectives(table.records())
        ],
        "best": {"step_ms": None},
        "problems": list(sweep.problems),
    }


def _keys(one: ProductPoint) -> Entry:
    return {**configuration_entry(one.configuration), "repeat": one.repeat or 1}


def _point(one: ProductPoint) -> Entry:
    nothing = dict.fromkeys((*_PARTS, "slowed_compute_ms"))
    return {
        **_keys(one),
        "world_size": None,
        "outcome": one.outcome,
        "reason": one.reason or None,
        "ranks": list(one.timelines),
        "device": None,
        "versions": {},
        "settings": [],
        "step_ms": {"median": None, "ci_low": None, "ci_high": None, "n": 0},
        **nothing,
        "stragglers": [],
        "whole_trace": _slowest(one.timelines.values()),
        "problems": [],
    }


def _slowest(timelines: Iterable[Timeline]) -> Entry | None:
    """The times of the rank whose trace lasts longest, in ms."""
    found = [one for one in timelines if _WHOLE in one]
    if not found:
        return None
    slowest = max(found, key=lambda one: one[_WHOLE][0])
    parts = {part: slowest[row][0] if row in slowest else None for part, row in _PARTS.items()}
    return {"window_ms": slowest[_WHOLE][0], **parts, "slowed_compute_ms": None}


def _gemms(one: ProductPoint) -> Iterable[Entry]:
    by_kind: dict[GemmKind, list[RankGemm]] = {}
    for gemm in comparable_gemms(one):
        by_kind.setdefault(gemm.kind, []).append(gemm)
    unknown = (
        "overlapped_count", "alone_count", "overlapped_median_us", "alone_median_us", "slowdown",
        "slowdown_ci_low", "slowdown_ci_high", "cost_ms_per_step", "full_overlap_slowdown",
        "full_overlap_ci_low", "full_overlap_ci_high", "full_overlap_note", "highest_overlap_share",
        "note",
    )  # fmt: skip
    for kind, gemms in by_kind.items():
        yield {
            **_keys(one),
            **kind_entry(kind),
            "ranks": sorted({gemm.rank for gemm in gemms if gemm.rank is not None}),
            "count": sum(gemm.count for gemm in gemms),
            "median_us": median([gemm.median_us for gemm in gemms]),
            **dict.fromkeys(unknown),
            "verdict": "not shown by workbooks",
            "by_share": [],
        }


def _collectives(rows: Iterable[Mapping[str, Any]]) -> Iterable[Entry]:
    for row in rows:
        size = row["Full msg size (MB)"]
        yield {
            "op": operation_name(row["Collective name"]) or row["Collective name"],
            "dtype": row["dtype"],
            "bytes": None if size is None else round(size * _MIB),
            "group_size": row["Group size"],
            "count": row["count"],
            "latency_us": row["comm_latency_median"],
            "busbw_gbps": None,
            "duration_us": None,
            "is_complete": True,
        }
