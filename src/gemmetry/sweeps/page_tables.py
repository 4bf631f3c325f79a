"""The tables of a page about sweeps; those of several sweeps have a column with their label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gemmetry.domain.rows import Row, table
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.domain.units import format_change
from gemmetry.results.texts import cut, printable
from gemmetry.sweeps.comparison import ComparedSweep, LabelledSweep, RowGroup, SweepComparison
from gemmetry.sweeps.rows import (
    DELAYS,
    CollectiveRow,
    PointRow,
    PointStraggler,
    PooledRow,
    RecordedCollective,
    RocprofRow,
    SettingVerdict,
)
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


def _percent(name: str, description: str) -> Column:
    return Column(name, ColumnType.NUMBER, description=description, absent="–",
                  format=format_change)  # fmt: skip


_SWEEP = _text("sweep", "label of the sweep")
_POINT = _text("point", "threads, channels, further axes, repeat")
_CHANGES = (
    _text("what"), _text("measure"), _text("point"), _text("before"), _text("after"),
    _percent("change", "of a part of the step: of the step if only this part changed"),
    _percent("low", "lower end of its interval"), _percent("high", "upper end of its interval"),
    _text("verdict"), _text("runs", "of both sweeps"), _text("note"),
)  # fmt: skip


def points_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per point."""
    return _of_sweeps("points", PointRow, sweeps, "points", _with_reason)


def _with_reason(one: Mapping[str, Any]) -> Mapping[str, Any]:
    outcome = one["outcome"].replace("_", " ")
    if one["reason"]:
        outcome = f"{outcome}: {one['reason']}"
    elif one.get("left_out"):
        outcome = f"incomplete: {one['left_out']}"
    return {**one, "outcome": outcome}


def gemms_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per kernel and shape of each point, those that cost most first."""
    shape = _text("GEMM", "M x N x K")
    found = _of_sweeps("GEMMs", PooledRow, sweeps, "pooled_gemms", more=((shape, lambda one: (
        gemm_label(one) if one["m"] is not None else ""
    )),))  # fmt: skip
    place = found.names.index("ms/step")
    rows = sorted(found.rows, key=lambda row: -(row[place] or 0))
    return Table(found.name, found.columns, rows)


def settings_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per requested setting of each point."""
    return _of_sweeps("settings", SettingVerdict, sweeps, "settings", is_nested=True)


def stragglers_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per rank of each point."""
    return _of_sweeps("stragglers", PointStraggler, sweeps, "stragglers", _judged, is_nested=True)


def _judged(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the verdict, which older analyses lack."""
    return {"verdict": DELAYS if one["is_straggler"] else None, **one}


def collectives_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per operation, type and size of each point."""
    return _of_sweeps("collectives", CollectiveRow, sweeps, "collectives", _spoken)


def _spoken(one: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**one, "op": (one["op"] or "unknown").replace("_", "-")}


def counters_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per kernel and grid of each rank that ran under rocprofv3."""
    return _of_sweeps("counters", RocprofRow, sweeps, "rocprof")


def records_of(sweeps: Sequence[LabelledSweep]) -> Table:
    """One row per collective and size of each point that NCCL Inspector recorded."""
    return _of_sweeps("records of NCCL", RecordedCollective, sweeps, "nccl_records", _spoken,
                      is_nested=True)  # fmt: skip


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
         str(row.verdict), f"{row.runs_before} / {row.runs_after}", row.note]
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
    kind: type[Row],
    sweeps: Sequence[LabelledSweep],
    entries: str,
    shown: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda one: one,
    *,
    more: Sequence[tuple[Column, Callable[[Mapping[str, Any]], str]]] = (),
    is_nested: bool = False,
) -> Table:
    """The page's table of the entries of each sweep, or of each of its points. Before the columns
    of their `kind` are the sweep, if there are several, the point, and `more`."""
    found = [
        (sweep, point, entry)
        for sweep in sweeps
        for point in sweep.document.get("points" if is_nested else entries, ())
        for entry in (point.get(entries, ()) if is_nested else (point,))
    ]
    rows = table(name, kind, [shown(entry) for *_, entry in found], page=True)
    is_labelled = len(sweeps) > 1
    columns = (*((_SWEEP,) if is_labelled else ()), _POINT, *(column for column, _ in more))
    cells = [
        [*([sweep.label] if is_labelled else []), point_label(point),
         *(of(entry) for _, of in more), *row]
        for (sweep, point, entry), row in zip(found, rows.rows, strict=True)
    ]  # fmt: skip
    return Table(name, (*columns, *rows.columns), cells)


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
