"""Creates a journal under a temporary name and renames it into place when it is complete.

A journal with the final name therefore never holds a partial plan, and the old journal is moved
aside only when the new one is complete.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.domain.errors import EnvironmentFailure
from gemmetry.domain.record import Record
from gemmetry.domain.target import Target
from gemmetry.formats.files import remove, sync
from gemmetry.store.manifest import MANIFEST_NAME, Manifest, time_created, write_manifest
from gemmetry.store.rows import Lane, PlanBatch
from gemmetry.store.schema import (
    FORMAT_VERSION,
    JOURNAL_NAME,
    check_journal,
    create_journal,
    with_checksum,
)

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
