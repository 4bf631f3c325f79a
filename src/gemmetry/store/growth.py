"""Adds the missing parts of a plan to a journal that holds another plan, in one transaction.

Existing rows and their numbers do not change; new dispatches are appended. A kill before the commit
leaves the old plan, a kill after it the larger one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from gemmetry.domain.record import Verdict
from gemmetry.store.creation import (
    INSERT_RECORD,
    SET_VERDICT,
    decode_lane,
    lane_row,
    record_row,
)
from gemmetry.store.rows import Lane, PlanBatch
from gemmetry.store.schema import checksum, with_checksum

_INSERT = (
    "INSERT INTO plan(operation, lane, configuration) SELECT :operation, :lane, :configuration"
    " WHERE NOT EXISTS (SELECT 1 FROM temp.known WHERE operation = :operation AND lane = :lane"
    " AND configuration = :configuration)"
)


@dataclass(frozen=True, slots=True)
class Again:
    """Finished dispatches, by number, of which a larger plan requires more."""

    verdicts: Mapping[int, Verdict | None] = field(default_factory=dict)
    """The state of each; its rounds are kept, so that it continues where it stopped."""


def add_plan(
    connection: sqlite3.Connection,
    lanes: Sequence[Lane],
    batches: Iterable[PlanBatch],
    again: Again,
    environment: str,
) -> None:
    """Add lanes and dispatches that the journal lacks; called within a transaction.

    Args:
        lanes: the plan's lanes. A lane that the journal already has gets these options.
        batches: the plan's rows, in its own numbers.
        environment: id of the environment in which the verdicts of `again` were reached.
    """
    numbers = _add_lanes(connection, lanes)
    operations = _Names(connection, "operations")
    configurations = _Names(connection, "configurations")
    connection.execute(
        "CREATE TEMP TABLE IF NOT EXISTS known(operation INTEGER, lane INTEGER,"
        " configuration INTEGER, PRIMARY KEY(operation, lane, configuration)) WITHOUT ROWID"
    )
    connection.execute("DELETE FROM temp.known")
    connection.execute(
        "INSERT OR IGNORE INTO temp.known SELECT operation, lane, configuration FROM plan"
    )
    last = connection.execute("SELECT coalesce(max(id), 0) FROM plan").fetchone()[0]
    for batch in batches:
        operations.take(batch.operations)
        configurations.take(batch.configurations)
        finished = dict(batch.finished)
        rows = []
        for number, operation, lane, configuration in batch.dispatches:
            row = {
                "operation": operations[operation],
                "lane": numbers[lane],
                "configuration": configurations[configuration],
            }
            if number not in finished:
                rows.append(row)
                continue
            cursor = connection.execute(_INSERT, row)
            if cursor.rowcount and cursor.lastrowid:
                record = record_row(cursor.lastrowid, finished[number], 0)
                connection.execute(INSERT_RECORD, record)
        connection.executemany(_INSERT, rows)
    connection.execute("DELETE FROM temp.known")
    added = connection.execute(
        "SELECT id, operation, lane, configuration FROM plan WHERE id > ?", (last,)
    ).fetchall()
    connection.executemany(
        "UPDATE plan SET crc = ? WHERE id = ?", [(checksum(row), row[0]) for row in added]
    )
    for number, verdict in again.verdicts.items():
        connection.execute("DELETE FROM records WHERE id = ?", (number,))
        if verdict is not None:
            text = msgspec.json.encode(verdict)
            connection.execute(SET_VERDICT, with_checksum((number, environment, text)))


class _Names:
    """Add a table of names. Maps the plan's numbers of the names to the journal's."""

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        self._connection = connection
        self._insert = f"INSERT INTO {table}(name) VALUES(?)"
        self._known: dict[str, int] = dict(connection.execute(f"SELECT name, id FROM {table}"))
        self._numbers: dict[int, int] = {}

    def take(self, names: Iterable[tuple[int, str]]) -> None:
        for number, name in names:
            if name not in self._known:
                self._known[name] = self._connection.execute(self._insert, (name,)).lastrowid or 0
            self._numbers[number] = self._known[name]

    def __getitem__(self, number: int) -> int:
        return self._numbers[number]


def _add_lanes(connection: sqlite3.Connection, lanes: Sequence[Lane]) -> dict[int, int]:
    """The journal's number of each lane."""
    rows = connection.execute("SELECT id, provider, options, target FROM lanes").fetchall()
    known = {lane.place: lane.id for lane in map(decode_lane, rows)}
    numbers = {}
    for lane in lanes:
        number = known.get(lane.place) or max(known.values(), default=0) + 1
        known[lane.place] = numbers[lane.id] = number
        row = lane_row(replace(lane, id=number))
        connection.execute("INSERT OR REPLACE INTO lanes VALUES(?, ?, ?, ?)", row)
    return numbers
