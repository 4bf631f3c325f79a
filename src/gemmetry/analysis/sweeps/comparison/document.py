"""A comparison of sweeps as a document, and its figures as a table."""

from __future__ import annotations

from typing import Any

from gemmetry.analysis.sweeps.comparison.figures import COLLECTIVE, KIND
from gemmetry.analysis.sweeps.comparison.model import ComparedSweep, SweepComparison, SweepRow
from gemmetry.analysis.sweeps.document import configuration_entry
from gemmetry.analysis.sweeps.model import SweepConfiguration
from gemmetry.domain.tables import Column, ColumnType, Table

SCHEMA_VERSION = 1

_NUMBER, _WHOLE = ColumnType.NUMBER, ColumnType.INTEGER

_COLUMNS = (
    Column("candidate", description="label of the sweep that is compared with the first one"),
    Column("group", description="whole, step, parts, gemms or collectives"),
    Column("threads", _WHOLE, description="threads of the point; empty: all points"),
    Column("channels", _WHOLE, description="channels of the point"),
    Column("axes", ColumnType.MAPPING, description="further axes of the point"),
    Column("kernel", description="of a GEMM"),
    *(Column(name, _WHOLE, description="of a GEMM") for name in ("m", "n", "k", "batch")),
    Column("dtype", description="of a GEMM or collective"),
    Column("layout", description="of a GEMM"),
    Column("op", description="of a collective"),
    Column("bytes", _WHOLE, "B", "size of a collective's message"),
    Column("group_size", _WHOLE, description="ranks of a collective"),
    Column("measure", description="the compared figure"),
    Column("unit", description="of before and after"),
    Column("before", _NUMBER, description="in the first sweep, mean over its runs"),
    Column("after", _NUMBER, description="in the candidate"),
    Column("ratio", _NUMBER, description="after over before; of a part of the step: the step with "
           "only this part changed, over the first sweep's"),
    Column("ratio_ci_low", _NUMBER, description="lower end of its interval"),
    Column("ratio_ci_high", _NUMBER, description="upper end of its interval"),
    Column("verdict", description="slower, faster, no difference shown or undecided"),
    Column("runs_before", _WHOLE, description="runs of the first sweep"),
    Column("runs_after", _WHOLE, description="runs of the candidate"),
    Column("note", description="why it is undecided, or what weakens it"),
)  # fmt: skip


def comparison_table(comparison: SweepComparison) -> Table:
    """``sweep_comparison``: one row per compared figure of each candidate."""
    records = [
        {"candidate": one.label, **_row(row)} for one in comparison.candidates for row in one.rows
    ]
    return Table.from_records("sweep_comparison", _COLUMNS, records)


def sweep_comparison_document(comparison: SweepComparison) -> dict[str, Any]:
    """The content of ``gemmetry sweep compare --json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "first": {"label": comparison.label, "sweep": comparison.title},
        "threshold": comparison.threshold,
        "confidence": comparison.confidence,
        "candidates": [_candidate(one) for one in comparison.candidates],
        "has_regression": comparison.has_regression,
        "has_undecided": comparison.has_undecided,
    }


def _candidate(one: ComparedSweep) -> dict[str, Any]:
    return {
        "label": one.label,
        "sweep": one.title,
        "is_same": one.is_same,
        "environment_differences": list(one.environment_differences),
        "only_first": [configuration_entry(found) for found in one.only_first],
        "only_candidate": [configuration_entry(found) for found in one.only_candidate],
        "lost": [configuration_entry(found) for found in one.lost],
        "left_out": [{"sweep": label, **point} for label, point in one.left_out],
        "rows": [_row(row) for row in one.rows],
    }


def _row(row: SweepRow) -> dict[str, Any]:
    found, other = row.comparison, row.other_configuration
    what = {name: row.what.get(name) for name in dict.fromkeys((*KIND, *COLLECTIVE))}
    return {
        "group": str(row.group),
        **configuration_entry(row.configuration or SweepConfiguration()),
        "other_point": configuration_entry(other) if other else None,
        **what,
        "measure": row.measure,
        "unit": row.unit,
        "before": row.before,
        "after": row.after,
        "ratio": found.ratio,
        "ratio_ci_low": found.ratio_low,
        "ratio_ci_high": found.ratio_high,
        "verdict": str(row.verdict),
        "runs_before": row.runs[0],
        "runs_after": row.runs[1],
        "note": row.note or None,
    }
