"""Writes what a command found; the suffix of a file picks its format.

An old file stays whole until the new one is complete.

Cases as JUnit XML, for continuous integration.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.files import completed, sync, write_whole
from gemmetry.domain.rows import SCHEMA_VERSION, Rows
from gemmetry.domain.rows import table as table_of
from gemmetry.domain.tables import Table
from gemmetry.results.json_text import brief, json_file
from gemmetry.results.tables import (
    append_csv,
    check_installed,
    csv_text,
    frame,
    html_page,
    markdown_text,
    parquet,
    workbook,
)

if TYPE_CHECKING:
    import polars

import re
from types import MappingProxyType
from xml.etree import ElementTree

from gemmetry.results.texts import printable

_HINTS = {
    errno.ENOSPC: "The disk is full; free some space and write it again.",
    errno.EFBIG: "Files may not be that large here (ulimit -f); choose another location.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EDQUOT: "Your disk quota is used up; free some space and write it again.",
    errno.EACCES: "Choose a folder that you may write to.",
    errno.EPERM: "Choose a folder that you may write to.",
    errno.EROFS: "The file system is read-only; choose another folder.",
}


@dataclass(frozen=True, slots=True)
class _Together:
    """Files that are written and have no name yet."""

    stack: ExitStack = field(default_factory=ExitStack)
    written: dict[Path, Path] = field(default_factory=dict)
    """File -> where its content is."""

    def write(self, target: Path, content: bytes) -> None:
        if target not in self.written:
            self.written[target] = self.stack.enter_context(completed(target))
        self.written[target].write_bytes(content)
        sync(self.written[target])  # A full disk shows by then, and a rename takes no space.


_TOGETHER: ContextVar[_Together | None] = ContextVar("together", default=None)


@contextmanager
def written_together() -> Iterator[None]:
    """Files that :func:`write_atomically` writes within the block belong together: they get their
    names at its end, or, after an error, none of them does and older ones are unchanged.

    Raises:
        StorageError: as :func:`write_atomically`; the message adds that nothing was replaced.
    """
    if _TOGETHER.get() is not None:
        yield
        return
    together = _Together()
    token = _TOGETHER.set(together)
    try:
        with together.stack:
            yield
    except StorageError as error:
        unchanged = "None of the files that belong together was replaced."
        raise StorageError(error.message, hint=f"{error.hint} {unchanged}") from error
    finally:
        _TOGETHER.reset(token)


def files_in(folder: Path, suffix: str) -> dict[str, Path]:
    """The files with a suffix in `folder` by name, and where the content of each is: also of those
    that are being written together."""
    found = {path.name: path for path in sorted(folder.glob(f"[!.]*{suffix}"))}
    together = _TOGETHER.get()
    for target, temporary in together.written.items() if together is not None else ():
        if target.parent == folder.resolve() and target.suffix == suffix:
            found[target.name] = temporary
    return dict(sorted(found.items()))


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path` through a temporary file next to it and a rename.

    Missing folders are created. A path that exists and is not a regular file (a pipe,
    ``/dev/stdout``) is written to directly.

    Raises:
        RequestError: `path` is a folder.
        StorageError: disk full, no permission ...; an older file at `path` is unchanged.
    """
    try:
        _refuse_folder(path)
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        # A symbolic link keeps its target.
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        together = _TOGETHER.get()
        if together is not None:
            together.write(target, content)
        else:
            write_whole(target, content, durable=True)
    except OSError as error:
        raise not_written(path, error) from error


def not_written(path: Path, error: OSError) -> StorageError:
    """The error that reports `error`, with the next step."""
    return StorageError(
        f"cannot write {path}: {error.strerror or error}",
        hint=_HINTS.get(error.errno or 0, "Choose another location."),
    )


def check_writable(path: Path) -> None:
    """Check that :func:`write_atomically` could write `path`, and leave nothing behind.

    Raises:
        RequestError: `path` is a folder. StorageError: no file can be created there.
    """
    try:
        _refuse_folder(path)
        if path.exists() and not path.is_file():
            return
        folder = path.resolve().parent
        while not folder.exists():
            folder = folder.parent
        # Only trying shows it: permissions do not reveal /proc or a read-only mount.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise not_written(path, error) from error


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise RequestError(f"{path} is a folder", hint="Give the name of a file.")


def tables_document(tables: Sequence[Table]) -> dict[str, Any]:
    """``schema_version``, and each table under its name as a list of objects."""
    return {"schema_version": SCHEMA_VERSION} | {one.name: one.records() for one in tables}


def _only(tables: Sequence[Table]) -> Table:
    if len(tables) != 1:
        raise RequestError(
            f"a CSV or Parquet file holds one table, not {len(tables)}",
            hint="Give a folder, which gets one CSV file per table, or another suffix.",
        )
    return tables[0]


class Format(NamedTuple):
    """A format of files."""

    content: Callable[[Sequence[Table]], bytes]
    library: str = ""
    """Required module, of the extra ``analysis``."""


CSV, JSON, PARQUET, XLSX = ".csv", ".json", ".parquet", ".xlsx"
MARKDOWN, HTML, JUNIT = ".md", ".html", ".xml"
IMAGES = (".png", ".svg")
"""Suffixes of pictures, which matplotlib draws."""

FORMATS = {
    CSV: Format(lambda tables: csv_text(_only(tables)).encode()),
    JSON: Format(lambda tables: json_file(tables_document(tables))),
    PARQUET: Format(lambda tables: parquet(_only(tables)), "polars"),
    XLSX: Format(workbook, "xlsxwriter"),
    MARKDOWN: Format(lambda tables: markdown_text(tables).encode()),
    HTML: Format(lambda tables: html_page(tables).encode()),
}
"""Suffix -> format. A new one needs an entry here and its writer in ``tables.py``; whatever writes
tables can then write it."""

_ALIASES = {".htm": HTML}


def every_form() -> tuple[str, ...]:
    """Suffixes of all forms of dispatch results."""
    return (*FORMATS, JUNIT, *IMAGES)


def with_columns() -> tuple[str, ...]:
    """Suffixes of the formats whose columns can be chosen."""
    return tuple(suffix for suffix in FORMATS if suffix not in (JSON, HTML))


def check_suffix(path: Path, suffixes: Iterable[str] = FORMATS) -> str:
    """The suffix of `path` in lower case.

    Raises:
        RequestError: the suffix is none of `suffixes`.
    """
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise RequestError(
            f"unknown format of {path}: unknown suffix {path.suffix!r}",
            hint=f"Give a name that ends in one of {', '.join(suffixes)}.",
        )
    return suffix


def check_library(suffix: str, *, draws: bool = False) -> None:
    """Check that the library that the format `suffix` needs is installed; `draws`: pages and
    pictures have plots.

    Raises:
        RequestError: the library is not installed.
    """
    if suffix in FORMATS and FORMATS[suffix].library:
        check_installed(FORMATS[suffix].library, extra="analysis")
    if draws and _ALIASES.get(suffix, suffix) == HTML:
        check_installed("plotly", extra="plot")
    elif draws and suffix in IMAGES:
        check_installed("matplotlib", extra="plot")


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder that exists, or a name without a suffix."""
    try:
        return path.is_dir() or not path.suffix
    except OSError:
        # Writing there will report the reason.
        return not path.suffix


@written_together()
def write_tables(tables: Sequence[Table], path: Path) -> None:
    """Write the tables to `path`, whole or not at all, in the format of its suffix. A workbook
    gets a sheet for each table, and a folder (see :func:`is_folder`) a CSV file for each.

    Raises:
        RequestError: unknown suffix, a library is missing, or the format holds one table and
            there are several.
        StorageError: not writable.
    """
    if is_folder(path):
        for table in tables:
            write_atomically(path / f"{table.name}.csv", csv_text(table).encode())
        return
    write_atomically(path, FORMATS[check_suffix(path)].content(tables))


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a command: rows under their names, further facts, and its own file formats."""

    kind: str = ""
    """Name of the result; its tables are called ``<kind>_<name of the rows>``."""
    rows: Mapping[str, Rows | Callable[[], Table]] = field(default_factory=dict)
    """Rows of a declared kind, or what makes a table."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the document."""
    forms: Mapping[str, Callable[[], str | bytes]] = field(default_factory=dict)
    """Suffix -> the whole content, which a call makes: a page, a JUnit form, a picture, a document
    that is more than rows."""
    main: str = ""
    """The rows that a format of one table holds, where there are several."""
    whole: Callable[[], dict[str, Any]] | None = None
    """Makes its document, where that is more than rows."""
    short: Callable[[], dict[str, Any]] | None = None
    """Makes the document of what matters most, lists beginning with it; None: the document does."""

    def document(self) -> dict[str, Any]:
        """The content of its JSON file: the notes, and each list of rows under its name."""
        if self.whole is not None:
            return self.whole()
        records = {
            name: [row.record() for row in found.rows] if isinstance(found, Rows)
            else found().records() for name, found in self.rows.items()
        }  # fmt: skip
        return {"schema_version": SCHEMA_VERSION, **self.notes, **records}

    def brief(self) -> dict[str, Any]:
        """Most important facts, in at most :data:`~gemmetry.results.json_text.BRIEF_BYTES` of
        JSON."""
        return brief(self.document() if self.short is None else self.short())

    def table(self, name: str) -> Table:
        """The rows called `name` as a table."""
        found = self.rows[name]
        if not isinstance(found, Rows):
            return found()
        return table_of(f"{self.kind}_{name}" if self.kind else name, found.kind, found.rows)

    def frame(self, name: str) -> polars.DataFrame:
        """The rows called `name` as a data frame.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
        """
        return frame(self.table(name))

    def write(self, path: str | PathLike[str]) -> None:
        """Write the result to `path`; see :func:`emit`."""
        emit(self, Path(path))


def of_table(table: Table) -> Result:
    """The table alone as a result."""
    return Result(rows={table.name: lambda: table})


def emit(result: Result, path: Path, *, append: bool = False) -> None:
    """Write a result to `path`, whole or not at all, in the format of its suffix: one of its own
    forms, its document (.json), or its tables (see :func:`write_tables`).

    Args:
        append: add the rows to a CSV file, which has to have the same columns.

    Raises:
        RequestError: unknown suffix, a library is missing, the format holds one table and there are
            several, or a file to append to is not CSV or has other columns.
        StorageError: the file cannot be written; an older one is unchanged.
    """
    if is_folder(path):
        write_tables([result.table(name) for name in result.rows], path)
        return
    suffix = _ALIASES.get(path.suffix.lower(), path.suffix.lower())
    own = result.forms.get(suffix)
    if append and (suffix != CSV or own is not None):
        raise RequestError(f"cannot append to {path}", hint="Only csv files can be appended to.")
    if own is not None:
        content = own()
        write_atomically(path, content.encode() if isinstance(content, str) else content)
        return
    check_suffix(path, dict.fromkeys((*FORMATS, *result.forms)))
    if suffix == JSON:
        write_atomically(path, json_file(result.document()))
        return
    names = [result.main] if result.main and suffix in (CSV, PARQUET) else list(result.rows)
    tables = [result.table(name) for name in names]
    if append:
        write_atomically(path, append_csv(_only(tables), path).encode())
    else:
        write_tables(tables, path)


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 (section 2.2) cannot represent."""

_COUNTERS = {"failure": "failures", "error": "errors", "skipped": "skipped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A test case; it passed where `kind` is empty."""

    group: str
    name: str
    kind: str = ""
    """``failure``, ``error`` or ``skipped``."""
    message: str = ""
    type: str = ""
    text: str = ""
    seconds: float | None = None
    output: str = ""


def junit(
    title: str,
    suites: Sequence[tuple[str, Sequence[Case]]],
    properties: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """The document of the suites, each under its name; the first begins with the `properties`."""
    root = ElementTree.Element("testsuites", name=_text(title))
    for name, cases in suites:
        suite = ElementTree.SubElement(root, "testsuite", name=_text(name))
        for case in cases:
            _add(suite, case)
        _count(suite, cases)
        if any(case.seconds is not None for case in cases):
            suite.set("time", f"{sum(case.seconds or 0.0 for case in cases):.9f}")
    _count(root, [case for _, cases in suites for case in cases])
    if properties:
        found = ElementTree.Element("properties")
        for name, value in properties.items():
            ElementTree.SubElement(found, "property", name=name, value=_text(value))
        root[0].insert(0, found)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _add(suite: ElementTree.Element, case: Case) -> None:
    element = ElementTree.SubElement(
        suite, "testcase", classname=_text(case.group), name=_text(case.name)
    )
    if case.seconds is not None:
        element.set("time", f"{case.seconds:.9f}")
    if case.output:
        ElementTree.SubElement(element, "system-out").text = _text(case.output)
    if case.kind:
        found = ElementTree.SubElement(element, case.kind, message=_text(case.message))
        if case.type:
            found.set("type", case.type)
        found.text = _text(case.text)


def _count(element: ElementTree.Element, cases: Sequence[Case]) -> None:
    element.set("tests", str(len(cases)))
    for kind, counter in _COUNTERS.items():
        element.set(counter, str(sum(case.kind == kind for case in cases)))


def _text(text: str) -> str:
    """`text` without the characters that XML cannot hold."""
    return printable(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))
