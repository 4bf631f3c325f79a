from __future__ import annotations

import errno
import sqlite3

import pytest

from gemmetry.domain.errors import JournalDamagedError, StorageError
from gemmetry.engine.schema import connect_writer, create_journal, storage_errors


def test_commits_are_durable(tmp_path):
    create_journal(tmp_path / "j").close()
    connection = connect_writer(tmp_path / "j")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
    connection.close()


def _sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "expected", "wording"),
    [
        (_sqlite_error(sqlite3.SQLITE_FULL), StorageError, "no space left"),
        (_sqlite_error(sqlite3.SQLITE_IOERR_WRITE), StorageError, "reading or writing"),
        (_sqlite_error(sqlite3.SQLITE_READONLY), StorageError, "cannot use"),
        (_sqlite_error(sqlite3.SQLITE_CORRUPT_INDEX), JournalDamagedError, "damaged"),
        (_sqlite_error(sqlite3.SQLITE_NOTADB), JournalDamagedError, "damaged"),
        (OSError(errno.ENOSPC, "No space left on device"), StorageError, "no space left"),
        (OSError(errno.EACCES, "Permission denied"), StorageError, "cannot write"),
        (OSError(errno.EROFS, "Read-only file system"), StorageError, "cannot write"),
    ],
)
def test_errors_are_reported_with_what_to_do(tmp_path, error, expected, wording):
    with pytest.raises(expected, match=wording) as caught, storage_errors(tmp_path):
        raise error
    assert caught.value.hint
    assert str(tmp_path) in caught.value.message
