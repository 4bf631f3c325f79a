"""Divides what was collected of one process by the NVTX ranges around its launches."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from gemmetry.counters.collecting.collector import Collected
from gemmetry.counters.collecting.request import CollectFiles
from gemmetry.domain.errors import StorageError
from gemmetry.formats.files import remove

_RANGE_COLUMNS = ("Push/Pop_Range", "Start/Stop_Range")
"""In the names of the raw page's columns that list the ranges of a launch."""


def divide(collected: Collected, ranges: Mapping[str, Path]) -> dict[str, Collected]:
    """Give each range a folder with its launches: the raw page and the description of its own, and
    the report and the logs that all have in common.

    Args:
        ranges: names of NVTX ranges, and their folders, which are created and replaced.

    Returns:
        The ranges that have launches, and what their folders have.

    Raises:
        StorageError: a folder cannot be written.
    """
    pages = _pages(collected.files.table, list(ranges))
    found = {}
    for name, (page, launches) in pages.items():
        folder = ranges[name]
        try:
            found[name] = _part(collected, name, folder, page, launches)
        except OSError as error:
            raise StorageError(
                f"{folder} cannot be written: {error.strerror or error}",
                hint="Free some disk space.",
            ) from error
    return found


def _pages(table: Path, names: list[str]) -> dict[str, tuple[str, int]]:
    """Range -> the raw page of its launches, and their number; only ranges that have some."""
    if not table.is_file():
        return {}
    with table.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = [row for row in csv.reader(file) if row and not row[0].startswith("==")]
    start = next((place for place, row in enumerate(rows) if "Kernel Name" in row), len(rows))
    if start == len(rows):
        return {}
    header, body = rows[start], rows[start + 1 :]
    columns = [n for n, name in enumerate(header) if any(one in name for one in _RANGE_COLUMNS)]
    units = [row for row in body[:1] if not row[0]]
    found = {}
    for name in names:
        own = [row for row in body[len(units) :] if len(row) == len(header)
               and any(f":{name}:" in row[column] for column in columns)]  # fmt: skip
        if own:
            text = io.StringIO()
            csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
                [header, *units, *own]
            )
            found[name] = text.getvalue(), len(own)
    return found


def _part(collected: Collected, name: str, folder: Path, page: str, launches: int) -> Collected:
    whole, files = collected.files, CollectFiles.at(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for source, target in zip(whole.all(), files.all(), strict=True):
        remove(target, inside=folder)
        if source.exists() and source not in (whole.table, whole.description):
            _link(source, target)
    files.table.write_text(page, encoding="utf-8")
    note = f"The report has the launches of other dispatches, too; these are in the range {name}."
    description = json.loads(whole.description.read_text(encoding="utf-8"))
    description |= {"launches": launches, "notes": [*description["notes"], note]}
    files.description.write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    notes = (*collected.notes, note)
    return Collected(files=files, launches=launches, passes=collected.passes, notes=notes)


def _link(source: Path, target: Path) -> None:
    """The same file once more, where the file system can."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
