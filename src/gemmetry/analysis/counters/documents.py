"""A comparison of counters as a JSON document, and as a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gemmetry.analysis.counters.comparison import CounterComparison, MetricChange
from gemmetry.domain.tables import Column, ColumnType, Table

SCHEMA_VERSION = 1

COLUMNS = (
    Column("kernel", description="its name in the first report"),
    Column("compared_kernel", description="its name in the other report"),
    Column("report", description="label of the other report"),
    Column("metric", description="a concept of the catalogue, or a metric's id"),
    Column("unit"),
    Column("first", ColumnType.NUMBER, description="median in the first report"),
    Column("second", ColumnType.NUMBER, description="median in the other report"),
    Column("difference", ColumnType.NUMBER, description="second - first"),
    Column("ratio", ColumnType.NUMBER, description="second / first"),
    Column("ratio_low", ColumnType.NUMBER, description="lower end of the ratio's interval"),
    Column("ratio_high", ColumnType.NUMBER, description="upper end of the ratio's interval"),
    Column("verdict"),
    Column("note"),
    Column("first_verdict", description="verdict of the diagnosis in the first report"),
    Column("second_verdict", description="verdict of the diagnosis in the other report"),
)


def comparison_document(found: CounterComparison) -> dict[str, Any]:
    """The content of ``gemmetry counters compare --json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "reports": [{"label": one.label, "source": one.source} for one in found.reports],
        "kernels": [
            {
                "kernel": one.first.name,
                "compared_kernel": one.second.name,
                "report": one.label,
                "matched_by": one.matched_by,
                "note": one.note,
                "launches": [len(one.first.launches), len(one.second.launches)],
                "verdicts": [asdict(side.diagnosis.verdict) for side in (one.first, one.second)],
                "gone": list(one.gone),
                "new": list(one.new),
                "metrics": [_metric(change) for change in one.metrics],
                "rooflines": [None if side.roofline is None else asdict(side.roofline)
                              for side in (one.first, one.second)],
            }
            for one in found.kernels
        ],
        "unmatched": [{"report": label, "kernel": name} for label, name in found.unmatched],
    }  # fmt: skip


def _metric(change: MetricChange) -> dict[str, Any]:
    return {**asdict(change), "difference": change.difference, "ratio": change.ratio}


def comparison_table(found: CounterComparison) -> Table:
    """A row for each metric of each kernel."""
    rows = []
    for one in found.kernels:
        verdicts = (one.first.diagnosis.verdict.id, one.second.diagnosis.verdict.id)
        for change in one.metrics:
            low, high = change.interval or (None, None)
            rows.append((
                one.first.name, one.second.name, one.label, change.metric, change.unit,
                change.first, change.second, change.difference, change.ratio, low, high,
                change.verdict, change.note, *verdicts,
            ))  # fmt: skip
    return Table("counter_comparison", COLUMNS, rows)
