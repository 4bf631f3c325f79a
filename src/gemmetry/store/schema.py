"""The journal's tables, its connections, and the translation of SQLite's errors.

A journal is written with its plan under a temporary name and renamed into place, so any existing
journal is complete. From then on it is in WAL mode with ``synchronous=FULL``: a commit is on disk
when it returns (https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

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
    configuration INTEGER NOT NULL);
CREATE TABLE records(id INTEGER PRIMARY KEY, target TEXT NOT NULL, device TEXT NOT NULL,
    provider TEXT NOT NULL, dispatch TEXT NOT NULL, operation TEXT NOT NULL,
    environment TEXT NOT NULL, distribution TEXT NOT NULL, seed INTEGER NOT NULL,
    outcome TEXT NOT NULL, finished_ns INTEGER NOT NULL, document BLOB NOT NULL);
CREATE INDEX records_by_dispatch ON records(dispatch);
CREATE TABLE rounds(dispatch INTEGER NOT NULL, round INTEGER NOT NULL, environment TEXT NOT NULL,
    seconds REAL NOT NULL, samples BLOB NOT NULL, document BLOB NOT NULL,
    PRIMARY KEY(dispatch, round)) WITHOUT ROWID;
CREATE TABLE environments(id TEXT PRIMARY KEY, document BLOB NOT NULL) WITHOUT ROWID;
"""

WRITERS_TABLES = (
    "CREATE TABLE IF NOT EXISTS verdicts(dispatch INTEGER PRIMARY KEY,"
    " environment TEXT NOT NULL, document BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS device_losses(dispatch INTEGER PRIMARY KEY,"
    " times INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS plans(hash TEXT PRIMARY KEY)",
)
"""Tables that only a writer uses: it adds them to a journal of an older gemmetry."""

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
    return connection


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
