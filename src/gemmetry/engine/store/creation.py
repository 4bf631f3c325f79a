"""``manifest.json``: a description of an experiment, readable without a database.

Creates a journal under a temporary name and renames it into place when it is complete.

A journal with the final name therefore never holds a partial plan, and the old journal is moved
aside only when the new one is complete.

One writer per experiment folder, across processes.

Locates experiments, and suggests some for a path that holds none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.domain.dispatch import Target
from gemmetry.domain.errors import EnvironmentFailure, RequestError, did_you_mean, nearest
from gemmetry.domain.files import remove, sync, write_whole
from gemmetry.domain.record import Record
from gemmetry.engine.store.rows import Lane, PlanBatch
from gemmetry.engine.store.schema import (
    FORMAT_VERSION,
    JOURNAL_NAME,
    check_journal,
    create_journal,
    damaged,
    with_checksum,
)

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


def now() -> str:
    """The time in ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def time_created() -> str:
    """Like :func:`now`, to the microsecond, which distinguishes experiments of one second."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of `folder`; None if it has none.

    Raises:
        JournalDamagedError: it cannot be read, or has another format.
    """
    try:
        text = (folder / MANIFEST_NAME).read_bytes()
    except FileNotFoundError:
        return None
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.MsgspecError as error:
        raise damaged(folder, f"{MANIFEST_NAME} cannot be read: {error}") from error
    if manifest.format_version != FORMAT_VERSION:
        raise damaged(
            folder,
            f"its format is {manifest.format_version}, but this version of gemmetry reads "
            f"{FORMAT_VERSION}",
        )
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
    folder: Path,
    head: Manifest,
    command: str,
    enumerate_plan: Callable[[], tuple[Sequence[Lane], Iterable[PlanBatch]]] | None,
) -> Manifest:
    """Create the journal of a new experiment in `folder`; an old one is moved aside."""
    manifest = complete_manifest(head, command, created=time_created())

    def fill(connection: sqlite3.Connection) -> None:
        if enumerate_plan is not None:
            lanes, batches = enumerate_plan()
            store_plan(connection, lanes, batches)

    create_filled(folder, manifest, fill)
    return manifest


def create_filled(
    folder: Path, manifest: Manifest, fill: Callable[[sqlite3.Connection], None]
) -> None:
    """Create a journal, let `fill` write its rows, and move it and the manifest into place."""
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


def complete_manifest(head: Manifest, command: str, *, created: str) -> Manifest:
    """The manifest of a new experiment."""
    return replace(head, created=created).with_command(command)


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
        key,
        record.target,
        record.device,
        record.provider,
        record.dispatch,
        record.operation,
        record.environment_id,
        record.distribution,
        record.seed,
        str(record.outcome),
        finished_ns,
        msgspec.json.encode(record),
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
    journal = folder / JOURNAL_NAME
    if not journal.exists():
        return
    previous = folder / PREVIOUS_NAME
    if _is_readable(folder):
        remove(previous, inside=folder)
    else:
        numbered = (folder / f"{DAMAGED_NAME}-{number}" for number in count(1))
        previous = next(path for path in numbered if not path.exists())
    previous.mkdir()
    # The log first: a journal without its log is still an older state of itself, but a log next to
    # another journal is not.
    for name in (MANIFEST_NAME, f"{JOURNAL_NAME}-shm", f"{JOURNAL_NAME}-wal", JOURNAL_NAME):
        source = folder / name
        if source.exists():
            source.replace(previous / name)


def _is_readable(folder: Path) -> bool:
    try:
        check_journal(folder)
    except EnvironmentFailure:
        return False
    return True


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
            if not _is_same(self._descriptor, path):
                raise BlockingIOError  # Its holder has removed it meanwhile.
        except BlockingIOError:
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


def _is_same(descriptor: int, path: Path) -> bool:
    """Whether `path` is still the opened file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
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
    try:
        return sorted(one for one in folder.iterdir() if _is_experiment(one))
    except OSError:
        return []


def _is_experiment(path: Path) -> bool:
    return (path / JOURNAL_NAME).is_file()
