"""Rows: one declaration serves JSON, its schema, the tables of every format, and pages.

A kind of row is a class whose fields are facts::

    class Collective(Point, digits=6):
        op: str | None = fact("operation", page="operation")
        latency_us: float | None = fact("median", "µs", page="latency µs", show="{:,.1f}".format)

A field without :func:`fact` is internal: it is in no file. A field ``x_ns`` whose unit is µs is in
files as ``x_us``. A method decorated with :func:`derived` is a fact that follows from the fields.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cached_property
from typing import (
    Any,
    ClassVar,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)
from typing import get_type_hints as type_hints

from gemmetry.domain.tables import Column, ColumnType, Table

SCHEMA_VERSION = 1
"""Version of every JSON document; raised when a key is removed or changes its meaning."""

DRAFT = "https://json-schema.org/draft/2020-12/schema"
"""URI of the JSON schema dialect."""

_FACT = "fact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Declaration of a field of a row; :func:`fact` explains each part."""

    text: str = ""
    unit: str = ""
    key: str = ""
    column: str | None = None
    page: str = ""
    show: Callable[[Any], str] | None = None
    format: Callable[[Any], str] | None = None
    is_inline: bool = False


def fact(text: str = "", unit: str = "", *, default: Any = MISSING, **more: Any) -> Any:
    """A field that files contain.

    Args:
        text: what the value means.
        unit: SI unit of the stored value.
        key: its key in JSON, where it is not the name of the field.
        column: its column in tables, where that is not the key; "": it is in JSON only. Lists of
            rows are in JSON only.
        page: its heading on pages; "": pages do not show it.
        show: the value as pages show it.
        format: the value as tables for people show it (Markdown, HTML, a terminal).
    """
    return field(default=default, metadata={_FACT: Fact(text=text, unit=unit, **more)})


def inline() -> Any:
    """A field that is itself a row: its facts stand in the place of the field."""
    return field(metadata={_FACT: Fact(is_inline=True)})


T = TypeVar("T")


class Derived(cached_property[T]):
    """A fact that :func:`derived` declares."""

    fact: Fact
    type: Any
    """Type of the value; None: the annotation of the function."""


def derived(
    text: str = "", unit: str = "", *, type: Any = None, **more: Any
) -> Callable[[Callable[[Any], T]], Derived[T]]:
    """Declares a method without arguments as a fact, whose value is computed once.

    The arguments are those of :func:`fact`; `type` is that of the value of a function without
    annotations, such as ``attrgetter("shape.m")``.
    """

    def declared(compute: Callable[[Any], T]) -> Derived[T]:
        found = Derived(compute)
        found.fact = Fact(text=text, unit=unit, **more)
        found.type = type
        return found

    return declared


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(fact, inline, field)
)
class Row:
    """Base class of rows. A subclass is a frozen dataclass with keyword-only fields; it may combine
    several rows, whose facts come first."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    DIGITS: ClassVar[int | None] = None
    """Decimal places of floats in files; None: all."""
    PAGE_LAST: ClassVar[tuple[str, ...]] = ()
    """Headings that stand last on pages, in this order; others are in the order of the facts."""
    _DECLARED: ClassVar[tuple[str, ...]] = ()
    """Names of its own facts, in order."""

    def __init_subclass__(cls, *, digits: int | None = None) -> None:
        super().__init_subclass__()
        if digits is not None:
            cls.DIGITS = digits
        facts = (dataclasses.Field, Derived)
        cls._DECLARED = tuple(name for name, one in vars(cls).items() if isinstance(one, facts))
        dataclass(frozen=True, kw_only=True)(cls)

    def record(self) -> dict[str, Any]:
        """The facts as values of JSON, by their keys; an empty text that may be None is None."""
        found: dict[str, Any] = {}
        for one in members(type(self)):
            here = getattr(self, one.name)
            if one.fact.is_inline:
                found |= dict(_absent(one.row)) if here is None else here.record()
            elif here == "" and one.is_optional:
                found[one.key] = None
            else:
                found[one.key] = value(
                    here / 1000 if one.is_scaled and here is not None else here, self.DIGITS
                )
        return found

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """The row whose facts `record` holds, the inverse of :meth:`record`; internal fields, and
        facts that an older version did not write, have their default, or None."""
        absent = {
            one.name: None
            for one in dataclasses.fields(cls)
            if one.default is MISSING and one.default_factory is MISSING
        }
        own = {one.name: one.read(record) for one in members(cls) if not one.is_derived}
        return cls(**absent | own)


@dataclass(frozen=True, slots=True)
class Member:
    """A fact of a kind of row."""

    name: str
    fact: Fact
    type: Any
    """Type without None."""
    row: type[Row] | None
    """The kind of the rows that it holds."""
    default: Any
    is_optional: bool
    key: str
    """Key in JSON."""
    is_derived: bool = False
    is_scaled: bool = False
    """Whether the value is in ns in the row, and in µs in files."""

    @property
    def is_list(self) -> bool:
        """Whether the member holds several values."""
        return _is_list(self.type)

    def read(self, record: Mapping[str, Any]) -> Any:
        """The value of the fact in a record of JSON."""
        if self.fact.is_inline:
            return None if self.row is None else self.row.of(record)
        found = record.get(self.key, None if self.default is MISSING else self.default)
        if self.is_list:
            return tuple(found or ()) if self.row is None else tuple(map(self.row.of, found or ()))
        found = found * 1000 if self.is_scaled and found is not None else found
        return found if self.row is None or found is None else self.row.of(found)


_MEMBERS: dict[type[Any], tuple[Member, ...]] = {}
_PLACES: dict[tuple[type[Any], bool], tuple[_Place, ...]] = {}


def members(kind: type[Row]) -> tuple[Member, ...]:
    """The facts of a kind of row, those of combined rows first."""
    if kind in _MEMBERS:
        return _MEMBERS[kind]
    hints = type_hints(kind)
    found = []
    fields = {one.name: one for one in dataclasses.fields(kind)}
    declared_by = [vars(base).get("_DECLARED", ()) for base in reversed(kind.__mro__)]
    for name in dict.fromkeys(name for names in declared_by for name in names):
        one = getattr(kind, name) if name not in fields else fields[name]
        declared = one.fact if isinstance(one, Derived) else one.metadata.get(_FACT)
        if declared is None:
            continue
        hint = hints[name] if not isinstance(one, Derived) else (
            type_hints(one.func)["return"] if one.type is None else one.type
        )  # fmt: skip
        plain = _without_none(hint)
        inner = get_args(plain)[0] if _is_list(plain) else plain
        row = inner if isinstance(inner, type) and issubclass(inner, Row) else None
        scaled = declared.unit == "µs" and name.endswith("_ns")
        plain = float if scaled else plain
        key = declared.key or (f"{name.removesuffix('_ns')}_us" if scaled else name)
        found.append(Member(
            name, declared, plain, row, getattr(one, "default", MISSING), plain is not hint, key,
            isinstance(one, Derived), scaled,
        ))  # fmt: skip
    return _MEMBERS.setdefault(kind, tuple(found))


def _is_list(kind: Any) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Collection) and not _is_mapping(kind)


def _is_mapping(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _absent(kind: type[Row] | None) -> Iterator[tuple[str, Any]]:
    """The facts of a row that is not there."""
    for one in members(kind) if kind is not None else ():
        if one.fact.is_inline:
            yield from _absent(one.row)
        else:
            yield one.key, None if one.default is MISSING else value(one.default)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        return next(one for one in get_args(kind) if one is not type(None))
    return kind


def value(found: Any, digits: int | None = None) -> Any:
    """`found` as a value of JSON, which lacks NaN and infinities: they are None.

    Args:
        digits: decimal places of floats; None: all.
    """
    if found is None or isinstance(found, int):
        return found
    if isinstance(found, float):
        if not math.isfinite(found):
            return None
        return found if digits is None else round(found, digits)
    if isinstance(found, str):
        return found if type(found) is str else str(found)
    if isinstance(found, Row):
        return found.record()
    if isinstance(found, (list, tuple)):
        return [value(one, digits) for one in found]
    if isinstance(found, Mapping):
        return {str(key): value(item, digits) for key, item in found.items()}
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """A column and where its value is in a record."""

    column: Column
    keys: tuple[str, ...]

    def cell(self, record: Mapping[str, Any]) -> Any:
        found: Any = record
        for key in self.keys:
            found = None if found is None else found.get(key)
        return list(map(str, found)) if found and self.column.type is ColumnType.TEXTS else found


def _places(kind: type[Row], page: bool) -> tuple[_Place, ...]:
    if (kind, page) not in _PLACES:
        found, last = list(_find_places(kind, page, ())), kind.PAGE_LAST if page else ()
        found.sort(key=lambda one: last.index(one.column.name) if one.column.name in last else -1)
        _PLACES[kind, page] = tuple(found)
    return _PLACES[kind, page]


def _find_places(kind: type[Row], page: bool, keys: tuple[str, ...]) -> Iterator[_Place]:
    for one in members(kind):
        here = keys if one.fact.is_inline else (*keys, one.key)
        if one.row is not None and not one.is_list and one.fact.column != "":
            yield from _find_places(one.row, page, here)
        elif one.row is None and (one.fact.page if page else one.fact.column != ""):
            yield _Place(_column(one, page), here)


_TYPES = {int: ColumnType.INTEGER, float: ColumnType.NUMBER, bool: ColumnType.BOOLEAN}


def _column(one: Member, page: bool) -> Column:
    kind = _TYPES.get(one.type, ColumnType.TEXT)
    if one.is_list:
        kind = ColumnType.TEXTS
    elif _is_mapping(one.type):
        kind = ColumnType.MAPPING
    if not page:
        return Column(one.fact.column or one.key, kind, one.fact.unit, one.fact.text,
                      format=one.fact.format)  # fmt: skip
    # Headings of pages and what they show contain the unit.
    return Column(one.fact.page, kind, description=one.fact.text, format=one.fact.show,
                  absent="–" if kind.is_numeric else "")  # fmt: skip


def columns(kind: type[Row], *, page: bool = False) -> tuple[Column, ...]:
    """Columns of a table with rows of this kind; on a page only those with a heading."""
    return tuple(one.column for one in _places(kind, page))


def table(
    name: str, kind: type[Row], rows: Iterable[Row | Mapping[str, Any]], *, page: bool = False
) -> Table:
    """A table of rows, or of their records as JSON holds them."""
    places = _places(kind, page)
    records = (row.record() if isinstance(row, Row) else row for row in rows)
    cells = [[one.cell(record) for one in places] for record in records]
    return Table(name, tuple(one.column for one in places), cells)


def schema(kind: type[Row]) -> dict[str, Any]:
    """The JSON schema of a record of this kind; values that are not known are null."""
    properties: dict[str, Any] = {}
    for one in members(kind):
        if one.fact.is_inline and one.row is not None:
            properties |= schema(one.row)["properties"]
            continue
        unit = f" (in {one.fact.unit})" if one.fact.unit else ""
        text = {"description": f"{one.fact.text}{unit}"} if one.fact.text else {}
        properties[one.key] = {**_schema(one), **text}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _schema(one: Member) -> dict[str, Any]:
    if one.is_list:
        return {"type": "array", **({"items": schema(one.row)} if one.row else {})}
    if one.row is not None:
        return {"anyOf": [schema(one.row), {"type": "null"}]}
    name = "object" if _is_mapping(one.type) else str(_TYPES.get(one.type, "string"))
    return {"type": [name, "null"]}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one kind; without any, tables keep their columns."""

    kind: type[Row]
    rows: Sequence[Row] = ()
