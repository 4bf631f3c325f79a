"""The journal's tables, its connections, and the translation of SQLite's errors.

A journal is written with its plan under a temporary name and renamed into place, so any existing
journal is complete. From then on it is in WAL mode with ``synchronous=FULL``: a commit is on disk
when it returns (https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from gemmetry.domain.errors import EnvironmentFailure, JournalDamagedError, StorageError

FORMAT_VERSION = 1
"""Version of the experiment folder's format; incremented when an older gemmetry could misread
it."""

JOURNAL_NAME = "journal.sqlite"

TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE lanes(id INTEGER PRIMARY KEY, provider TEXT NOT NULL, options TEXT NOT NULL,
    target TEXT NOT NULL);
CREATE TABLE operations(id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE configurations(id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE plan(id INTEGER PRIMARY KEY, operation INTEGER NOT NULL, lane INTEGER NOT NULL,
    configuration INTEGER NOT NULL, crc INTEGER);
CREATE TABLE records(id INTEGER PRIMARY KEY, target TEXT NOT NULL, device TEXT NOT NULL,
    provider TEXT NOT NULL, dispatch TEXT NOT NULL, operation TEXT NOT NULL,
    environment TEXT NOT NULL, distribution TEXT NOT NULL, seed INTEGER NOT NULL,
    outcome TEXT NOT NULL, finished_ns INTEGER NOT NULL, document BLOB NOT NULL, crc INTEGER);
CREATE INDEX records_by_dispatch ON records(dispatch);
CREATE TABLE rounds(dispatch INTEGER NOT NULL, round INTEGER NOT NULL, environment TEXT NOT NULL,
    seconds REAL NOT NULL, samples BLOB NOT NULL, document BLOB NOT NULL, crc INTEGER,
    PRIMARY KEY(dispatch, round)) WITHOUT ROWID;
CREATE TABLE environments(id TEXT PRIMARY KEY, document BLOB NOT NULL, crc INTEGER) WITHOUT ROWID;
"""

CHECKED_TABLES = ("plan", "records", "rounds", "verdicts", "environments")
"""Tables whose rows end with a checksum of the rest of the row; null in those of older versions."""

WRITERS_TABLES = (
    "CREATE TABLE IF NOT EXISTS verdicts(dispatch INTEGER PRIMARY KEY,"
    " environment TEXT NOT NULL, document BLOB NOT NULL, crc INTEGER)",
    "CREATE TABLE IF NOT EXISTS device_losses(dispatch INTEGER PRIMARY KEY,"
    " times INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS plans(hash TEXT PRIMARY KEY)",
)
"""Tables that only a writer uses: it adds them to a journal of an older gemmetry."""

_HEAD_BYTES, _FRAME_BYTES = 32, 24
"""Of a write-ahead log, and of each page in it."""

_SPACE = "Free some space or choose another --experiment folder; the same command then resumes."
_DAMAGED_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system in `folder` into gemmetry's errors.

    Raises:
        StorageError: the disk is full, the folder is not writable, or input or output failed.
        JournalDamagedError: the journal is not a database or is malformed.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _sqlite_failure(folder, error) from error
    except OSError as error:
        raise os_failure(folder, error) from error


def os_failure(folder: Path, error: OSError, *, option: str = "--experiment") -> EnvironmentFailure:
    """The StorageError that explains a failed file operation in `folder`, which `option` names."""
    place = error.filename or folder
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        hint = _SPACE.replace("--experiment", option)
        return StorageError(f"no space left to write {place}: {error.strerror}", hint=hint)
    noun = option.removeprefix("--")
    return StorageError(
        f"cannot write the {noun} folder {folder}: {error.strerror or error} ({place})",
        hint=f"Give {option} a folder that you can write to.",
    )


def _sqlite_failure(folder: Path, error: sqlite3.Error) -> EnvironmentFailure:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    journal = folder / JOURNAL_NAME
    if code == sqlite3.SQLITE_FULL:
        return StorageError(f"no space left to write {journal}: {error}", hint=_SPACE)
    if code == sqlite3.SQLITE_IOERR:
        return StorageError(f"reading or writing {journal} failed: {error}", hint=_SPACE)
    if code in _DAMAGED_CODES:
        return damaged(folder, str(error))
    return StorageError(
        f"cannot use {journal}: {error}",
        hint="Check that you can write to the folder, and that no other program has the journal "
        "open.",
    )


def damaged(folder: Path, cause: str) -> JournalDamagedError:
    """The error for a journal or manifest that cannot be read."""
    return JournalDamagedError(
        f"the experiment {folder} is damaged: {cause}",
        hint="Nothing in it was changed. Restore it from a copy, give another --experiment, or "
        "add --fresh to start again: it is then kept in the folder's damaged-1/ (-2/ ...).",
    )


def create_journal(path: Path) -> sqlite3.Connection:
    """An empty journal at `path` (a temporary name), fast to fill because it need not be durable
    before it is renamed."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.executescript(TABLES)
    return connection


def connect_writer(path: Path) -> sqlite3.Connection:
    """A connection for the one writer, usable from its threads under a lock."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    for table in WRITERS_TABLES:
        connection.execute(table)
    for table in CHECKED_TABLES:
        if not has_checksums(connection, table):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN crc INTEGER")
    return connection


def has_checksums(connection: sqlite3.Connection, table: str) -> bool:
    """Whether the rows of `table` have a checksum; those of older versions have none."""
    return "crc" in {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def checksum(row: Sequence[Any]) -> int:
    """The checksum (CRC-32) of a row without its last column."""
    return zlib.crc32(msgspec.msgpack.encode([
        value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        for value in row
    ]))  # fmt: skip


def with_checksum(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of a table of :data:`CHECKED_TABLES`, completed by its checksum."""
    return (*row, checksum(row))


def is_damaged(row: Sequence[Any]) -> bool:
    """Whether a row of a table with checksums does not agree with its own."""
    return row[-1] is not None and row[-1] != checksum(row[:-1])


def lost_in_log(folder: Path) -> str:
    """What a damaged write-ahead log hides from every reader of the journal in `folder`, in a
    sentence; "" if it is whole. No process may be writing to it.

    SQLite reads the log up to the first frame whose checksum is wrong, and reports nothing. Frames
    that belong to the log, behind those that SQLite accepts, are therefore looked for here
    (https://www.sqlite.org/fileformat2.html#walformat,
    https://www.sqlite.org/walformat.html#the_wal_index_file_format).
    """
    path = folder / JOURNAL_NAME
    try:
        with path.with_name(f"{path.name}-wal").open("rb") as file:
            head = file.read(_HEAD_BYTES)
            if len(head) < _HEAD_BYTES or not (frame := file.read(_FRAME_BYTES)):
                return ""
            if not _is_whole(head):
                return "its write-ahead log is damaged: all results in it are lost"
            salts, number, frames = head[16:24], 0, 0
            while len(frame) == _FRAME_BYTES:
                number += 1
                if frame[8:16] == salts:  # Others are of an earlier log, which this one overwrites.
                    frames = number
                file.seek(int.from_bytes(head[8:12], "big"), os.SEEK_CUR)
                frame = file.read(_FRAME_BYTES)
        with closing(connect_reader(path)) as connection:
            connection.execute("SELECT count(*) FROM meta").fetchone()
            index = path.with_name(f"{path.name}-shm").read_bytes()
    except (OSError, sqlite3.Error):
        return ""  # What is wrong is reported by whoever reads the journal.
    accepted = int.from_bytes(index[16:20], sys.byteorder)
    if frames <= accepted:
        return ""
    return (
        f"its write-ahead log is damaged: {frames - accepted} of {frames} pages cannot be read, "
        "and the results in them are lost"
    )


def _is_whole(head: bytes) -> bool:
    """Whether the head of a write-ahead log has the checksum that is stored in it."""
    order: Literal["big", "little"] = "big" if head[3] & 1 else "little"
    one = two = 0
    for place in range(0, 24, 8):
        one = (one + int.from_bytes(head[place : place + 4], order) + two) % (1 << 32)
        two = (two + int.from_bytes(head[place + 4 : place + 8], order) + one) % (1 << 32)
    return head[24:32] == one.to_bytes(4, "big") + two.to_bytes(4, "big")


def connect_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection, which works alongside a writer.

    In a read-only folder SQLite cannot create the WAL index; if there is no WAL either, the
    database file is read directly.
    """
    uri = f"file:{quote(str(path))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(f"{path.name}-wal").exists():
            raise
        connection = sqlite3.connect(
            f"{uri}&immutable=1", uri=True, isolation_level=None, check_same_thread=False
        )
    return connection


def check_journal(folder: Path) -> dict[str, str]:
    """Read a journal's ``meta`` table without changing the journal.

    Raises:
        JournalDamagedError: the file is not a database, is truncated or malformed, or has another
            format.
    """
    path = folder / JOURNAL_NAME
    with storage_errors(folder), closing(connect_reader(path)) as connection:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise damaged(folder, found)
        meta = dict(connection.execute("SELECT key, value FROM meta"))
    version = meta.get("format_version")
    if version != str(FORMAT_VERSION):
        raise damaged(
            folder,
            f"its format is {version}, but this version of gemmetry reads format {FORMAT_VERSION}",
        )
    return meta
