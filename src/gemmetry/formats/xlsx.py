"""Reads the cells of xlsx workbooks of any origin, in memory that is bounded by their content and
not by the sizes that they declare.

Source: ECMA-376 part 1, 18.3 (worksheets), 18.4 (shared strings), 18.2 (workbook). Formulas are not
computed: the value stored with a formula is used. Styles are ignored, so dates are numbers.

TraceLens's xlsx reports -> neutral tables. Columns are found by name, since their order is not
stable.
"""

from __future__ import annotations

import io
import math
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeAlias
from xml.parsers import expat

from gemmetry.domain.errors import RequestError
from gemmetry.domain.opening import XLSX_MAGIC, open_decompressed

MOST_UNPACKED_BYTES = 1 << 30
"""Maximum size of each part that is read."""

MOST_CELLS = 20_000_000
"""Maximum number of cells of all sheets: many sheets can name the same part. With texts, so many
cells take about 2 GB."""

Cell: TypeAlias = int | float | str | bool | None
Row: TypeAlias = dict[int, Cell]
"""Column, from 0 -> its value."""

_LETTERS = re.compile(r"[A-Z]{1,3}\Z")
_WHOLE = re.compile(r"-?\d{1,18}\Z")
_MOST_COLUMNS = 16_384


class WorkbookError(Exception):
    """The workbook cannot be read; the message states why."""


class Workbook:
    """One workbook, opened; sheets are read when they are requested.

    Raises:
        WorkbookError: not a workbook, or too large.
    """

    def __init__(self, content: bytes) -> None:
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(content))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise WorkbookError(f"it is no whole zip archive ({error})") from error
        self._parts = set(self._archive.namelist())
        self._paths = self._sheet_paths()
        self._cells = 0

    @property
    def names(self) -> list[str]:
        """The names of the sheets, in their order."""
        return list(self._paths)

    def rows(self, name: str) -> list[Row]:
        """The rows of a sheet that have cells, in the order of the file.

        Raises:
            WorkbookError: the sheet cannot be read.
        """
        cells = _Cells(self._texts, name, self._cells)
        self._parse(self._paths[name], cells.begin, cells.end, cells.text)
        self._cells = cells.count
        return cells.rows

    def _sheet_paths(self) -> dict[str, str]:
        targets: dict[str, str] = {}
        sheets: dict[str, str] = {}

        def relation(tag: str, attributes: dict[str, str]) -> None:
            if _local(tag) == "Relationship":
                target = attributes.get("Target", "")
                targets[attributes.get("Id", "")] = posixpath.normpath(
                    target[1:] if target.startswith("/") else f"xl/{target}"
                )

        def sheet(tag: str, attributes: dict[str, str]) -> None:
            if _local(tag) == "sheet":
                path = targets.get({_local(k): v for k, v in attributes.items()}.get("id", ""))
                if path in self._parts:
                    sheets.setdefault(attributes.get("name", ""), path)

        self._parse("xl/_rels/workbook.xml.rels", relation)
        self._parse("xl/workbook.xml", sheet)
        return sheets

    @cached_property
    def _texts(self) -> list[str]:
        part = "xl/sharedStrings.xml"
        texts: list[str] = []
        pieces: list[str] = []
        # Phonetic readings of East Asian texts are stored next to them.
        inside = {"t": 0, "rPh": 0}

        def begin(tag: str, _attributes: dict[str, str]) -> None:
            tag = _local(tag)
            if tag in inside:
                inside[tag] += 1
            elif tag == "si":
                pieces.clear()

        def end(tag: str) -> None:
            tag = _local(tag)
            if tag in inside:
                inside[tag] -= 1
            elif tag == "si":
                texts.append(_unescaped("".join(pieces)))

        def text(data: str) -> None:
            if inside["t"] and not inside["rPh"]:
                pieces.append(data)

        if part in self._parts:
            self._parse(part, begin, end, text)
        return texts

    def _parse(
        self,
        part: str,
        begin: Callable[[str, dict[str, str]], None],
        end: Callable[[str], None] = lambda tag: None,
        text: Callable[[str], None] = lambda data: None,
    ) -> None:
        """Walk through the XML of a part; names come with their namespaces (:func:`_local`)."""
        parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse_declarations
        parser.StartElementHandler = begin
        parser.EndElementHandler = end
        parser.CharacterDataHandler = text
        try:
            if self._archive.getinfo(part).file_size > MOST_UNPACKED_BYTES:
                raise WorkbookError(f"{part} has more than {MOST_UNPACKED_BYTES >> 20} MiB")
            # A part is never read beyond the size that the archive declares.
            with self._archive.open(part) as file:
                parser.ParseFile(file)
        except KeyError as error:
            raise WorkbookError(f"it has no {part}") from error
        except expat.ExpatError as error:
            place = f"line {error.lineno}, column {error.offset}"
            raise WorkbookError(f"{part}, {place}: {expat.ErrorString(error.code)}") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError,
                OSError, ValueError) as error:  # fmt: skip
            raise WorkbookError(f"{part}: {error}") from error


def _refuse_declarations(*_arguments: object) -> None:
    """No program writes declarations into workbooks, and entities can expand to gigabytes."""
    raise WorkbookError("it declares a document type")


class _Cells:
    """Collects the cells of a sheet."""

    def __init__(self, texts: list[str], sheet: str, count: int) -> None:
        self.rows: list[Row] = []
        self.count = count
        self._texts = texts
        self._sheet = sheet
        self._row: Row = {}
        self._column = -1
        self._kind = ""
        self._pieces: list[str] = []
        self._is_value = False

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        """Handles the start of an element."""
        tag = _local(tag)
        if tag in ("v", "t"):
            self._is_value = True
        elif tag == "c":
            column = _column(attributes.get("r", "").rstrip("0123456789"))
            self._column = self._column + 1 if column is None else column
            self._kind = attributes.get("t", "n")
            self._pieces.clear()
        elif tag == "row":
            self._row, self._column = {}, -1

    def end(self, tag: str) -> None:
        """Handles the end of an element."""
        tag = _local(tag)
        if tag in ("v", "t"):
            self._is_value = False
        elif tag == "c":
            self.count += 1
            if self.count > MOST_CELLS:
                raise WorkbookError(
                    f"with sheet {self._sheet!r} it has more than {MOST_CELLS:,} cells"
                )
            value = self._cell("".join(self._pieces))
            if value is not None and self._column < _MOST_COLUMNS:
                self._row[self._column] = value
        elif tag == "row" and self._column >= 0:
            self.rows.append(self._row)

    def text(self, data: str) -> None:
        """Handles text between elements."""
        if self._is_value:
            self._pieces.append(data)

    def _cell(self, text: str) -> Cell:
        """The value of the cell; None where it is empty, an error or not a number."""
        if self._kind == "n":
            return _number(text)
        if self._kind == "s":
            known = _WHOLE.match(text) and 0 <= int(text) < len(self._texts)
            return self._texts[int(text)] or None if known else None
        if self._kind in ("str", "inlineStr"):
            return _unescaped(text) or None
        return text == "1" if self._kind == "b" else None


def _number(text: str) -> int | float | None:
    if _WHOLE.match(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return None
    is_whole = number.is_integer() and abs(number) < 2**53
    return int(number) if is_whole else number if math.isfinite(number) else None


@lru_cache(256)
def _local(name: str) -> str:
    """The name of an element or attribute without its namespace."""
    return name.rpartition("}")[2]


@lru_cache(_MOST_COLUMNS)
def _column(letters: str) -> int | None:
    """The number of a column, from 0; None where the letters do not name one."""
    if not _LETTERS.match(letters):
        return None
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def _unescaped(text: str) -> str:
    """The text with escapes such as ``_x0041_``, for characters that XML cannot contain,
    replaced."""
    if "_x" not in text:
        return text
    return re.sub("_x([0-9a-fA-F]{4})_", lambda match: chr(int(match[1], 16)), text)


def by_column(rows: Iterable[Row]) -> dict[str, list[Cell]]:
    """Columns by the names in the first of `rows`; the first of two columns with the same name."""
    rows = iter(rows)
    places: dict[str, int] = {}
    for place, name in sorted(next(rows, {}).items()):
        places.setdefault(str(name), place)
    below = list(rows)
    return {name: [row.get(place) for row in below] for name, place in places.items()}


SHEETS = (
    "gpu_timeline", "ops_summary_by_category", "ops_summary", "ops_unique_args",
    "unified_perf_summary", "GEMM", "SDPA_fwd", "SDPA_bwd", "CONV_fwd", "CONV_bwd",
    "BinaryElementwise", "UnaryElementwise", "Normalization", "Reduce_fwd", "Reduce_bwd",
    "kernel_summary", "short_kernel_histogram", "short_kernels_summary", "coll_analysis",
    "nccl_summary_implicit_sync", "nccl_summary_long", "nccl_long", "nccl_implicit_sync",
    "straggler_summary",
)  # fmt: skip
"""Sheets of its reports on one rank and on all ranks; a report has some of them, and may have
others."""

MOST_BYTES = 256 << 20
"""Larger workbooks are rejected, as workbooks are held in memory."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet: its columns by name, in the order of the file."""

    columns: dict[str, list[Cell]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def rows(self) -> list[dict[str, Cell]]:
        """One dictionary per row."""
        names = list(self.columns)
        return [
            dict(zip(names, row, strict=True)) for row in zip(*self.columns.values(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class TraceLensReport:
    """One workbook."""

    path: Path
    sheets: dict[str, Sheet]

    def sheet(self, name: str, needed: tuple[str, ...] = ()) -> Sheet:
        """A sheet with at least the columns `needed`.

        Raises:
            RequestError: the workbook has no such sheet, or the sheet lacks one of the columns.
        """
        if name not in self.sheets:
            raise RequestError(
                f"{self.path} has no sheet {name!r}",
                hint=f"It has: {', '.join(self.sheets) or 'none'}.",
            )
        found = self.sheets[name]
        missing = [column for column in needed if column not in found.columns]
        if missing:
            raise RequestError(
                f"sheet {name!r} of {self.path} has no column {', '.join(map(repr, missing))}",
                hint=f"It has: {', '.join(found.columns)}.",
            )
        return found


def read_tracelens_report(path: Path, only: Collection[str] = SHEETS) -> TraceLensReport:
    """The known sheets of a TraceLens report, or `only` some of them; other sheets are not read.

    Raises:
        RequestError: the file cannot be read, is not an xlsx workbook, or has none of the sheets.
    """
    hint = "Give a report that TraceLens wrote."
    try:
        with open_decompressed(path) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read: {error.strerror or error}", hint=hint
        ) from error
    if not content.startswith(XLSX_MAGIC):
        raise RequestError(f"{path} is not an xlsx workbook", hint=hint)
    if len(content) > MOST_BYTES:
        raise RequestError(f"{path} is larger than {MOST_BYTES >> 20} MiB", hint=hint)
    try:
        workbook = Workbook(content)
        names = [name for name in workbook.names if name in only]
        sheets = {name: Sheet(by_column(workbook.rows(name))) for name in names}
    except WorkbookError as error:
        raise RequestError(
            f"{path} cannot be read as a workbook: {error}",
            hint="Export it again, or give another workbook.",
        ) from error
    if not sheets:
        raise RequestError(
            f"{path} has none of the sheets that TraceLens writes",
            hint=f"It has: {', '.join(workbook.names[:20]) or 'none'}.",
        )
    return TraceLensReport(path, sheets)
