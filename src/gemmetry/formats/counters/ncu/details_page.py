"""The details page of Nsight Compute as CSV, and what ``--metrics`` prints: a row per metric.

The details page has labels instead of ids, its numbers are rounded to two digits in a unit that
each row chooses, rows of metrics have fewer fields than the header, and rows of rules have the
identifier of the section where rows of metrics have its name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from gemmetry.formats.counters.cells import check_decimal_point, is_missing, number
from gemmetry.formats.counters.columns import Columns
from gemmetry.formats.counters.launches import (
    LaunchInfo,
    LaunchTable,
    RuleKind,
    RuleResult,
    SpeedupKind,
)
from gemmetry.formats.counters.ncu.launch_columns import LAUNCH_COLUMNS, launch_info
from gemmetry.formats.counters.units import UnknownUnits, base_unit

_LABELS = Path(__file__).with_name("labels.txt")
_ID = re.compile(r"[\w.:]*__[\w.:]+")
_KINDS: dict[str, RuleKind] = {"INF": "ok", "OK": "ok", "OPT": "optimization", "WRN": "warning",
                               "ERR": "error"}  # fmt: skip
_SPEEDUPS: dict[str, SpeedupKind] = {"local": "local", "global": "global"}
_MOST_PROBLEMS = 20
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


def read_details_page(
    header: Sequence[str],
    lines: Iterable[tuple[int, str]],
    metrics: Collection[str] | None,
) -> LaunchTable:
    """The launches of a table with a row per metric.

    A label that stands for no known metric is kept as ``Section/Label``.

    Args:
        header: the names of the columns.
        lines: what follows the header, with the number of each line.
        metrics: ids of those to read; None for all.

    Raises:
        RequestError: numbers have a decimal comma.
    """
    page = _DetailsPage(header)
    for line_number, line in lines:
        page.add(line_number, line)
    return page.table(metrics)


@dataclass(slots=True)
class _DetailedLaunch:
    cells: dict[str, str]
    """By column; and the cells of metrics by their ids."""
    values: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Id -> cell, unit."""
    rules: list[RuleResult] = field(default_factory=list)

    def info(self) -> LaunchInfo:
        def cell(name: str) -> str:
            return self.cells.get(name) or self.values.get(name, ("", ""))[0]

        return replace(launch_info(cell), rules=tuple(self.rules))


class _DetailsPage:
    def __init__(self, header: Sequence[str]) -> None:
        self._tables = 0
        self._begin(header)
        self._launches: dict[tuple[int, str, str, str], _DetailedLaunch] = {}
        self._problems: list[str] = []
        self._unknown = UnknownUnits()
        self._sections: set[str] = set()

    def _begin(self, header: Sequence[str]) -> None:
        """Begin a table with these columns."""
        self._tables += 1
        self._header = list(header)
        self._shortest = self._header.index("Metric Value") + 1

    def _note(self, problem: str) -> None:
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(problem)

    def add(self, line_number: int, line: str) -> None:
        """Add a line of the file."""
        line = line.rstrip("\r\n")
        if not line or line.startswith("=="):  # Nsight Compute's own messages
            return
        try:
            fields = next(csv.reader([line], strict=True), [])
        except csv.Error as error:
            self._note(f"line {line_number} is damaged or cut ({error}): left out")
            return
        if {"ID", "Metric Value"} <= set(fields):
            # Files that were appended to each other: its launches are others.
            self._begin(fields)
        elif not self._shortest <= len(fields) <= len(self._header):
            self._note(f"line {line_number} has {len(fields)} fields instead of "
                       f"{self._shortest} to {len(self._header)}: left out")  # fmt: skip
        else:
            self._add(dict(zip(self._header, fields, strict=False)))

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

    def table(self, metrics: Collection[str] | None) -> LaunchTable:
        """All launches that were added."""
        columns = Columns(len(self._launches), metrics)
        for row, launch in enumerate(self._launches.values()):
            for metric, (cell, unit) in launch.values.items():
                self._put(columns, row, metric, cell, unit)
        infos = [launch.info() for launch in self._launches.values()]
        problems = [*self._problems, *self._unknown.problems()]
        table = columns.table("ncu", infos, problems=problems)
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
    found = _labels().get((section, label))
    if found is not None:
        return found
    return label if _ID.fullmatch(label) or not section else f"{section}/{label}"


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
