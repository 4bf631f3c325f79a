"""Reads the CSV files of every version of rocprofv3 as columns by name.

Columns come and go between versions (``Stream_Id``, ``Accum_VGPR_Count``, ``Kernel_Id``, times in
counter files), and agents are written as ``4``, ``Agent 4`` or ``GPU 3``: nothing here depends on a
column's position.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gemmetry.domain.units import counted, noun_for
from gemmetry.formats.events import MISSING, ProblemKind, TraceProblem
from gemmetry.formats.opening import open_text

TABLES = (
    "kernel_trace", "counter_collection", "kernel_stats", "agent_info", "memory_copy_trace",
    "hip_api_trace", "hsa_api_trace", "marker_api_trace", "rccl_api_trace", "hip_stats",
    "hsa_stats", "hip_api_stats", "hsa_api_stats", "memory_copy_stats", "domain_stats",
    "marker_api_stats", "rccl_api_stats", "memory_allocation_trace", "scratch_memory_trace",
)  # fmt: skip

ROWS_A_BLOCK = 50_000

_MOST_PROBLEMS = 100
_FILE = re.compile(rf"(?P<prefix>.*?)_?(?P<table>{'|'.join(TABLES)})\.csv(?P<packed>\.gz|\.zst)?\Z")


@dataclass(slots=True)
class RowBlock:
    """Some rows of a table."""

    columns: dict[str, list[str]]
    first_line: int
    problems: list[TraceProblem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def texts(self, name: str) -> list[str]:
        """A column; empty texts where the file has no column of that name."""
        return self.columns.get(name) or [""] * len(self)

    def integers(self, name: str) -> list[int]:
        """A column of integers; ``MISSING`` where a field is not one."""
        return [_integer(text) for text in self.texts(name)]


def table_of(name: str) -> tuple[str, str] | None:
    """(prefix, table) of a file name of rocprofv3, such as ``1234_kernel_trace.csv``; None for
    other names."""
    match = _FILE.match(name)
    return (match["prefix"], match["table"]) if match else None


def siblings(path: Path) -> dict[str, Path]:
    """The files of the same process in the folder of `path`, including `path`, by table."""
    own = table_of(path.name)
    if own is None:
        return {}
    found: dict[str, Path] = {}
    # A folder whose files may be opened but not listed counts as having no others.
    with contextlib.suppress(OSError):
        for file in sorted(path.parent.iterdir()):
            described = table_of(file.name)
            if described is not None and described[0] == own[0] and file.is_file():
                found.setdefault(described[1], file)
    return found | {own[1]: path}


def columns(path: Path) -> set[str]:
    """Names of the columns of a table that has rows.

    Raises:
        RequestError: the file cannot be opened.
    """
    return set(next((block.columns for block in blocks(path)), {}))


def blocks(path: Path) -> Iterator[RowBlock]:
    """The rows of a CSV file, ``ROWS_A_BLOCK`` at a time; rows with too few or too many fields are
    left out and noted.

    Raises:
        RequestError: the file cannot be opened.
    """
    with open_text(path) as text:
        yield from _blocks(text)


def chosen_rows(block: RowBlock, rows: list[int]) -> RowBlock:
    """The rows of `block` with these indices, in that order."""
    if len(rows) == len(block):
        return block
    columns = {name: [column[i] for i in rows] for name, column in block.columns.items()}
    return RowBlock(columns, block.first_line)


def _blocks(text: Iterable[str]) -> Iterator[RowBlock]:
    reader = csv.reader(text)
    problems: list[TraceProblem] = []
    names: list[str] | None = None
    rows: list[list[str]] = []
    first = 2
    lost = 0
    while True:
        try:
            row = next(reader)
        except StopIteration:
            break
        except (csv.Error, OSError) as error:
            _note(problems, reader.line_num, f"cannot be read any further: {error}")
            break
        if names is None:
            names = [name.strip() for name in row]
        elif row == names:
            what = "a second table begins here: not read; give each process's files their own names"
            place = f"line {reader.line_num}"
            problems.append(TraceProblem(place, what, ProblemKind.SECOND_DOCUMENT))
            break
        elif len(row) == len(names):
            rows.append(row)
        elif row:
            lost += 1
            described = f"has {counted(len(row), 'field')} instead of {len(names)}: left out"
            _note(problems, reader.line_num, described)
        if names is not None and len(rows) == ROWS_A_BLOCK:
            yield _block(names, rows, first, problems)
            rows, problems, first = [], [], reader.line_num + 1
    if lost:
        what = f"{counted(lost, 'row')} cannot be read and {noun_for(lost, 'is', 'are')} lost"
        problems.insert(0, TraceProblem("file", what, ProblemKind.LOST_EVENTS, lost))
    if names is not None and (rows or problems):
        yield _block(names, rows, first, problems)


def _note(problems: list[TraceProblem], line: int, what: str) -> None:
    if len(problems) < _MOST_PROBLEMS:
        problems.append(TraceProblem(f"line {line}", what))


def _block(
    names: Sequence[str], rows: list[list[str]], first: int, problems: list[TraceProblem]
) -> RowBlock:
    columns = zip(*rows, strict=True) if rows else [() for _ in names]
    return RowBlock(
        {name: list(column) for name, column in zip(names, columns, strict=True)}, first, problems
    )


def agent_number(text: str) -> int:
    """The number in ``4``, ``Agent 4`` or ``GPU 3``."""
    match = re.search(r"(\d{1,9})\s*\Z", text)
    return int(match[1]) if match else MISSING


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return MISSING
