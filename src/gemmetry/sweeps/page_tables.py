"""The tables of a page about sweeps; those of several sweeps have a column with their label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.domain.units import format_change, format_memory, format_percent
from gemmetry.results.texts import cut, printable
from gemmetry.sweeps.comparison import ComparedSweep, LabelledSweep, RowGroup, SweepComparison
from gemmetry.sweeps.sentences import MEASURES, figure_text, gemm_label, point_label, row_label

MOST_ROWS = 600
"""Rows of a table on a page; the page names the file with all of them."""

_UNBROKEN = 26
_LONG = frozenset(("note", "reason", "text", "claim", "remark"))
"""Columns with sentences."""
_MOST, _MOST_OF_LONG = 160, 500
"""Characters of a cell; the rest is in its tooltip."""


def _text(name: str, description: str = "") -> Column:
    return Column(name, description=description)


def _number(name: str, digits: int = 2, description: str = "") -> Column:
    return Column(name, ColumnType.NUMBER, description=description, absent="–",
                  format=lambda value: f"{value:,.{digits}f}")  # fmt: skip


def _percent(name: str, description: str) -> Column:
    return Column(name, ColumnType.NUMBER, description=description, absent="–",
                  format=format_change)  # fmt: skip


def _whole(name: str, description: str = "") -> Column:
    return Column(name, ColumnType.INTEGER, description=description, absent="–",
                  format=lambda value: f"{value:,}")  # fmt: skip


def _share(name: str, description: str) -> Column:
    return Column(name, ColumnType.NUMBER, description=description, format=format_percent)


_SWEEP = _text("sweep", "label of the sweep")
_POINT = _text("point", "threads, channels, further axes, repeat")

_POINTS = (
    _SWEEP, _POINT, _text("outcome"),
    _number("step ms", 2, "median step: the longest window of any rank"),
    _number("low", 2, "lower end of its 95 % interval"), _number("high", 2, "upper end"),
    _whole("steps", "steps that all ranks recorded"),
    _number("compute ms", 2, "computing, as if nothing were slowed"),
    _number("slowed ms", 2, "by how much communication lengthened GEMMs"),
    _number("exposed comm. ms", 2, "communication while nothing is computed"),
    _number("exposed copies ms", 2, "copies while nothing else runs"), _number("idle ms", 2),
)  # fmt: skip
_GEMMS = (
    _SWEEP, _POINT, _text("GEMM", "M x N x K"), _text("kernel"),
    _number("alone µs", 1, "median of instances without communication"),
    _number("with comm. µs", 1, "median of instances next to communication"),
    _percent("slowdown", "median over the pairs of instances of one rank, which differs from the "
             "ratio of the two where ranks do"),
    _percent("low", "lower end of its interval"),
    _percent("high", "upper end of its interval"), _text("verdict"),
    _number("ms/step", 3, "what the slowdown costs per step"),
    _percent("full overlap", "slowdown at full overlap, by the dose-response"),
    _share("highest overlap", "highest overlapped share of an instance, where six exceed a half"),
    _whole("n alone"), _whole("n with comm."), _text("note"),
)  # fmt: skip
_SETTINGS = (
    _SWEEP, _POINT, _text("setting"), _text("requested"), _text("seen", "in the traces"),
    _text("verdict"), _text("reason"),
)  # fmt: skip
_STRAGGLERS = (
    _SWEEP, _POINT, _whole("rank"),
    _whole("collectives", "of the rank, those that are matched"),
    _share("came last", "share of them that the rank entered last"),
    _number("waited µs", 0, "how long it waited for others, over all collectives"),
    _text("lost time in", "the kernel in which it lost time against ranks that merely wait"),
    _number("lost µs/step", 0), _whole("since step"), _text("verdict"),
)  # fmt: skip
_COLLECTIVES = (
    _SWEEP, _POINT, _text("operation"), _text("type"),
    Column("size", ColumnType.NUMBER, "B", "of the whole message", format=format_memory,
           absent="–"),
    _whole("ranks"), _whole("count"),
    _number("latency µs", 1, "median, from the last rank's start to the last end"),
    _number("bus GB/s", 1, "median bus bandwidth, in 10⁹ bytes per second"),
    _number("duration µs", 1, "median of the kernels, waits included"),
)  # fmt: skip
_COUNTERS = (
    _SWEEP, _POINT, _whole("rank"), _text("kernel"), _whole("workgroups", "of the grid"),
    _whole("count", "dispatches"), _number("µs", 1, "median time"), _text("serialised"),
    _number("CU busy %", 1, "time in which a compute unit has work, over all of them"),
    _number("matrix %", 1, "time in which the matrix units work, over all SIMDs"),
    _number("occupancy %", 1, "waves on the compute units, of those that they can hold"),
    _whole("waves", "launched"), _whole("VGPR"), _whole("AGPR"), _whole("SGPR"),
    Column("LDS", ColumnType.NUMBER, "B", "of a workgroup", format=format_memory, absent="–"),
)  # fmt: skip
_RECORDS = (
    _SWEEP, _POINT, _text("operation"),
    Column("size", ColumnType.NUMBER, "B", "of the whole message", format=format_memory,
           absent="–"),
    _whole("ranks"), _whole("channels"), _whole("count"),
    _number("latency µs", 1, "median, as NCCL Inspector recorded it"),
    _number("bus GB/s", 1, "median bus bandwidth, in 10⁹ bytes per second"),
    _number("latency in traces µs", 1, "median of the same collectives in the traces"),
)  # fmt: skip
_CHANGES = (
    _text("what"), _text("measure"), _text("point"), _text("before"), _text("after"),
    _percent("change", "of a part of the step: of the step if only this part changed"),
    _percent("low", "lower end of its interval"), _percent("high", "upper end of its interval"),
    _text("verdict"), _text("runs", "of both sweeps"), _text("note"),
)  # fmt: skip


def points_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per point."""
    return _of_sweeps("points", _POINTS, sweeps, "points", _point)


def _point(one: Mapping[str, Any]) -> Sequence[Any]:
    step = one["step_ms"]
    outcome = one["outcome"].replace("_", " ")
    if one["reason"]:
        outcome = f"{outcome}: {one['reason']}"
    elif one.get("left_out"):
        outcome = f"incomplete: {one['left_out']}"
    return (
        outcome,
        step["median"], step["ci_low"], step["ci_high"], step["n"], one["compute_ms"],
        one["slowed_compute_ms"], one["exposed_comm_ms"], one["exposed_copy_ms"], one["idle_ms"],
    )  # fmt: skip


def gemms_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per kernel and shape of each point, those that cost most first."""
    found = _of_sweeps("GEMMs", _GEMMS, sweeps, "pooled_gemms", _gemm)
    place = found.names.index("ms/step")
    rows = sorted(found.rows, key=lambda row: -(row[place] or 0))
    return Table(found.name, found.columns, rows)


def _gemm(one: Mapping[str, Any]) -> Sequence[Any]:
    return (
        gemm_label(one) if one["m"] is not None else "", one["kernel"], one["alone_median_us"],
        one["overlapped_median_us"], one["slowdown"], one["slowdown_ci_low"],
        one["slowdown_ci_high"], one["verdict"], one["cost_ms_per_step"],
        one["full_overlap_slowdown"], one.get("highest_overlap_share"), one["alone_count"],
        one["overlapped_count"], one["note"] or "",
    )  # fmt: skip


def settings_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per requested setting of each point."""
    return _nested("settings", _SETTINGS, sweeps, "settings", lambda one: (
        one["name"], one["asked"], one["seen"], one["verdict"], one["reason"] or ""
    ))  # fmt: skip


def stragglers_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per rank of each point."""
    return _nested("stragglers", _STRAGGLERS, sweeps, "stragglers", lambda one: (
        one["rank"], one.get("collectives"), one["last_share"], one["waited_us"],
        one["lost_in"] or "", one["lost_us"], one["since_step"],
        one.get("verdict") or ("delays the others" if one["is_straggler"] else ""),
    ))  # fmt: skip


def collectives_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per operation, type and size of each point."""
    return _of_sweeps("collectives", _COLLECTIVES, sweeps, "collectives", lambda one: (
        (one["op"] or "unknown").replace("_", "-"), one["dtype"] or "", one["bytes"],
        one["group_size"], one["count"], one["latency_us"], one["busbw_gbps"], one["duration_us"],
    ))  # fmt: skip


def counters_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per kernel and grid of each rank that ran under rocprofv3."""
    return _of_sweeps("counters", _COUNTERS, sweeps, "rocprof", lambda one: (
        one["rank"], one["kernel"], one["workgroups"], one["count"], one["median_us"],
        "yes" if one["is_serialised"] else "no", one["cu_busy_percent"], one["mfma_util_percent"],
        one["occupancy_percent"], one["waves"], one["vgprs"], one["accum_vgprs"], one["sgprs"],
        one["lds_bytes"],
    ))  # fmt: skip


def records_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per collective and size of each point that NCCL Inspector recorded."""
    return _nested("records of NCCL", _RECORDS, sweeps, "nccl_records", lambda one: (
        (one["op"] or "unknown").replace("_", "-"), one["bytes"], one["group_size"],
        one["channels"], one["count"], one["latency_us"], one["busbw_gbps"],
        one["traced_latency_us"],
    ))  # fmt: skip


def changes_of(candidate: ComparedSweep, groups: Iterable[RowGroup], name: str) -> Table:
    """One row per compared figure, those that are shown to change first."""
    order = {"slower": 0, "faster": 1, "undecided": 2}
    rows = [row for group in groups for row in candidate.of(group)]
    rows.sort(key=lambda row: order.get(str(row.verdict), 3))
    return Table(name, _CHANGES, [
        [row_label(row, rows) or "step", MEASURES[row.measure],
         row.configuration.label if row.configuration else "all points",
         figure_text(row.before, row.unit), figure_text(row.after, row.unit),
         row.comparison.ratio, row.comparison.ratio_low, row.comparison.ratio_high,
         str(row.verdict), "{} / {}".format(*row.runs), row.note]
        for row in rows
    ])  # fmt: skip


def environments_of(comparison: SweepComparison) -> Table:
    """One row per fact in which a sweep's environment differs from that of the first, with a column
    for each sweep."""
    labels = [comparison.label, *(one.label for one in comparison.candidates)]
    rows: dict[str, dict[str, str]] = {}
    for one in comparison.candidates:
        for line in one.environment_differences:
            name, _, values = line.partition(": ")
            before, _, after = values.partition(" vs ")
            of_sweeps = rows.setdefault(name, dict.fromkeys(labels, before))
            of_sweeps[one.label] = after
    columns = (_text("fact"), *(Column(str(n), heading=label) for n, label in enumerate(labels)))
    return Table("environments", columns, [[name, *of.values()] for name, of in rows.items()])


def _of_sweeps(
    name: str,
    columns: tuple[Column, ...],
    sweeps: Sequence[LabelledSweep],
    entries: str,
    cells: Any,
) -> Table:
    rows = [
        [sweep.label, point_label(one), *cells(one)]
        for sweep in sweeps
        for one in sweep.document.get(entries, ())
    ]
    return _without_label(Table(name, columns, rows), sweeps)


def _nested(
    name: str,
    columns: tuple[Column, ...],
    sweeps: Sequence[LabelledSweep],
    entries: str,
    cells: Any,
) -> Table:
    rows = [
        [sweep.label, point_label(point), *cells(one)]
        for sweep in sweeps
        for point in sweep.document["points"]
        for one in point.get(entries, ())
    ]
    return _without_label(Table(name, columns, rows), sweeps)


def _without_label(table: Table, sweeps: Sequence[LabelledSweep]) -> Table:
    return table if len(sweeps) > 1 else table.select([n for n in table.names if n != "sweep"])


def page_table(table: Table, file: str) -> dict[str, Any]:
    """A table as the template shows it; columns without any value are left out."""
    kept = [
        place
        for place, column in enumerate(table.columns)
        if any(row[place] not in (None, "") for row in table.rows)
    ]
    columns = [table.columns[place] for place in kept]
    return {
        "id": table.name.replace(" ", "-"),
        "name": table.name,
        "heads": [
            {"text": column.label, "title": column.meaning or column.name,
             "number": column.type.is_numeric}
            for column in columns
        ],
        "rows": [
            [_cell(column, row[place]) for column, place in zip(columns, kept, strict=True)]
            for row in table.rows[:MOST_ROWS]
        ],
        "hidden": max(0, len(table.rows) - MOST_ROWS),
        "file": file,
    }  # fmt: skip


def _cell(column: Column, value: Any) -> dict[str, Any]:
    text = printable(column.text(value))
    shown = cut(text, _MOST_OF_LONG if column.name in _LONG else _MOST)
    classes = ["number"] if column.type.is_numeric else []
    if column.name == "kernel":
        classes.append("kernel")
    elif column.name in _LONG:
        classes.append("long")
    elif len(shown) <= _UNBROKEN:
        classes.append("unbroken")
    if column.name == "verdict":
        classes.append("".join(text.split()[:1]))
    return {
        "text": shown,
        "title": cut(text) if shown != text else "",
        "classes": " ".join(classes),
        "value": value if column.type.is_numeric else None,
    }
