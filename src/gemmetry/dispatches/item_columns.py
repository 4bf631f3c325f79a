"""Columns, each declared with the value that it takes from an item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from gemmetry.domain.tables import Column, ColumnType, Table


@dataclass(frozen=True, slots=True)
class ItemColumn(Column):
    """A column, and how to take its value from what a row describes."""

    value: Callable[[Any], Any] = field(kw_only=True, compare=False)


def column(
    name: str,
    type: ColumnType,
    description: str,
    value: str | Callable[[Any], Any] = "",
    *,
    unit: str = "",
) -> ItemColumn:
    """A column; `value` is a function or the name of an attribute (default: `name`)."""
    take = value if callable(value) else attrgetter(value or name)
    return ItemColumn(name, type, unit, description, value=take)


def text(name: str, description: str, value: str | Callable[[Any], Any] = "") -> ItemColumn:
    """A column of texts."""
    return column(name, ColumnType.TEXT, description, value)


def integer(name: str, description: str, value: str | Callable[[Any], Any] = "") -> ItemColumn:
    """A column of integers."""
    return column(name, ColumnType.INTEGER, description, value)


def number(
    name: str, description: str, value: str | Callable[[Any], Any] = "", *, unit: str = ""
) -> ItemColumn:
    """A column of numbers."""
    return column(name, ColumnType.NUMBER, description, value, unit=unit)


def record(columns: Sequence[ItemColumn], item: Any) -> dict[str, Any]:
    """The row of `item` by the names of the columns."""
    return {column.name: column.value(item) for column in columns}


def table(name: str, columns: Sequence[ItemColumn], items: Iterable[Any]) -> Table:
    """The table of `items`, one row each."""
    return Table(name, tuple(columns), [[one.value(item) for one in columns] for item in items])
