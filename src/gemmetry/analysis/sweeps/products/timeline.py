"""How the time of the GPUs is divided at each point: means over ranks, their spread, and the
slowest rank, which decides how long a step takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gemmetry.analysis.sweeps.products.columns import (
    AXES,
    CONFIGURATION,
    FULL_CONFIG,
    configuration_cells,
)
from gemmetry.analysis.sweeps.products.model import ProductPoint
from gemmetry.domain.tables import Column, Table
from gemmetry.statistics.quantiles import median
from gemmetry.traces.tracelens.columns import integer, number, text

TIME, PERCENT = "time ms", "percent"

ALL_DATA = (
    *CONFIGURATION.values(),
    integer("num_ranks", "ranks with work on a GPU"),
    text("type", "row of the sheet gpu_timeline"),
    number(TIME, "ms", "mean over the ranks"),
    number(PERCENT, "%", "mean over the ranks of its share of the rank's total_time"),
    *AXES,
    number("median ms", "ms", "median over the ranks"),
    number("min ms", "ms", "smallest over the ranks"),
    number("max ms", "ms", "largest over the ranks"),
    number("spread ms", "ms", "largest less smallest"),
    integer("max rank", "rank with the largest"),
    integer("zero ranks", "ranks without any such time; with --geo-mean, one makes the mean 0"),
)
KEY_METRICS = ("computation_time", "exposed_comm_time", "busy_time", "idle_time", "total_time")
SUMMARY = (
    FULL_CONFIG,
    CONFIGURATION["threads_num"],
    CONFIGURATION["channels_num"],
    integer("num_ranks", "ranks with work on a GPU"),
    *(number(f"{name}_ms", "ms", "mean over the ranks") for name in KEY_METRICS),
    *AXES,
    text("outcome", "ok, failed, no_traces or not_run"),
    text("reason", "why it is not ok"),
    integer(
        "slowest_rank",
        "rank with the longest computation_time; a rank that waits for it is "
        "busy with communication meanwhile, so that busy_time does not show who is slow",
    ),
    number("slowest_rank_computation_time_ms", "ms", "its computation_time"),
    number("computation_time_spread_ms", "ms", "largest less smallest computation_time of a rank"),
)


def timeline_tables(points: Sequence[ProductPoint], *, geometric: bool = False) -> list[Table]:
    """``All_Data``, ``Pivot_Time_ms``, ``Pivot_Percent`` and ``Summary_By_Config``. Points without
    times are empty cells.

    Args:
        geometric: geometric means over the ranks. The mean of times of which one is 0 is 0.
    """
    mean = geometric_mean if geometric else _arithmetic_mean
    rows = [row for point in points for row in _rows(point, mean)]
    records = [[row.get(column.name) for column in ALL_DATA] for row in rows]
    summaries = [_summary(point, rows) for point in points]
    return [
        Table("All_Data", ALL_DATA, records),
        _pivot("Pivot_Time_ms", points, rows, TIME, "ms"),
        _pivot("Pivot_Percent", points, rows, PERCENT, "%"),
        Table("Summary_By_Config", SUMMARY, [[row.get(c.name) for c in SUMMARY]
                                             for row in summaries]),
    ]  # fmt: skip


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of times; 0 if one of them is."""
    if not all(value > 0 for value in values):
        return 0.0
    return math.exp(sum(map(math.log, values)) / len(values))


def _arithmetic_mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _rows(
    point: ProductPoint, mean: Callable[[Sequence[float]], float]
) -> Iterable[dict[str, Any]]:
    """One row per type, in the order of their names."""
    timelines = point.timelines
    for name in sorted({name for one in timelines.values() for name in one}):
        of_ranks = {rank: one[name] for rank, one in timelines.items() if name in one}
        times = [ms for ms, _ in of_ranks.values()]
        largest = max(of_ranks, key=lambda rank: of_ranks[rank][0])
        yield {
            **configuration_cells(point),
            "num_ranks": len(of_ranks),
            "type": name,
            TIME: mean(times),
            PERCENT: mean([percent for _, percent in of_ranks.values()]),
            "median ms": median(times),
            "min ms": min(times),
            "max ms": max(times),
            "spread ms": max(times) - min(times),
            "max rank": largest,
            "zero ranks": sum(ms == 0 for ms in times),
        }


def _pivot(
    name: str, points: Sequence[ProductPoint], rows: Sequence[dict[str, Any]], value: str, unit: str
) -> Table:
    configs = [point.full_config for point in points]
    cells = {(row["type"], row["full_config"]): row[value] for row in rows}
    kinds = sorted({row["type"] for row in rows})
    columns = (
        text("type", "row of the sheet gpu_timeline"),
        *(number(config, unit, "mean over the ranks of this point") for config in configs),
    )
    found = [[kind, *(cells.get((kind, config)) for config in configs)] for kind in kinds]
    return Table(name, _distinct(columns), found)


def _distinct(columns: Sequence[Column]) -> tuple[Column, ...]:
    return tuple({column.name: column for column in columns}.values())


def _summary(point: ProductPoint, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    own = {row["type"]: row for row in rows if row["full_config"] == point.full_config}
    compute = own.get("computation_time", {})
    return {
        **configuration_cells(point),
        "num_ranks": len(point.timelines),
        **{f"{name}_ms": own[name][TIME] for name in KEY_METRICS if name in own},
        "outcome": point.outcome,
        "reason": point.reason or None,
        "slowest_rank": compute.get("max rank"),
        "slowest_rank_computation_time_ms": compute.get("max ms"),
        "computation_time_spread_ms": compute.get("spread ms"),
    }
