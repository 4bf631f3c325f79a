"""The GEMMs whose times vary most: when their shortest and longest instance ran, and next to what.

The tables begin with the columns of the scripts of the sweep analysis document, and have ours after
them. Unlike there, a row is a kernel with a shape, so that all its times are of the same problem,
and a kernel that only fills or adds up is never listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gemmetry.analysis.sweeps.products.columns import AXES
from gemmetry.analysis.sweeps.products.model import (
    ProductPoint,
    RankGemm,
    TracedGemm,
    comparable_gemms,
)
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.formats.events import Int64
from gemmetry.traces.tracelens.columns import integer, number, text

HEAD = (
    integer("threads", "threads per block of a collective, as requested"),
    integer("channel", "channels of a collective, as requested"),
    integer("rank", "rank of the trace"),
    text("kernel_name", "full name of the kernel"),
    number("kernel_time_min_us", "µs", "shortest time of the kernel with this shape"),
    number("kernel_time_max_us", "µs", "longest time"),
    number("time_diff_us", "µs", "longest less shortest time, by which rows are chosen and sorted"),
)
OPERATOR_PREFIX = "col_"
"""Precedes the names of the columns of the sheet ``GEMM``."""

ROBUST = (
    *AXES,
    integer("m", "rows of the result"),
    integer("n", "columns of the result"),
    integer("k", "length of the sums"),
    integer("batch", "number of products"),
    text("dtype", "format of A and B"),
    text("layout", "of A and B: t row-major, n column-major"),
    integer("count", "instances"),
    number("median_us", "µs", "median time"),
    number("p5_us", "µs", "5th percentile"),
    number("p95_us", "µs", "95th percentile"),
    number("mad_us", "µs", "median absolute deviation from the median"),
    number("cv", "", "standard deviation over mean"),
    number("first_step_ratio", "", "median of the first recorded step over that of later ones"),
)
TIMESTAMPS = (
    number("min_duration_timestamp_ms", "ms", "start of the shortest instance, as in the trace"),
    number("max_duration_timestamp_ms", "ms", "start of the longest instance, as in the trace"),
    number("time_between_min_max_ms", "ms", "time between the two"),
    number("min_duration_found_us", "µs", "duration of the former"),
    number("max_duration_found_us", "µs", "duration of the latter"),
)
OVERLAP = (
    integer("overlapping_collective_count", "collectives that ran during the longest instance"),
    text("overlapping_collective_names", "their names in order, with semicolons between them"),
    number("max_overlap_percentage", "%", "largest share of the instance that one of them covers"),
    text("max_overlap_collective", "name of that one"),
    number("total_overlap_duration_ms", "ms", "time during which any of them ran next to it"),
    integer("alone_count", "instances without communication"),
    integer("overlapped_count", "instances next to communication"),
    number("alone_median_us", "µs", "median of the former"),
    number("overlapped_median_us", "µs", "median of the latter"),
    number("slowdown", "", "ratio of the two"),
    number("slowdown_ci_low", "", "lower end of its interval"),
    number("slowdown_ci_high", "", "upper end of its interval"),
    text("verdict", "slower, faster, no difference shown, undecided, no control group or not "
         "overlapped"),
    number("cost_ms_per_step", "ms", "time that overlapped instances took longer, per step"),
    text("note", "why there is no verdict"),
)  # fmt: skip


class VaryingGemm(NamedTuple):
    """A row of the tables."""

    point: ProductPoint
    gemm: RankGemm


def varying_gemms(points: Iterable[ProductPoint], top_k: int) -> list[VaryingGemm]:
    """The `top_k` GEMMs of each rank of each point whose times differ most, the largest difference
    of all first."""
    found = []
    for point in points:
        by_rank: dict[int | None, list[RankGemm]] = {}
        for gemm in comparable_gemms(point):
            by_rank.setdefault(gemm.rank, []).append(gemm)
        for gemms in by_rank.values():
            gemms.sort(key=lambda gemm: -gemm.spread_us)
            found += [VaryingGemm(point, gemm) for gemm in gemms[:top_k]]
    return sorted(found, key=lambda one: -one.gemm.spread_us)


def variance_table(rows: Sequence[VaryingGemm]) -> Table:
    """``time_variance``: which GEMMs vary by how much."""
    return _table("time_variance", rows, ())


def timestamps_table(rows: Sequence[VaryingGemm]) -> Table:
    """``with_timestamps``: the same, with the moments of the extremes."""
    return _table("with_timestamps", rows, TIMESTAMPS)


def overlap_table(rows: Sequence[VaryingGemm]) -> Table:
    """``with_collective_overlap``: the same, with the collectives next to the longest instance, and
    whether collectives slow the GEMM."""
    return _table("with_collective_overlap", rows, (*TIMESTAMPS, *OVERLAP))


def _table(name: str, rows: Sequence[VaryingGemm], more: tuple[Column, ...]) -> Table:
    of_operator = sorted({key for one in rows for key in one.gemm.row})
    columns = (
        *HEAD,
        *(Column(OPERATOR_PREFIX + key, _type(key, rows)) for key in of_operator),
        *ROBUST,
        *more,
    )
    names = [column.name for column in columns]
    records = [_record(*one, with_moments=bool(more)) for one in rows]
    return Table(name, columns, [[record.get(key) for key in names] for record in records])


def _type(key: str, rows: Sequence[VaryingGemm]) -> ColumnType:
    """The type of a column of operators, by its first value."""
    value = next((v for one in rows if (v := one.gemm.row.get(key)) is not None), None)
    kinds = {bool: ColumnType.BOOLEAN, int: ColumnType.INTEGER, float: ColumnType.NUMBER}
    return kinds.get(type(value), ColumnType.TEXT)


def _record(point: ProductPoint, gemm: RankGemm, *, with_moments: bool) -> dict[str, Any]:
    kind = gemm.kind
    record = {
        "threads": point.configuration.threads,
        "channel": point.configuration.channels,
        "rank": gemm.rank,
        "kernel_name": kind.kernel,
        "kernel_time_min_us": gemm.min_us,
        "kernel_time_max_us": gemm.max_us,
        "time_diff_us": gemm.spread_us,
        **{OPERATOR_PREFIX + key: value for key, value in gemm.row.items()},
        "axes": point.axes_text,
        "repeat": point.repeat,
        **{key: getattr(kind, key) for key in ("m", "n", "k", "batch", "dtype", "layout")},
        "count": gemm.count,
        "median_us": gemm.median_us,
    }
    if gemm.traced is not None:
        found = gemm.traced.statistics
        names = ("p5_us", "p95_us", "mad_us", "cv", "first_step_ratio")
        record |= {name: getattr(found, name) for name in names}
        if with_moments:
            record |= dict(_moments(gemm.traced))
    return record


def _moments(traced: TracedGemm) -> Iterator[tuple[str, Any]]:
    facts, cause = traced.facts, traced.statistics.cause
    gemms = facts.gemms
    chosen = np.flatnonzero(gemms.kind == traced.statistics.index)
    duration = gemms.duration_ns[chosen]
    shortest, longest = int(chosen[duration.argmin()]), int(chosen[duration.argmax()])
    starts = [(int(gemms.start_ns[one]) - facts.base_ns) / 1e6 for one in (shortest, longest)]
    yield "min_duration_timestamp_ms", starts[0]
    yield "max_duration_timestamp_ms", starts[1]
    yield "time_between_min_max_ms", abs(starts[1] - starts[0])
    yield "min_duration_found_us", int(gemms.duration_ns[shortest]) / 1000
    yield "max_duration_found_us", int(gemms.duration_ns[longest]) / 1000
    pairs = gemms.overlapping
    pairs = pairs[pairs[:, 0] == longest]
    yield from _next_to(traced, pairs, int(gemms.duration_ns[longest]))
    yield "total_overlap_duration_ms", int(gemms.overlap_ns[longest]) / 1e6
    yield "slowdown_ci_low", cause.low
    yield "slowdown_ci_high", cause.high
    yield "verdict", str(cause.verdict)
    for name in (
        "alone_count", "overlapped_count", "alone_median_us", "overlapped_median_us", "slowdown",
        "cost_ms_per_step", "note",
    ):  # fmt: skip
        yield name, getattr(cause, name)


def _next_to(traced: TracedGemm, pairs: Int64, duration_ns: int) -> Iterator[tuple[str, Any]]:
    """The collectives of `pairs` (:attr:`GemmInstances.overlapping`) with an instance of that
    duration."""
    names = [traced.facts.communication[index].written for index in pairs[:, 1].tolist()]
    yield "overlapping_collective_count", len(names)
    yield "overlapping_collective_names", ";".join(names)
    if names:
        most = int(pairs[:, 2].argmax())
        yield "max_overlap_percentage", 100 * int(pairs[most, 2]) / max(duration_ns, 1)
        yield "max_overlap_collective", names[most]
    else:
        yield "max_overlap_percentage", 0.0
        yield "max_overlap_collective", ""
