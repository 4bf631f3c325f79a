"""Which columns a table has: presets, names of ``domain/columns.py``, tags in front."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmetry.domain.columns import COLUMNS, COLUMNS_BY_NAME, RecordColumn
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Record
from gemmetry.reports.dispatches import dispatch_profiler

SUMMARY = (
    "provider", "operation", "configuration", "outcome", "verification", "median_ns",
    "ci_low_ns", "ci_high_ns", "gflops", "roofline_fraction",
)  # fmt: skip

PRESETS: dict[str, str] = {
    "gemmetry": "every column of docs/columns.md",
    "summary": f"{', '.join(SUMMARY)}",
    "dispatch-profiler": "the columns of the IREE dispatch profiler's CSV, under its names",
}
"""Name -> what it holds."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a file: its heading and its value for a record and its operation."""

    heading: str
    value: Callable[[Record, Operation], Any]
    column: RecordColumn | None = None
    """The domain's column behind it, which knows how to format; None for tags and presets."""

    @property
    def label(self) -> str:
        """The heading where cells are formatted for people, with their unit."""
        return self.heading if self.column is None else self.column.label


def select_columns(
    names: Sequence[str] | None, *, default: str = "gemmetry", tags: Iterable[str] = ()
) -> list[TableColumn]:
    """The columns called `names` (of a preset or of the domain), tags in front.

    Raises:
        UnknownNameError: no such column or preset.
    """
    chosen: dict[str, TableColumn] = {}
    for name in names or (default,):
        for column in _expand(name):
            chosen.setdefault(column.heading, column)
    leading: dict[str, TableColumn] = {}
    for tag in tags:
        heading = f"tag:{tag}" if tag in chosen else tag
        leading[heading] = TableColumn(heading, _tag_value(tag))
    if leading:
        chosen.pop("tags", None)
    return [*leading.values(), *chosen.values()]


def tag_names(records: Iterable[Record]) -> list[str]:
    """The names of all tags, in the order in which they appear."""
    return list(dict.fromkeys(name for record in records for name in record.tags))


def table_rows(records: Iterable[Record], columns: Sequence[TableColumn]) -> Iterable[list[Any]]:
    """One list of values a record, in the order of `columns`."""
    for record in records:
        operation, _ = split_dispatch_name(record.operation)
        yield [column.value(record, operation) for column in columns]


def cell_text(value: Any) -> Any:
    """Lists and mappings as one text, all else unchanged: a cell of a file holds one value."""
    if isinstance(value, Mapping):
        return "; ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "; ".join(str(item) for item in value)
    return value


def _expand(name: str) -> list[TableColumn]:
    if name == "gemmetry":
        return [_domain_column(column) for column in COLUMNS]
    if name == "summary":
        return [_domain_column(COLUMNS_BY_NAME[item]) for item in SUMMARY]
    if name == "dispatch-profiler":
        return [
            TableColumn(heading, _profiler_value(heading))
            for heading in dispatch_profiler.CSV_HEADER
        ]
    if name in COLUMNS_BY_NAME:
        return [_domain_column(COLUMNS_BY_NAME[name])]
    raise UnknownNameError("column", name, [*COLUMNS_BY_NAME, *PRESETS])


def _domain_column(column: RecordColumn) -> TableColumn:
    return TableColumn(column.name, column.value, column)


def _profiler_value(heading: str) -> Callable[[Record, Operation], Any]:
    return lambda record, _operation: dispatch_profiler.csv_row(record)[heading]


def _tag_value(tag: str) -> Callable[[Record, Operation], Any]:
    return lambda record, _operation: record.tags.get(tag)
