"""The raw page of Nsight Compute as CSV: a row of ids, a row of units, and a row per launch.

Written by ``ncu --import FILE --page raw --csv``, also after ``--print-units base``. A report of
`ncu --set full` has 2,200 columns, so each row is split and converted as a whole, which takes a
quarter of a millisecond; only cells that are no numbers are looked at one by one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import Final

import numpy as np

from gemmetry.formats.counters.cells import check_decimal_point, integer, is_missing, number
from gemmetry.formats.counters.launches import Float64, LaunchInfo, LaunchTable
from gemmetry.formats.counters.ncu.launch_columns import IDENTIFYING, LAUNCH_COLUMNS, launch_info
from gemmetry.formats.counters.units import UnknownUnits, base_unit

_FIRST_ROWS = 64
_WRONG_SEPARATOR = re.compile(r",(?!\d{3}(?!\d))")
_MOST_PROBLEMS = 20

_odd_number = lru_cache(maxsize=4096)(number)
"""Of columns whose cells are mostly the same text, or empty."""


def read_raw_page(
    header: Sequence[str],
    lines: Iterable[tuple[int, str]],
    metrics: Collection[str] | None,
) -> LaunchTable:
    """The launches of a raw page.

    Args:
        header: the names of the columns.
        lines: what follows the header, with the number of each line.
        metrics: ids of those to read, for less memory; None for all.

    Raises:
        RequestError: numbers have a decimal comma.
    """
    page = _RawPage(header, metrics)
    for line_number, line in lines:
        page.add(line_number, line)
    return page.table()


class _RawPage:
    """Gathers the rows of a raw page in one matrix, which grows in place."""

    def __init__(self, header: Sequence[str], metrics: Collection[str] | None) -> None:
        self._header: Final = list(header)
        self._problems: list[str] = []
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
        self._is_over = False
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
        plain = set(columns)
        self._odd = [column for column in self._columns if column not in plain]
        self._pick = itemgetter(*columns, 0, 0)  # A tuple, whatever the number of columns.
        self._plain_places = np.array([self._place[column] for column in columns], np.intp)

    def _note(self, problem: str) -> None:
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(problem)

    def add(self, line_number: int, line: str) -> None:
        """Add a line of the file."""
        line = line.rstrip("\r\n")
        if self._is_over or not line or line.startswith("=="):  # Nsight Compute's own messages
            return
        try:
            cells = self._cells(line)
        except csv.Error as error:
            self._note(f"line {line_number} is damaged or cut ({error}): left out")
            return
        has_all = len(cells) == len(self._header)
        is_units = has_all and not cells[0] and not self._cell(cells, "Kernel Name")
        if cells[0] == self._header[0] or (is_units and self._units is not None):
            self._end_at(line_number, cells)
        elif not has_all:
            self._note(f"line {line_number} has {len(cells)} fields instead of "
                       f"{len(self._header)}: left out")  # fmt: skip
        elif is_units:
            self._units = cells
        else:
            self._add(cells)

    def _end_at(self, line_number: int, cells: list[str]) -> None:
        """Stop at a second table, unless it has the same columns in the same units."""
        if cells not in (self._header, self._units):
            self._is_over = True
            self._note(f"another table begins at line {line_number}: its launches are left out, "
                       "because its columns or units differ; give its file on its own")  # fmt: skip

    def _cells(self, line: str) -> list[str]:
        if line[0] == '"' and line[-1] == '"':
            cells = line[1:-1].split('","')
            if len(cells) == len(self._header) and line.count('"') == 2 * len(cells):
                return cells
        return next(csv.reader([line], strict=True), [])

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
            odd = [one for one in self._plain if number(cells[one]) is None]
            self._set_plain([one for one in self._plain if one not in set(odd)])
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

    def table(self) -> LaunchTable:
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
            tool="ncu",
            infos=self._infos,
            values=values,
            units=units,
            texts=texts,
            problems=[*self._problems, *unknown.problems()],
        )
