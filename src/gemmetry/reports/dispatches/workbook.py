"""Results as an Excel workbook with one sheet each for records, failures, environment, columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.outcome import Outcome
from gemmetry.domain.record import ResultSet
from gemmetry.domain.tables import Column, Table
from gemmetry.reports.dispatches.records import record_table
from gemmetry.reports.tables.cells import cell_text
from gemmetry.reports.tables.xlsx import Look, workbook

_FAILURES = ("target", "provider", "dispatch", "outcome", "stage", "reason", "reproduce")

_LOOKS = {
    "outcome": Look(good=str(Outcome.OK)),
    "gflops\n[10⁹ FLOP/s]": Look(has_bar=True),
    **{
        name: Look(width=width)
        for name, width in {
            "dispatch": 60, "operation": 40, "configuration": 34, "reason": 50, "reproduce": 50,
            "environment_id": 30, "field": 30, "value": 80, "column": 28, "meaning": 80,
        }.items()
    },
}  # fmt: skip


def to_workbook(result_set: ResultSet, columns: Sequence[str] | None = None) -> bytes:
    """The workbook. Texts are stored as text: nothing in it is a formula or a link.

    Raises:
        RequestError: XlsxWriter is not installed. UnknownNameError: no such column.
        StorageError: the temporary files for a large workbook cannot be written.
    """
    records = result_set.records
    failed = [record for record in records if record.outcome is not Outcome.OK]
    return workbook(
        [
            _with_units(record_table(records, columns)),
            _with_units(record_table(failed, _FAILURES, name="failures", has_tags=False)),
            _environment(result_set),
            columns_table(),
        ],
        _LOOKS,
    )


def columns_table() -> Table:
    """What the columns of records mean."""
    columns = tuple(map(Column, ("column", "unit", "better", "meaning")))
    return Table("columns", columns, [(c.name, c.unit, str(c.direction), c.description)
                                      for c in COLUMNS])  # fmt: skip


def _with_units(table: Table) -> Table:
    """The table with each column's unit in its heading."""
    columns = (replace(column, name=f"{column.name}\n[{column.unit}]" if column.unit
                       else column.name) for column in table.columns)  # fmt: skip
    return replace(table, columns=tuple(columns))


def _environment(result_set: ResultSet) -> Table:
    rows = [
        ("", "title", result_set.title),
        ("", "command", result_set.command),
        ("", "created", result_set.created_second),
        *(("", "remark", remark) for remark in result_set.remarks),
    ]
    for key, environment in result_set.environments.items():
        rows += [(key, name, str(cell_text(v))) for name, v in asdict(environment).items()]
    return Table("environment", tuple(map(Column, ("environment_id", "field", "value"))), rows)
