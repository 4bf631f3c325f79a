"""Rows that the engine writes to the store and reads from it.

Converts records stored by earlier versions to this version's form.

The journal's tables, its connections, and the translation of SQLite's errors.

A journal is written with its plan under a temporary name and renamed into place, so any existing
journal is complete. From then on it is in WAL mode with ``synchronous=FULL``: a commit is on disk
when it returns (https://www.sqlite.org/pragma.html#pragma_synchronous).

``manifest.json``: a description of an experiment, readable without a database.

Creates a journal under a temporary name and renames it into place when it is complete.

A journal with the final name therefore never holds a partial plan, and the old journal is moved
aside only when the new one is complete.

One writer per experiment folder, across processes.

Locates experiments, and suggests some for a path that holds none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import msgspec
import numpy as np

from gemmetry.domain.dispatch import Target
from gemmetry.domain.errors import (
    EnvironmentFailure,
    JournalDamagedError,
    RequestError,
    StorageError,
    did_you_mean,
    nearest,
)
from gemmetry.domain.files import remove, sync, write_whole
from gemmetry.domain.record import Environment, Record
from gemmetry.statistics.intervals import minimum_samples

if TYPE_CHECKING:
    from gemmetry.measurement.stopping import Round


@dataclass(frozen=True, slots=True)
class Lane:
    """A provider on a target, served by one worker process."""

    id: int
    provider: str
    options: Mapping[str, Any] = field(hash=False)
    target: Target

    @property
    def place(self) -> tuple[str, str, str]:
        """Provider, target and device, which identify the lane across plans."""
        return self.provider, self.target.name, self.target.device

    def __str__(self) -> str:
        return f"{self.provider} on {self.target.device or self.target.name}"


@dataclass(frozen=True, slots=True)
class PlanBatch:
    """A part of a plan, in the order of enumeration; ids count from 1 over the whole plan."""

    operations: list[tuple[int, str]] = field(default_factory=list)
    """(id, name)."""
    configurations: list[tuple[int, str]] = field(default_factory=list)
    """(id, name)."""
    dispatches: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(id, operation, lane, configuration)."""
    finished: list[tuple[int, Record]] = field(default_factory=list)
    """Records of dispatches that are finished before they start (unsupported)."""


@dataclass(frozen=True, slots=True)
class PlannedDispatch:
    """A dispatch of the stored plan that has no record yet."""

    id: int
    operation: str
    lane: int
    configuration: str

    @property
    def name(self) -> str:
        return f"{self.operation}_{self.configuration}"


@dataclass(frozen=True, slots=True)
class StoredRound:
    """One sampling round of one dispatch."""

    dispatch: int
    number: int
    taken: Round
    environment: str = ""
    """The id of the environment in which it was taken; "": that of the writer."""


def without_unfounded_interval(record: Record) -> Record:
    """The record without an interval of the median for which it has too few samples: earlier
    versions stored [min, max] instead, which is a point for a single sample."""
    m = record.measurement
    if m is None or m.ci_low_ns is None:
        return record
    worth = m.sample_count if m.effective_samples is None else m.effective_samples
    if int(worth) >= minimum_samples():
        return record
    return replace(record, measurement=replace(m, ci_low_ns=None, ci_high_ns=None))


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

    def connect(more: str) -> sqlite3.Connection:
        uri = f"file:{quote(str(path))}?mode=ro{more}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)

    connection = connect("")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(f"{path.name}-wal").exists():
            raise
        connection = connect("&immutable=1")
    return connection


def check_journal(folder: Path) -> dict[str, str]:
    """Read a journal's ``meta`` table without changing the journal.

    Raises:
        JournalDamagedError: the file is not a database, is truncated or malformed, or has another
            format.
    """
    with storage_errors(folder), closing(connect_reader(folder / JOURNAL_NAME)) as connection:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise damaged(folder, found)
        meta = dict(connection.execute("SELECT key, value FROM meta"))
    _check_format(folder, meta.get("format_version"))
    return meta


def _check_format(folder: Path, version: object) -> None:
    if str(version) != str(FORMAT_VERSION):
        what = f"its format is {version}, but this version of gemmetry reads {FORMAT_VERSION}"
        raise damaged(folder, what)


MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Description of an experiment."""

    name: str
    plan_hash: str
    document: Mapping[str, Any] = field(default_factory=dict)
    """The plan's document; its hash decides whether a command may resume this experiment."""
    commands: tuple[str, ...] = ()
    """Every command line that wrote to this experiment, oldest first, without duplicates."""
    created: str = ""
    """ISO 8601, UTC."""
    format_version: int = FORMAT_VERSION

    def with_command(self, command: str) -> Manifest:
        """The same manifest with `command` added."""
        if not command or command in self.commands:
            return self
        return replace(self, commands=(*self.commands, command))


_MOST_DIFFERENCES = 4
_LONGEST_VALUE = 40


def plan_differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """The differences between the documents of two plans, for a message: ``trace.repeats (5, now
    3)``; long values are listed by name only. "" if there are none."""
    found = list(_differences(theirs, ours, ""))
    more = len(found) - _MOST_DIFFERENCES
    return ", ".join(found[:_MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any], place: str) -> Iterator[str]:
    for key in dict.fromkeys((*theirs, *ours)):
        old, new = theirs.get(key), ours.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(old, new, f"{place}{key}.")
            continue
        before, after = (msgspec.json.encode(value).decode() for value in (old, new))
        if before == after:
            continue
        is_short = len(before) + len(after) <= _LONGEST_VALUE
        yield f"{place}{key} ({before}, now {after})" if is_short else f"{place}{key}"


def now(timespec: str = "seconds") -> str:
    """The time in ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec=timespec)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of `folder`; None if it has none.

    Raises:
        JournalDamagedError: the manifest cannot be read, or has another format.
    """
    try:
        text = (folder / MANIFEST_NAME).read_bytes()
    except FileNotFoundError:
        return None
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.MsgspecError as error:
        raise damaged(folder, f"{MANIFEST_NAME} cannot be read: {error}") from error
    _check_format(folder, manifest.format_version)
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest atomically, so that a reader finds either the old or the new one."""
    write_whole(folder / MANIFEST_NAME, indented(manifest), durable=True)


def indented(document: object) -> bytes:
    """A document as JSON that people can read, with a line end; NaN and infinities are null."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


PREVIOUS_NAME = "previous"
DAMAGED_NAME = "damaged"
INSERT_RECORD = "INSERT INTO records VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_ROUND = "INSERT INTO rounds VALUES(?, ?, ?, ?, ?, ?, ?)"
SET_VERDICT = "INSERT OR REPLACE INTO verdicts VALUES(?, ?, ?, ?)"
SET_ENVIRONMENT = "INSERT OR REPLACE INTO environments VALUES(?, ?, ?)"
_NEW_JOURNAL = ".journal.new"


def create(
    folder: Path, head: Manifest, command: str, fill: Callable[[sqlite3.Connection], None]
) -> Manifest:
    """Create a journal, let `fill` write its rows, and move it and the manifest into place; an old
    one is moved aside. Returns the manifest: `head`, completed."""
    # Microseconds distinguish experiments of one second.
    manifest = replace(head, created=now("microseconds")).with_command(command)
    temporary = folder / _NEW_JOURNAL
    remove(temporary, inside=folder)
    try:
        with closing(create_journal(temporary)) as connection:
            connection.execute("BEGIN")
            meta = {
                "format_version": str(FORMAT_VERSION),
                "plan_hash": manifest.plan_hash,
                "created": manifest.created,
            }
            connection.executemany("INSERT INTO meta VALUES(?, ?)", meta.items())
            fill(connection)
            connection.execute("COMMIT")
        sync(temporary)
        _set_aside(folder)
        temporary.replace(folder / JOURNAL_NAME)
    finally:
        remove(temporary, inside=folder)
    write_manifest(folder, manifest)
    sync(folder)
    return manifest


@contextmanager
def new_folder(into: Path) -> Iterator[None]:
    """Within the context the folder `into`, which holds no experiment yet, is locked.

    Raises:
        RequestError: `into` holds an experiment. StorageError: `into` is not writable.
    """
    if (into / JOURNAL_NAME).exists():
        raise RequestError(
            f"{into} already contains an experiment", hint="Name a folder that does not exist yet."
        )
    with storage_errors(into):
        into.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(into)
        try:
            yield
        finally:
            lock.release()


def store_plan(
    connection: sqlite3.Connection, lanes: Iterable[Lane], batches: Iterable[PlanBatch]
) -> None:
    """Write a plan's rows as they are enumerated."""
    connection.executemany("INSERT INTO lanes VALUES(?, ?, ?, ?)", map(lane_row, lanes))
    for batch in batches:
        connection.executemany("INSERT INTO operations VALUES(?, ?)", batch.operations)
        connection.executemany("INSERT INTO configurations VALUES(?, ?)", batch.configurations)
        connection.executemany(
            "INSERT INTO plan VALUES(?, ?, ?, ?, ?)", map(with_checksum, batch.dispatches)
        )
        rows = (record_row(key, record, 0) for key, record in batch.finished)
        connection.executemany(INSERT_RECORD, rows)


def record_row(key: int, record: Record, finished_ns: int) -> tuple[Any, ...]:
    """The row of the table ``records``."""
    return with_checksum((
        key, record.target, record.device, record.provider, record.dispatch, record.operation,
        record.environment_id, record.distribution, record.seed, str(record.outcome), finished_ns,
        msgspec.json.encode(record),
    ))  # fmt: skip


def environment_rows(environments: Iterable[Environment]) -> list[tuple[Any, ...]]:
    """Rows of the table ``environments``."""
    return [with_checksum((one.id, msgspec.json.encode(one))) for one in environments]


def round_row(one: StoredRound) -> tuple[Any, ...]:
    """The row of the table ``rounds``."""
    document = msgspec.to_builtins(one.taken)
    samples = np.array(document.pop("samples_ns"), dtype=np.float64).tobytes()
    return with_checksum((
        one.dispatch, one.number, one.environment, one.taken.seconds, samples,
        msgspec.json.encode(document),
    ))  # fmt: skip


def decode_lane(row: Sequence[Any]) -> Lane:
    """The inverse of a row of the table ``lanes``."""
    options: Mapping[str, Any] = msgspec.json.decode(row[2])
    return Lane(row[0], row[1], options, msgspec.json.decode(row[3], type=Target))


def lane_row(lane: Lane) -> tuple[int, str, str, str]:
    """The row of the table ``lanes``."""
    options = msgspec.json.encode(lane.options).decode()
    return (lane.id, lane.provider, options, msgspec.json.encode(lane.target).decode())


def _set_aside(folder: Path) -> None:
    """Move an existing journal, its write-ahead log and the manifest into ``previous/``; one that
    cannot be read into ``damaged-1/``, ``damaged-2/`` ..., which nothing deletes."""
    if not (folder / JOURNAL_NAME).exists():
        return
    previous = folder / PREVIOUS_NAME
    try:
        check_journal(folder)
        remove(previous, inside=folder)
    except EnvironmentFailure:
        numbered = (folder / f"{DAMAGED_NAME}-{number}" for number in count(1))
        previous = next(path for path in numbered if not path.exists())
    previous.mkdir()
    # The log first: a journal without its log is still an older state of itself, but a log next to
    # another journal is not.
    for name in (MANIFEST_NAME, f"{JOURNAL_NAME}-shm", f"{JOURNAL_NAME}-wal", JOURNAL_NAME):
        source = folder / name
        if source.exists():
            source.replace(previous / name)


LOCK_NAME = "lock"

_ASKING_S = 0.02
"""Far longer than :func:`is_locked` holds a lock to find out whether it is free."""


class FolderLock:
    """An exclusive ``flock`` on ``<folder>/lock``; the kernel drops it when the process ends,
    however it ends, so no stale lock is possible."""

    def __init__(self, folder: Path, *, option: str = "--experiment") -> None:
        """Take the lock of the folder that `option` names.

        Raises:
            RequestError: another process is using the folder.
            OSError: the folder is not writable.
        """
        path = folder / LOCK_NAME
        # Not through a link: the file is emptied.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._descriptor = os.open(path, flags, 0o644)
        try:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_ASKING_S)
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(self._descriptor), path.lstat()):
                raise BlockingIOError  # Its holder has removed it meanwhile, and another made one.
        except (BlockingIOError, FileNotFoundError):
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise RequestError(
                f"the {option.removeprefix('--')} {folder} is in use by process "
                f"{holder or 'unknown'}",
                hint=f"Wait for it, end it, or give another {option} folder.",
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; calling it twice is harmless."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of `folder`."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


DEFAULT_FOLDER = Path("gemmetry-out")
"""Default folder of experiments, in the working directory."""

_MOST_NAMED = 3

_LIKELY = 0.7
"""Least similarity at which folder names elsewhere are suggested; many begin with ``profile-``,
which alone results in 0.5 for random endings."""


def missing_experiment(path: Path) -> RequestError:
    """The error for a `path` that holds no experiment, with suggestions."""
    if path.is_dir():
        cause = f"it has no {JOURNAL_NAME}"
    else:
        cause = "it is a file" if path.exists() else "there is no such folder"
    meant = _meant(path)
    usual = "Give the folder that a profile run printed as its experiment."
    hint = did_you_mean([str(folder) for folder in meant]) or usual
    return RequestError(f"no experiment in {path}: {cause}", hint=hint)


def _meant(path: Path) -> list[Path]:
    """The same path below the folder of all experiments, else the experiments inside the folder at
    `path`, else experiments with similar names next to it or in the folder of all experiments."""
    below = DEFAULT_FOLDER / path
    if not path.is_absolute() and _is_experiment(below):
        return [below]
    if path.is_dir():
        return _experiments(path)[:_MOST_NAMED]
    known = {
        one.name: one for folder in (DEFAULT_FOLDER, path.parent) for one in _experiments(folder)
    }
    alike = nearest(path.name, known, cutoff=_LIKELY)
    same_plan = [name for name in known if re.fullmatch(rf"{re.escape(path.name)}-[0-9a-f]+", name)]
    return [known[name] for name in dict.fromkeys((*same_plan, *alike))][:_MOST_NAMED]


def _experiments(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(one for one in folder.iterdir() if _is_experiment(one))
    return []


def _is_experiment(path: Path) -> bool:
    return (path / JOURNAL_NAME).is_file()
