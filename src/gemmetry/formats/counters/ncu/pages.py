"""CSV files of Nsight Compute: finds the table among other output of the application."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.formats.counters.launches import LaunchTable
from gemmetry.formats.counters.ncu.details_page import read_details_page
from gemmetry.formats.counters.ncu.raw_page import read_raw_page
from gemmetry.formats.opening import LONGEST_FIELD, open_text

_HEADER = re.compile(r'(?=.*"?\bKernel Name\b)"?ID"?,')
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
        read = read_details_page if set(header) >= _LONG else read_raw_page
        try:
            table = read(header, _rows(lines), metrics)
        except RequestError as error:
            raise RequestError(f"{path}: {error.message}", hint=error.hint) from error
    table.source = path
    table.problems += problems
    return table


def _numbered(text: Iterator[str], problems: list[str]) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for line in text:
            number += 1
            yield number, line
    except OSError as error:
        problems.append(f"the file cannot be read beyond line {number}: {error}")


def _rows(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines of which each has a whole row: a name in quotes may have line breaks."""
    start, parts, quotes, length = 0, list[str](), 0, 0
    for number, line in lines:
        if parts and (_ROW.match(line) or length > LONGEST_FIELD):  # It was cut.
            yield start, "".join(parts)
            parts = []
        if not parts:
            start, quotes, length = number, 0, 0
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
