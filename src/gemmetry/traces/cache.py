"""Caches the rows of a trace next to it, so that reading it again takes milliseconds.

A cache file holds the columns in their memory layout and everything else as msgpack; it is mapped,
not read, so that a table loads only the columns that it needs. It is used only if it was created
from the same bytes by the same version of the reader and its checksum is correct; otherwise it is
recreated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np

from gemmetry.domain.files import completed, remove, user_cache
from gemmetry.formats.events import (
    MISSING,
    AnnotationRows,
    CallRows,
    GpuRows,
    OperatorRows,
    TraceRows,
    concatenate,
    plausible,
)

READER_VERSION = 6
"""Incremented whenever a reader returns different rows for the same file."""

CACHE_SUFFIX = ".gemmetry-cache"

SMALLEST_CACHED_BYTES = 128 << 10
"""Smaller files (compressed size) are not cached: reading them takes about 20 ms, as long as
opening a cache."""

_MAGIC = b"GEMMETRYTRACE\x00\x01\n"
_ALIGNMENT = 64
_HASHED_BYTES = 64 << 10
_LEDGER = "beside.txt"
_TABLES: dict[str, type[Any]] = {
    "gpu": GpuRows,
    "calls": CallRows,
    "operators": OperatorRows,
    "annotations": AnnotationRows,
}


class _Column(msgspec.Struct, frozen=True, array_like=True):
    table: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


_OF_ROWS = {name: kind for name, kind in get_type_hints(TraceRows).items() if name not in _TABLES}
"""What a cache holds of :class:`TraceRows` apart from the columns of its tables."""

_Head = msgspec.defstruct(
    "_Head",
    [("key", str), ("columns", tuple[_Column, ...]), ("checksum", int), *_OF_ROWS.items()],
    frozen=True,
)


def cache_key(files: Sequence[Path]) -> str | None:
    """The key of a cache of `files`: their sizes, times, first and last 64 KiB, and the version of
    the readers. None if they cannot be read."""
    parts = [f"{READER_VERSION}"]
    for file in files:
        try:
            with file.open("rb") as opened:
                status = os.fstat(opened.fileno())
                ends = zlib.crc32(opened.read(_HASHED_BYTES))
                opened.seek(max(0, status.st_size - _HASHED_BYTES))
                ends = zlib.crc32(opened.read(_HASHED_BYTES), ends)
        except OSError:
            return None
        parts.append(f"{os.fsencode(file.name)!r} {status.st_size} {status.st_mtime_ns} {ends:08x}")
    return "|".join(parts)


def load(path: Path, key: str) -> TraceRows | None:
    """The cached rows of the trace `path`; None where there are none for this `key`."""
    for place_of in (_place_next_to_trace, _place_of_user):
        place = place_of(path)
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError, TypeError):
            rows = _load(place, key)
            if rows is not None:
                return rows
    return None


def save(path: Path, key: str, rows: TraceRows) -> Path | None:
    """Store `rows` next to the trace `path`, else in the user's cache folder.

    Returns:
        The cache file; None where neither folder can be written.
    """
    near, own = _place_next_to_trace(path), _place_of_user(path)
    for place in (near, own):
        with contextlib.suppress(OSError):
            if place == own:
                place.parent.mkdir(parents=True, exist_ok=True)
            _write(place, key, rows, is_next_to_trace=place == near)
            return place
    return None


def clear_cache(paths: Sequence[Path] = ()) -> tuple[int, int]:
    """Remove all caches in the user's cache folder, those that this user's runs created next to
    traces, and those below `paths`.

    Returns:
        The number of files, and their total size in bytes.
    """
    folder = cache_folder()
    found: set[Path] = set()
    with contextlib.suppress(OSError):
        found |= set(folder.glob(f"*{CACHE_SUFFIX}"))
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in (folder / _LEDGER).read_text("utf-8").splitlines():
            found |= _with_unfinished(Path(line)) if line else set()
    for path in paths:
        if path.is_dir():
            found |= set(path.rglob(f"*{CACHE_SUFFIX}"))
        else:
            found |= _with_unfinished(_place_next_to_trace(path))
    files = size = 0
    for file in found:
        with contextlib.suppress(OSError):
            if _is_cache(file):
                length = file.stat().st_size
                remove(file, inside=file.parent)
                files, size = files + 1, size + length
    with contextlib.suppress(OSError):
        remove(folder / _LEDGER, inside=folder)
    return files, size


def cache_folder() -> Path:
    """The user's cache folder for traces."""
    return user_cache("traces")


def _place_next_to_trace(path: Path) -> Path:
    whole = path.absolute()
    return whole.with_name(whole.name + CACHE_SUFFIX)


def _place_of_user(path: Path) -> Path:
    # Imported here, as it loads OpenSSL in 8 ms, which a cache next to the trace does not need.
    import hashlib

    name = hashlib.blake2b(os.fsencode(path.absolute()), digest_size=16).hexdigest()
    return cache_folder() / f"{name}{CACHE_SUFFIX}"


def _is_cache(file: Path) -> bool:
    """Whether the file is a cache, or the beginning of one whose writing was interrupted."""
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        begin = opened.read(len(_MAGIC))
    return begin == _MAGIC or (not begin and file.name.startswith("."))


def _with_unfinished(place: Path) -> set[Path]:
    """The cache, and any partial ones next to it whose writing was interrupted."""
    with contextlib.suppress(OSError):
        return {place, *place.parent.glob(f".*{CACHE_SUFFIX}")}
    return {place}


def _note(place: Path) -> None:
    """Record the cache's place so that :func:`clear_cache` finds it."""
    ledger = cache_folder() / _LEDGER
    with contextlib.suppress(OSError, UnicodeError):
        ledger.parent.mkdir(parents=True, exist_ok=True)
        known = ledger.read_text("utf-8").splitlines() if ledger.exists() else []
        if str(place) not in known and "\n" not in str(place):
            with ledger.open("a", encoding="utf-8") as opened:
                opened.write(f"{place}\n")


def _write(place: Path, key: str, rows: TraceRows, *, is_next_to_trace: bool) -> None:
    columns: list[_Column] = []
    arrays: list[np.ndarray[Any, Any]] = []
    offset = checksum = 0
    for table, name, array in _arrays(rows):
        array = np.ascontiguousarray(array)
        size = array.nbytes
        columns.append(_Column(table, name, array.dtype.str, array.shape, offset, size))
        arrays.append(array)
        checksum = zlib.crc32(array.data if size else b"", checksum)
        offset += size + -size % _ALIGNMENT
    values = {name: getattr(rows, name) for name in _OF_ROWS}
    head = msgspec.msgpack.encode(
        _Head(key=key, columns=tuple(columns), checksum=checksum, **values)
    )
    prefix = _MAGIC + len(head).to_bytes(8, "little") + zlib.crc32(head).to_bytes(8, "little")
    with completed(place, end=CACHE_SUFFIX) as temporary:
        # Others may not read what a user's trace contains.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if is_next_to_trace:
                _note(place)
            file.write(prefix + head)
            file.write(bytes(-file.tell() % _ALIGNMENT))
            for array in arrays:
                file.write(array.data if array.nbytes else b"")
                file.write(bytes(-array.nbytes % _ALIGNMENT))


def _arrays(rows: TraceRows) -> Iterator[tuple[str, str, np.ndarray[Any, Any]]]:
    for table, kind in _TABLES.items():
        for column in dataclasses.fields(kind):
            yield table, column.name, getattr(getattr(rows, table), column.name)


def _load(place: Path, key: str) -> TraceRows | None:
    if not place.is_file():
        return None
    with place.open("rb") as file:
        prefix = file.read(len(_MAGIC) + 16)
        if len(prefix) != len(_MAGIC) + 16 or not prefix.startswith(_MAGIC):
            return None
        length = int.from_bytes(prefix[len(_MAGIC) : -8], "little")
        if length > os.fstat(file.fileno()).st_size:
            return None
        text = file.read(length)
        if zlib.crc32(text) != int.from_bytes(prefix[-8:], "little"):
            return None
        head: Any = msgspec.msgpack.decode(text, type=_Head)
        if head.key != key:
            return None
        start = file.tell() + -file.tell() % _ALIGNMENT
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    tables: dict[str, dict[str, Any]] = {table: {} for table in _TABLES}
    checksum = 0
    view = memoryview(mapped)
    for column in head.columns:
        if column.table not in tables:
            return None
        part = view[start + column.offset : start + column.offset + column.bytes]
        checksum = zlib.crc32(part, checksum)
        array = np.frombuffer(part, np.dtype(column.dtype)).reshape(column.shape)
        tables[column.table][column.name] = array
    if checksum != head.checksum:
        return None
    rows = TraceRows(
        **{name: getattr(head, name) for name in _OF_ROWS},
        **{table: kind(**tables[table]) for table, kind in _TABLES.items()},
    )
    return rows if _is_sound(rows) else None


_INDICES = {
    "name": ("names", 0), "thread": ("threads", 0), "arguments": ("arguments", MISSING),
    "collective": ("collectives", MISSING),
}  # fmt: skip
"""Maps columns that index another part of the rows to that part and their smallest valid value."""


def _is_sound(rows: TraceRows) -> bool:
    """Whether the rows are valid. A checksum detects damage, but not a forged file placed next to a
    trace."""
    for table, kind in _TABLES.items():
        empty, filled = concatenate(kind, []), getattr(rows, table)
        for column in dataclasses.fields(kind):
            model, array = getattr(empty, column.name), getattr(filled, column.name)
            if array.dtype != model.dtype or array.shape != (
                len(filled.start_ns), *model.shape[1:],
            ):  # fmt: skip
                return False
            if column.name in _INDICES and len(array):
                part, least = _INDICES[column.name]
                if array.min() < least or array.max() >= len(getattr(rows, part)):
                    return False
        if len(filled.start_ns) and filled.duration_ns.min() < 0:
            return False
    threads = [thread for part in rows.parts for thread in part.threads]
    if threads and not 0 <= min(threads) <= max(threads) < len(rows.threads):
        return False
    return plausible(rows) is rows
