"""Trace files of every kind -> :class:`TraceRows`; what a file is, its content tells.

Readers are imported when a file needs them: a cached trace needs none.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.formats.events import TraceRows
from gemmetry.formats.mapping import let_go
from gemmetry.traces.cache import CACHE_SUFFIX, SMALLEST_CACHED_BYTES, cache_key, load, save
from gemmetry.traces.stages import stage

if TYPE_CHECKING:
    from gemmetry.formats.sniffing import Kind

_NAMES = re.compile(r"\.(?:json|csv|db)(?:\.(?:gz|zst))?\Z")
_OF_PYTORCH = re.compile(r"\.pt\.trace\.json(?:\.gz|\.zst)?\Z")
"""What PyTorch calls its traces, and nothing else is called."""

_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{", b"[\0", b"\0[")
_SUPPORTED = (
    "Supported: Kineto traces (JSON, also .gz and .zst), and rocprofv3's results.json, "
    "kernel_trace.csv and .db files."
)


def read_trace(
    path: Path, *, use_cache: bool = True, timings: dict[str, float] | None = None
) -> TraceRows:
    """The rows of one trace.

    Args:
        path: a trace file; of rocprofv3's CSV files the one of the kernels (the others beside it
            are read with it).
        use_cache: take the rows from the cache beside the trace where it is current, and keep
            them there where it is not.
        timings: gets the seconds of each stage added: ``cache``, ``read``, ``save``.

    Raises:
        RequestError: there is no such file, or it is no trace; the message names the file and,
            where the content is at fault, the byte. A trace that is damaged or cut short raises
            nothing: what could be read is there, and ``problems`` tell the rest.
        StorageError: a trace too large for memory needs a temporary file that cannot be written.
    """
    times = timings if timings is not None else {}
    key = None
    if use_cache:
        with stage(times, "cache"):
            key = _key(path)
            found = load(path, key) if key else None
        if found is not None:
            let_go(found)
            return found
    with stage(times, "read"):
        rows = _read(path)
    if key:
        with stage(times, "save"):
            save(path, key, rows)
    let_go(rows)
    return rows


def find_traces(paths: Iterable[Path]) -> list[Path]:
    """`paths` with each folder replaced by the traces below it, each once; within a folder in
    order of names, numbers in them by value (``rank2`` before ``rank10``).

    Of rocprofv3's CSV files of one process, the one of the kernels stands for all. A file that is
    named is kept whatever it is. So are, in a folder, a file or a folder that cannot be opened and
    a JSON file that is none: reading them tells why, and no rank is missing without a word.

    Raises:
        RequestError: a path does not exist, or a folder holds no trace.
    """
    found: dict[Path, None] = {}
    for path in paths:
        try:
            found.update(dict.fromkeys(_traces_at(path)))
        except OSError as error:
            raise RequestError(
                f"{path} cannot be looked at: {error.strerror or error}",
                hint="Give the path of a trace, or of a folder.",
            ) from error
    return list(found)


def _traces_at(path: Path) -> list[Path]:
    if path.is_dir():
        inside = sorted(_inside(path), key=_natural)
        if not inside:
            raise RequestError(f"no trace below {path}", hint=_SUPPORTED)
        return inside
    if not path.exists():
        raise RequestError(
            f"{path} does not exist", hint="Give the path of a trace, or of a folder."
        )
    # A pattern like rank0* that a shell filled in names caches too.
    return [] if path.name.endswith(CACHE_SUFFIX) else [path]


def _inside(folder: Path) -> Iterator[Path]:
    """The traces below `folder`, and the folders there that cannot be opened."""
    closed: list[OSError] = []
    for place, _, names in os.walk(folder, onerror=closed.append):
        yield from filter(_is_trace, (Path(place, name) for name in names))
    yield from (Path(error.filename) for error in closed if error.filename is not None)


def _is_trace(file: Path) -> bool:
    name = file.name
    if not _NAMES.search(name) or name.endswith(CACHE_SUFFIX) or name.startswith("."):
        return False
    from gemmetry.formats.sniffing import TRACES, Kind, kind_of

    try:
        if not file.is_file():
            # What a link that leads nowhere should lead to, nobody can tell.
            return file.is_symlink() and not file.exists()
        kind = kind_of(file)
    except (RequestError, OSError):
        return ".csv" not in name or _tells_kernels(name)
    if kind is Kind.ROCPROFV3_CSV:
        from gemmetry.formats.rocm.rocprofv3_csv import kernel_tables

        return file in kernel_tables(file)
    # A damaged one is not passed over, so that nobody misses a rank without being told.
    is_damaged = kind in (Kind.OTHER, Kind.CUT) and ".json" in name
    return kind in TRACES or is_damaged or _OF_PYTORCH.search(name) is not None


def _tells_kernels(name: str) -> bool:
    from gemmetry.formats.rocm.rocprofv3_tables import table_of

    found = table_of(name)
    return found is not None and found[1] in ("kernel_trace", "counter_collection")


def _natural(path: Path) -> list[tuple[int, str | int]]:
    parts = re.split(r"(\d+)", str(path))
    return [(1, int(part)) if part.isdecimal() else (0, part) for part in parts]


def _key(path: Path) -> str | None:
    try:
        if path.stat().st_size < SMALLEST_CACHED_BYTES:
            return None
    except OSError:
        return None
    if ".csv" not in path.name:
        return cache_key([path])
    from gemmetry.formats.rocm.rocprofv3_tables import siblings

    beside = siblings(path)
    return cache_key([beside[table] for table in sorted(beside)] if beside else [path])


def _read(path: Path) -> TraceRows:
    if path.is_dir():
        try:
            next(path.iterdir(), None)
        except OSError as error:
            raise RequestError(
                f"{path} cannot be opened: {error.strerror or error}",
                hint=f"Give yourself the permission to list it: chmod u+rx {path.name}",
            ) from error
        raise RequestError(f"{path} is a folder", hint="Give the trace files in it.")
    from gemmetry.formats.sniffing import kind_of

    kind = kind_of(path)
    rows = _read_as(path, kind)
    if rows is None:
        reason, hint = _reason(path, kind)
        raise RequestError(f"{path} is no trace: {reason}", hint=hint)
    from gemmetry.formats.plausible import plausible
    from gemmetry.traces.time_bases import time_base_problems

    rows = plausible(rows)
    found = time_base_problems(rows)
    return dataclasses.replace(rows, problems=(*rows.problems, *found)) if found else rows


def _reason(path: Path, kind: Kind) -> tuple[str, str]:
    """Why it is none, and what to do."""
    from gemmetry.formats.opening import SQLITE_MAGIC, open_decompressed
    from gemmetry.formats.sniffing import Kind

    if kind is Kind.CHAKRA:
        return (
            "it is a Chakra execution trace, which has no times of a GPU",
            "Give the *.pt.trace.json file that was recorded with it.",
        )
    if kind is Kind.WORKBOOK:
        return (
            "it is a workbook",
            "gemmetry trace summary, gemms and shapes read those of TraceLens; else give the "
            "trace that it was made from.",
        )
    if kind is Kind.ROCPROFV3_CSV:
        told = "neither it nor a file of the same process next to it has kernels with their times"
        return told, _SUPPORTED
    if kind is Kind.JSON:
        return 'it is a JSON document without "traceEvents"', _SUPPORTED
    with open_decompressed(path) as file:
        try:
            begin = file.read(16)
        except OSError as error:
            return f"byte 0: {error}", "Copy or record it again."
    if begin.startswith(SQLITE_MAGIC):
        return "it is a SQLite database that is damaged or has no tables of rocprofv3", _SUPPORTED
    if begin.startswith(_UTF16):
        return "it is text in UTF-16", "Convert it to UTF-8: iconv -f UTF-16 -t UTF-8 FILE."
    if kind is Kind.CUT:
        return "it is a JSON document that ends before any event of a trace", _SUPPORTED
    if not begin:
        return "it is empty", _SUPPORTED
    if begin.isascii() and all(c.isprintable() or c.isspace() for c in begin.decode()):
        return f"it begins with {begin.decode()!r}", _SUPPORTED
    return (
        f"it is no text and of no known kind; its first bytes are {begin[:8].hex(' ')}",
        _SUPPORTED,
    )


def _read_as(path: Path, kind: Kind) -> TraceRows | None:
    from gemmetry.formats.opening import open_decompressed
    from gemmetry.formats.sniffing import Kind

    if kind is Kind.ROCPD:
        from gemmetry.formats.rocm.rocpd import read_rocpd

        return read_rocpd(path)
    if kind is Kind.ROCPROFV3_CSV:
        from gemmetry.formats.rocm.rocprofv3_csv import read_rocprofv3_csv

        return read_rocprofv3_csv(path)
    if kind in (Kind.CHAKRA, Kind.WORKBOOK):
        return None
    with open_decompressed(path) as file:
        try:
            if kind is Kind.ROCPROFV3_JSON:
                from gemmetry.formats.rocm.rocprofv3_json import read_rocprofv3_json

                return read_rocprofv3_json(file)
            from gemmetry.formats.kineto import read_kineto

            rows = read_kineto(file)
            # Of an array that ends early, whole events are kept; with none there is no trace.
            return None if rows and kind is Kind.CUT and not rows.events else rows
        except OSError as error:
            raise StorageError(
                f"{path} is too large for memory, and a temporary file for it cannot be "
                f"written: {error}",
                hint="Free some disk, or set TMPDIR to a folder on another one.",
            ) from error
