"""The one model of a table: named columns with a type and a unit, and rows of values.

Every table of the workbench is a :class:`Table`, whatever it holds; the writers in
``reports/tables`` render it in each format. An empty table keeps its columns and so its header.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, TypeVar

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")
_UNIT_SUFFIX = re.compile("_(?:ns|hz|w|c|gb_per_s)$")


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """The items by their `key`, keys and items in the order in which they appear."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def cell_text(value: Any, separator: str = "; ") -> Any:
    """Lists and mappings as one text, booleans as ``yes`` or ``no``, all others unchanged."""
    if isinstance(value, Mapping):
        value = [f"{key}={item}" for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return separator.join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value


class ColumnType(StrEnum):
    """Type of the values of a column; any value may also be None."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    """Integers are allowed; floats of a file's columns are 64 bits wide."""
    BOOLEAN = "boolean"
    TEXTS = "texts"
    """A list of texts."""
    MAPPING = "mapping"

    @property
    def is_numeric(self) -> bool:
        """True if the values are numbers, which are aligned on the right."""
        return self in (ColumnType.INTEGER, ColumnType.NUMBER)


class Direction(StrEnum):
    """Better direction of a column's values."""

    HIGHER_IS_BETTER = "higher"
    LOWER_IS_BETTER = "lower"
    NONE = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the type and meaning of its values, and how they are displayed."""

    name: str
    type: ColumnType = ColumnType.TEXT
    unit: str = ""
    """SI, as the values are stored; "" for counts, shares and texts."""
    description: str = ""
    direction: Direction = Direction.NONE
    format: Callable[[Any], str] | None = None
    """Formats a value for display, with its unit; None: see :meth:`text`."""
    absent: str = ""
    """Displayed where a row has no value."""
    heading: str = ""
    """The heading of displayed texts, where it is not :attr:`name`."""
    required: bool = False
    """Every row has a value; lists and mappings may be empty."""
    choices: tuple[str, ...] = ()
    """All texts that can occur, where they are a fixed set."""

    @property
    def label(self) -> str:
        """The heading for cells formatted by :meth:`text`. Those cells carry their own unit, so the
        heading of ``median_ns`` is ``median``."""
        has_unit = self.format is not None and self.unit
        return self.heading or (_UNIT_SUFFIX.sub("", self.name) if has_unit else self.name)

    @property
    def meaning(self) -> str:
        """Description of the values with the stored unit: ``total time (in µs)``; "" where none is
        declared."""
        unit = f" (in {self.unit})" if self.unit else ""
        return f"{self.description.removesuffix('.')}{unit}" if self.description else ""

    def text(self, value: Any) -> str:
        """`value` formatted for display: as text, ``yes``/``no``, or the items of a list."""
        if value is None:
            return self.absent
        return str(cell_text(value, ", ")) if self.format is None else self.format(value)


def plain_columns(text: str) -> tuple[Column, ...]:
    """Columns from their names, each with its type and unit if it has any: ``dtype bits:integer
    flops:integer:FLOP``."""
    parts = ((*one.split(":"), "", "")[:3] for one in text.split())
    return tuple(Column(name, ColumnType(kind or "text"), unit) for name, kind, unit in parts)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows under a name.

    Raises:
        ValueError: two columns have the same name.
    """

    name: str
    """Name of its key in JSON, its sheet, and its file in a folder."""
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Any]] = ()
    """Each row has one value for each column, in the order of the columns; None where a value does
    not apply."""

    def __post_init__(self) -> None:
        names = self.names
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"table {self.name}: columns occur twice: {', '.join(twice)}")

    @classmethod
    def from_records(
        cls, name: str, columns: Iterable[Column], records: Iterable[Mapping[str, Any]]
    ) -> Self:
        """A table of `records`, each of which has a key for every column (others are ignored).

        Raises:
            KeyError: a record lacks a column.
        """
        columns = tuple(columns)
        names = [column.name for column in columns]
        return cls(name, columns, [[record[key] for key in names] for record in records])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    def records(self) -> list[dict[str, Any]]:
        """Each row as a dict from the columns' names to its values."""
        names = self.names
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def select(self, names: Sequence[str]) -> Self:
        """The table with the columns called `names`, in that order.

        Raises:
            KeyError: there is no such column.
        """
        places = [self._place(name) for name in names]
        columns = tuple(self.columns[place] for place in places)
        return type(self)(self.name, columns, [[row[p] for p in places] for row in self.rows])

    def values(self, name: str) -> list[Any]:
        """The values of the column called `name`, one for each row.

        Raises:
            KeyError: there is no such column.
        """
        place = self._place(name)
        return [row[place] for row in self.rows]

    def _place(self, name: str) -> int:
        try:
            return self.names.index(name)
        except ValueError:
            raise KeyError(f"table {self.name} has no column {name!r}") from None
