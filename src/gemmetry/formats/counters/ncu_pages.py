"""The columns by which Nsight Compute's CSV files identify a launch, and the metrics that do.

The raw page of Nsight Compute as CSV: a row of ids, a row of units, and a row per launch.

Written by ``ncu --import FILE --page raw --csv``, also after ``--print-units base``. A report of
`ncu --set full` has 2,200 columns, so each row is split and converted as a whole, which takes a
quarter of a millisecond; only cells that are no numbers are looked at one by one.

The details page of Nsight Compute as CSV, and what ``--metrics`` prints: a row per metric.

The details page has labels instead of ids, its numbers are rounded to two digits in a unit that
each row chooses, rows of metrics have fewer fields than the header, and rows of rules have the
identifier of the section where rows of metrics have its name.

CSV files of Nsight Compute: finds the table among other output of the application.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import chain
from operator import itemgetter
from pathlib import Path

import numpy as np

from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import LONGEST_FIELD, open_text
from gemmetry.formats.counters.launches import (
    Columns,
    Float64,
    LaunchInfo,
    LaunchTable,
    RuleKind,
    RuleResult,
    SpeedupKind,
    Triple,
    UnknownUnits,
    base_unit,
    check_decimal_point,
    integer,
    is_missing,
    number,
    triple,
)

LAUNCH_COLUMNS = frozenset((
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context",
    "Stream", "Block Size", "Grid Size", "Device", "CC",
))  # fmt: skip
"""Columns that describe the launch; all others of the raw page are metrics. Early versions had
``Kernel Time``, and no sizes, no device and no CC."""

PRODUCT = "device__attribute_display_name"
_CAPABILITY = ("device__attribute_compute_capability_major",
               "device__attribute_compute_capability_minor")  # fmt: skip

_SIZES = {what: tuple(f"launch__{what}_dim_{axis}" for axis in "xyz")
          for what in ("grid", "block", "cluster")}  # fmt: skip
IDENTIFYING = (*sorted(LAUNCH_COLUMNS - {"ID", "Kernel Time"}), PRODUCT, *_CAPABILITY,
               *chain.from_iterable(_SIZES.values()))  # fmt: skip
"""Columns and metrics that :func:`launch_info` reads, besides the launch's number."""


def launch_info(cell: Callable[[str], str]) -> LaunchInfo:
    """The launch that a row describes.

    Args:
        cell: the cell of a column or of a metric; "" where the row has none.
    """
    info = LaunchInfo(
        name=cell("Kernel Name"),
        grid=triple(cell("Grid Size")),
        block=triple(cell("Block Size")),
        capability=cell("CC"),
        number=integer(cell("ID")),
        process=integer(cell("Process ID")),
        context=integer(cell("Context")),
        stream=integer(cell("Stream")),
    )
    return completed(info, lambda name: integer(cell(name)), cell(PRODUCT))


def completed(
    info: LaunchInfo, whole: Callable[[str], int | None], product: str = ""
) -> LaunchInfo:
    """`info` with what metrics state of the launch, where its own columns do not.

    Args:
        whole: the value of a metric that is a whole number.
        product: the GPU's name.
    """
    major, minor = map(whole, _CAPABILITY)
    known = f"{major}.{minor}" if major is not None and minor is not None else ""
    return replace(
        info,
        grid=info.grid or _sizes("grid", whole),
        block=info.block or _sizes("block", whole),
        cluster=_sizes("cluster", whole),
        device=product,
        capability=info.capability or known,
    )


def _sizes(what: str, whole: Callable[[str], int | None]) -> Triple | None:
    x, y, z = map(whole, _SIZES[what])
    return (x, y, z) if x and y and z else None


_FIRST_ROWS = 64
_WRONG_SEPARATOR = re.compile(r",(?!\d{3}(?!\d))")
_MOST_PROBLEMS = 20

_odd_number = lru_cache(maxsize=4096)(number)
"""Parser for columns whose cells are mostly the same text, or empty."""


class _Page:
    """Reads a page line by line.

    Args:
        header: the names of the columns.
        metrics: ids of those to read, for less memory; None for all.
    """

    def __init__(self, header: Sequence[str], metrics: Collection[str] | None) -> None:
        self._header = list(header)
        self._metrics = metrics
        self._problems: list[str] = []
        self._is_over = False

    def read(self, lines: Iterable[tuple[int, str]]) -> LaunchTable:
        """The launches in the lines after the header, each with its number.

        Raises:
            RequestError: numbers have a decimal comma.
        """
        for at, line in lines:
            line = line.rstrip("\r\n")
            if self._is_over or not line or line.startswith("=="):  # Nsight Compute's own messages
                continue
            try:
                cells = self._cells(line)
            except csv.Error as error:
                self._note(f"line {at} is damaged or cut ({error}): left out")
                continue
            self._row(at, cells)
        return self._table()

    def _cells(self, line: str) -> list[str]:
        return next(csv.reader([line], strict=True), [])

    def _row(self, line_number: int, cells: list[str]) -> None:
        raise NotImplementedError

    def _table(self) -> LaunchTable:
        raise NotImplementedError

    def _note(self, problem: str) -> None:
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(problem)


class _RawPage(_Page):
    """Gathers the rows of a raw page in one matrix, which grows in place."""

    def __init__(self, header: Sequence[str], metrics: Collection[str] | None) -> None:
        super().__init__(header, metrics)
        self._at = {name: index for index, name in reversed(list(enumerate(header)))}
        repeated = sorted({name for i, name in enumerate(header) if self._at[name] != i})
        if repeated:
            self._note(f"the column {repeated[0]} occurs more than once: the first is read")
        self._columns = [
            index for name, index in sorted(self._at.items(), key=itemgetter(1))
            if name not in LAUNCH_COLUMNS and (metrics is None or name in metrics)
        ]  # fmt: skip
        self._place = {column: place for place, column in enumerate(self._columns)}
        self._units: list[str] | None = None
        self._texts: dict[int, dict[int, str]] = {}
        """Column -> row -> text, for cells that are not numbers."""
        self._infos: list[LaunchInfo] = []
        self._known: dict[tuple[str, ...], LaunchInfo] = {}
        identifying = [self._at[name] for name in IDENTIFYING if name in self._at]
        self._identity = itemgetter(*identifying, identifying[0])  # A tuple in any case.
        self._values = np.empty((_FIRST_ROWS, len(self._columns)))
        self._set_plain(self._columns)

    def _set_plain(self, columns: Sequence[int]) -> None:
        """Have only `columns` converted as a whole."""
        self._plain = list(columns)
        self._odd = sorted(set(self._columns).difference(columns))
        self._pick = itemgetter(*columns, 0, 0)  # A tuple, whatever the number of columns.
        self._plain_places = np.array([self._place[column] for column in columns], np.intp)

    def _row(self, line_number: int, cells: list[str]) -> None:
        has_all = len(cells) == len(self._header)
        is_units = has_all and not cells[0] and not self._cell(cells, "Kernel Name")
        if cells[0] == self._header[0] or (is_units and self._units is not None):
            # A second table, unless it has the same columns in the same units.
            if cells not in (self._header, self._units):
                self._is_over = True
                self._note(f"another table begins at line {line_number}: its launches are left "
                           "out, because its columns or units differ; give its file on its "
                           "own")  # fmt: skip
        elif not has_all:
            self._note(f"line {line_number} has {len(cells)} fields instead of "
                       f"{len(self._header)}: left out")  # fmt: skip
        elif is_units:
            self._units = cells
        else:
            self._add(cells)

    def _cells(self, line: str) -> list[str]:
        if line[0] == '"' and line[-1] == '"':
            cells = line[1:-1].split('","')
            if len(cells) == len(self._header) and line.count('"') == 2 * len(cells):
                return cells
        return super()._cells(line)

    def _cell(self, cells: Sequence[str], name: str) -> str:
        index = self._at.get(name)
        return cells[index] if index is not None else ""

    def _unit(self, column: int) -> str:
        return self._units[column] if self._units is not None else ""

    def _add(self, cells: list[str]) -> None:
        row = len(self._infos)
        if row == len(self._values):
            # In place: a copy of the values would double the memory.
            self._values.resize((row * 2, len(self._columns)), refcheck=False)
        self._infos.append(self._info(cells))
        values = self._values[row]
        try:
            values[self._plain_places] = self._numbers(cells)
        except ValueError:
            self._set_plain([one for one in self._plain if number(cells[one]) is not None])
            values[self._plain_places] = [number(cells[one]) for one in self._plain]
        for column in self._odd:
            found = _odd_number(cells[column])
            values[self._place[column]] = np.nan if found is None else found
            if found is None and not is_missing(cells[column]):
                check_decimal_point(cells[column], self._unit(column))
                self._texts.setdefault(column, {})[row] = cells[column]

    def _info(self, cells: Sequence[str]) -> LaunchInfo:
        key = self._identity(cells)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = launch_info(lambda name: self._cell(cells, name))
        return replace(known, number=integer(self._cell(cells, "ID")))

    def _numbers(self, cells: Sequence[str]) -> list[float]:
        """The cells of the plain columns.

        Raises:
            ValueError: one is not a number.
        """
        joined = "\t".join(self._pick(cells)[:-2])
        if "," in joined:
            if _WRONG_SEPARATOR.search(joined):
                raise ValueError
            joined = joined.replace(",", "")
        return list(map(float, joined.split("\t"))) if joined else []

    def _table(self) -> LaunchTable:
        """All launches that were added."""
        count = len(self._infos)
        if self._units is None and count:
            self._note("the table has no row of units: base units are assumed (ns, byte, hz)")
        self._values.resize((count, len(self._columns)), refcheck=False)
        self._values[np.isinf(self._values)] = np.nan
        values: dict[str, Float64] = {}
        units: dict[str, str] = {}
        unknown = UnknownUnits()
        for place, column in enumerate(self._columns):
            name, unit = self._header[column], self._unit(column)
            known = base_unit(unit)
            if known is None:
                unknown.add(name, unit)
                continue
            base, factor = known
            values[name] = self._values[:, place]
            if factor != 1:
                values[name] *= factor
            units[name] = base
        texts: dict[str, Sequence[str]] = {}
        for column, by_row in self._texts.items():
            name = self._header[column]
            texts[name] = [by_row.get(row, "") for row in range(count)]
            if name in values and np.isnan(values[name]).all():
                del values[name], units[name]
        return LaunchTable(
            tool="ncu", infos=self._infos, values=values, units=units, texts=texts,
            problems=self._problems + unknown.problems(),
        )  # fmt: skip


_LABELS = Path(__file__).with_name("labels.txt")
_ID = re.compile(r"[\w.:]*__[\w.:]+")
_KINDS: dict[str, RuleKind] = {"INF": "ok", "OK": "ok", "OPT": "optimization", "WRN": "warning",
                               "ERR": "error"}  # fmt: skip
_SPEEDUPS: dict[str, SpeedupKind] = {"local": "local", "global": "global"}
_SECTIONS = {
    "GPU Speed Of Light Throughput": "SpeedOfLight",
    "Compute Workload Analysis": "ComputeWorkloadAnalysis",
    "Memory Workload Analysis": "MemoryWorkloadAnalysis",
    "Memory Workload Analysis Tables": "MemoryWorkloadAnalysis_Tables",
    "Scheduler Statistics": "SchedulerStats", "Warp State Statistics": "WarpStateStats",
    "Instruction Statistics": "InstructionStats", "Launch Statistics": "LaunchStats",
    "Occupancy": "Occupancy", "Source Counters": "SourceCounters",
    "GPU and Memory Workload Distribution": "WorkloadDistribution",
}  # fmt: skip
"""A section's name in rows of metrics -> its identifier."""


@dataclass(slots=True)
class _DetailedLaunch:
    cells: dict[str, str]
    """Cells by column; those of metrics by id."""
    values: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Id -> cell, unit."""
    rules: list[RuleResult] = field(default_factory=list)

    def info(self) -> LaunchInfo:
        def cell(name: str) -> str:
            return self.cells.get(name) or self.values.get(name, ("", ""))[0]

        return replace(launch_info(cell), rules=tuple(self.rules))


class _DetailsPage(_Page):
    """Gathers the rows of a table with a row per metric. A label that stands for no known metric is
    kept as ``Section/Label``."""

    def __init__(self, header: Sequence[str], metrics: Collection[str] | None) -> None:
        super().__init__(header, metrics)
        self._tables = 0
        self._begin(header)
        self._launches: dict[tuple[int, str, str, str], _DetailedLaunch] = {}
        self._unknown = UnknownUnits()
        self._sections: set[str] = set()

    def _begin(self, header: Sequence[str]) -> None:
        """Begin a table with these columns."""
        self._tables += 1
        self._header = list(header)
        self._shortest = self._header.index("Metric Value") + 1

    def _row(self, line_number: int, cells: list[str]) -> None:
        if {"ID", "Metric Value"} <= set(cells):
            # Files that were appended to each other: its launches are others.
            self._begin(cells)
        elif not self._shortest <= len(cells) <= len(self._header):
            self._note(f"line {line_number} has {len(cells)} fields instead of "
                       f"{self._shortest} to {len(self._header)}: left out")  # fmt: skip
        else:
            self._add(dict(zip(self._header, cells, strict=False)))

    def _add(self, row: dict[str, str]) -> None:
        row_of = row.get("Process ID", ""), row.get("ID", ""), row.get("Kernel Name", "")
        key = (self._tables, *row_of)
        launch = self._launches.get(key)
        if launch is None:
            cells = {name: row[name] for name in LAUNCH_COLUMNS if name in row}
            launch = self._launches[key] = _DetailedLaunch(cells)
        section = row.get("Section Name", "")
        if section in _SECTIONS or row.get("Rule Name"):
            self._sections.add(_SECTIONS.get(section, section))
        if row.get("Rule Name"):
            launch.rules.append(_rule(row))
        if row["Metric Name"]:
            metric = _metric(section, row["Metric Name"])
            # A label that several metrics of a section have in common keeps the first.
            launch.values.setdefault(metric, (row["Metric Value"], row.get("Metric Unit", "")))

    def _table(self) -> LaunchTable:
        """All launches that were added."""
        columns = Columns(len(self._launches), self._metrics)
        for row, launch in enumerate(self._launches.values()):
            for metric, (cell, unit) in launch.values.items():
                self._put(columns, row, metric, cell, unit)
        infos = [launch.info() for launch in self._launches.values()]
        table = columns.table("ncu", infos, problems=self._problems + self._unknown.problems())
        table.sections = frozenset(self._sections)
        return table

    def _put(self, columns: Columns, row: int, metric: str, cell: str, unit: str) -> None:
        found = base_unit(unit)
        value = number(cell)
        if found is None and value is not None:
            self._unknown.add(metric, unit)
            return
        base, factor = found or (unit, 1.0)
        if value is not None:
            known = columns.unit(metric)
            if known is not None and known != base:
                self._note(f"{metric} of launch {row} is in {base or 'plain numbers'} and not in "
                           f"{known or 'plain numbers'}: left out")  # fmt: skip
            else:
                columns.put(row, metric, value * factor, base)
        elif is_missing(cell):
            columns.put(row, metric, None, base)
        else:
            check_decimal_point(cell, unit)
            columns.put(row, metric, cell)


def _metric(section: str, label: str) -> str:
    unknown = label if _ID.fullmatch(label) or not section else f"{section}/{label}"
    return _labels().get((section, label), unknown)


@cache
def _labels() -> Mapping[tuple[str, str], str]:
    """(section's name, label) -> id."""
    found = {}
    section = ""
    for line in _LABELS.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif section and line:  # A label may begin with "#".
            label, metric = line.split(" = ")
            found[section, label] = metric
    return found


def _rule(row: Mapping[str, str]) -> RuleResult:
    return RuleResult(
        identifier=row["Rule Name"],
        section=row.get("Section Name", ""),
        kind=_KINDS.get(row.get("Rule Type", "").upper(), "warning"),
        title="",
        message=row.get("Rule Description", ""),
        speedup_percent=number(row.get("Estimated Speedup", "")),
        speedup_kind=_SPEEDUPS.get(row.get("Estimated Speedup Type", "").lower()),
    )


_HEADER = re.compile(r'"?ID"?,.*\bKernel Name\b')
_LONG = {"Metric Name", "Metric Value"}
_ROW = re.compile(r'"\d*","')
"""The beginning of a row, and of no line of a name that has line breaks."""


def read_ncu_csv(path: Path, metrics: Collection[str] | None = None) -> LaunchTable | None:
    """The launches of a file that Nsight Compute wrote with ``--csv``: raw page, details page, or
    the metrics that ``--metrics`` names. Lines around the table are skipped.

    Args:
        path: may be compressed.
        metrics: ids of those to read; None for all.

    Returns:
        None if the file has no such table.

    Raises:
        RequestError: the file cannot be opened, or its numbers have a decimal comma.
    """
    problems: list[str] = []
    with open_text(path) as text:
        lines = _numbered(text, problems)
        header = next((found for line in lines if (found := _columns(line[1]))), None)
        if header is None and problems:
            raise RequestError(f"{path}: {problems[0]}", hint="Copy the file again.")
        if header is None:
            return None
        page = _DetailsPage if set(header) >= _LONG else _RawPage
        try:
            table = page(header, metrics).read(_rows(lines))
        except RequestError as error:
            raise RequestError(f"{path}: {error.message}", hint=error.hint) from error
    table.source = path
    table.problems += problems
    return table


def _numbered(text: Iterator[str], problems: list[str]) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for number, line in enumerate(text, 1):
            yield number, line
    except OSError as error:
        problems.append(f"the file cannot be read beyond line {number}: {error}")


def _rows(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Whole rows: a quoted name may contain line breaks."""
    start, parts, quotes, length = 0, list[str](), 0, 0
    for line_number, line in lines:
        if parts and (_ROW.match(line) or length > LONGEST_FIELD):  # It was cut.
            yield start, "".join(parts)
            parts = []
        if not parts:
            start, quotes, length = line_number, 0, 0
        parts.append(line)
        quotes, length = quotes + line.count('"'), length + len(line)
        if parts[0][0] != '"' or quotes % 2 == 0:
            yield start, "".join(parts)
            parts = []
    if parts:
        yield start, "".join(parts)


def _columns(line: str) -> list[str]:
    """The names in the header of a table; [] for another line."""
    if not _HEADER.match(line):
        return []
    try:
        return [name.strip() for name in next(csv.reader([line.rstrip("\r\n")]))]
    except csv.Error:
        return []
