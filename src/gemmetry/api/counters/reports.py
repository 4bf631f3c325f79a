"""Reports of hardware counters, as tables and as a document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from gemmetry.counters.reading import read_counters
from gemmetry.domain.errors import GemmetryError, RequestError
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.formats.counters.launches import DURATION, LaunchTable, ProfiledLaunch

T = TypeVar("T")

SCHEMA_VERSION = 1
"""Of :meth:`CounterReports.document`."""

_WILD = frozenset("*?[")


def _integer(name: str, description: str = "", **more: Any) -> Column:
    return Column(name, ColumnType.INTEGER, description=description, **more)


_DESCRIPTION = (
    Column("file"),
    _integer("launch", "number of the launch in its process, as the profiler counts it"),
    Column("kernel"),
    Column("tool", description="what recorded it"),
    Column("device"),
    Column("capability", description="compute capability or architecture"),
    _integer("process"),
    _integer("context"),
    _integer("stream"),
    *(_integer(f"{what}_{axis}") for what in ("grid", "block", "cluster") for axis in "xyz"),
    Column("duration_ns", ColumnType.NUMBER, "ns"),
)


@dataclass(frozen=True, slots=True)
class CounterReports:
    """Reports that were read."""

    tables: Sequence[LaunchTable]
    errors: dict[str, GemmetryError]
    """File -> why it could not be read."""

    def launches(self) -> Iterator[ProfiledLaunch]:
        """Of all reports."""
        return (launch for table in self.tables for launch in table)

    def wide(self) -> Table:
        """One row per launch, with a column for each metric in its base unit."""
        units: dict[str, str] = {}
        texts: dict[str, None] = {}
        for table in self.tables:
            units = {**table.units, **units}
            texts |= dict.fromkeys(table.texts)
        numbers = [name for name in units if name not in texts]
        columns = [Column(name, ColumnType.NUMBER, units[name]) for name in numbers]
        columns += [Column(name) for name in texts]
        rows = [
            (*_description(one), *map(one.value, numbers), *(_text(one, name) for name in texts))
            for one in self.launches()
        ]  # fmt: skip
        return Table("launches", (*_DESCRIPTION, *columns), rows)

    def document(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "schema_version": SCHEMA_VERSION,
            "reports": [
                {"file": str(table.source), "tool": table.tool, "version": table.version,
                 "units": table.units, "problems": table.problems,
                 "launches": [_launch(one) for one in table]}
                for table in self.tables
            ],
            "errors": [{"file": file, "error": one.message} for file, one in self.errors.items()],
        }  # fmt: skip

    def problems(self) -> list[str]:
        """What could not be read of the reports, and which could not be read at all."""
        found = [f"{table.source}: {one}" for table in self.tables for one in table.problems]
        return found + [one.message for one in self.errors.values()]


def read_reports(paths: Iterable[Path], patterns: Sequence[str] = ()) -> CounterReports:
    """Read reports of hardware counters of any supported tool (docs/counter-formats.md).

    Args:
        paths: files, or folders of rocprofv3 or rocprof-compute.
        patterns: ids of the metrics to read besides the time, or globs on them; all if there are
            none.

    Raises:
        GemmetryError: none can be read, or none has such a metric.
    """
    are_ids = patterns and not any(_WILD & set(one) for one in patterns)
    tables = []
    errors: dict[str, GemmetryError] = {}
    for path in paths:
        try:
            table = read_counters(path, {*patterns, DURATION} if are_ids else None)
        except GemmetryError as error:
            errors[str(path)] = error
        else:
            tables.append(_chosen(table, patterns))
    names = [name for table in tables for name in (*table.values, *table.texts)]
    if not tables and len(errors) == 1:
        raise next(iter(errors.values()))
    if not tables:
        listed = "".join(f"\n  {one.message}" for one in errors.values())
        raise RequestError(f"none of {len(errors)} reports can be read{listed}")
    if patterns and not any(_is_chosen(name, patterns) for name in names):
        raise RequestError(
            f"no launch has a metric {' or '.join(map(repr, patterns))}",
            hint="Without --metric, --json lists the metrics that there are.",
        )
    return CounterReports(tables, errors)


def _is_chosen(metric: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(metric, one) for one in patterns)


def _chosen(table: LaunchTable, patterns: Sequence[str]) -> LaunchTable:
    """`table` with the time, and the metrics that `patterns` match."""

    def kept(columns: Mapping[str, T]) -> dict[str, T]:
        return {name: column for name, column in columns.items()
                if name == DURATION or _is_chosen(name, patterns)}  # fmt: skip

    return replace(
        table, values=kept(table.values), units=kept(table.units), texts=kept(table.texts)
    )


def _text(one: ProfiledLaunch, name: str) -> str | None:
    """The text; a number, as a text, where other launches have a text."""
    value = one.value(name)
    return one.text(name) or (f"{value:.17g}" if value is not None else None)


def _description(one: ProfiledLaunch) -> tuple[Any, ...]:
    info = one.info
    triples = (sizes or (None,) * 3 for sizes in (info.grid, info.block, info.cluster))
    return (
        str(one.table.source), info.number, one.name, one.table.tool, info.device or None,
        info.capability or None, info.process, info.context, info.stream,
        *chain.from_iterable(triples), one.duration_ns,
    )  # fmt: skip


def _launch(one: ProfiledLaunch) -> dict[str, Any]:
    info = one.info
    return {
        "kernel": one.name, "number": info.number, "process": info.process,
        "context": info.context, "stream": info.stream, "device": info.device,
        "capability": info.capability, "grid": info.grid, "block": info.block,
        "cluster": info.cluster, "duration_ns": one.duration_ns, "metrics": one.metrics(),
        "texts": one.texts(),
        "rules": [
            {"identifier": rule.identifier, "section": rule.section, "kind": rule.kind,
             "title": rule.title, "message": rule.message,
             "speedup_percent": rule.speedup_percent, "speedup_kind": rule.speedup_kind}
            for rule in info.rules
        ],
    }  # fmt: skip
