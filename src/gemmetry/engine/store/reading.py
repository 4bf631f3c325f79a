"""Reads an experiment's journal page by page, also while a run writes to it.

Adds the missing parts of a plan to a journal that holds another plan, in one transaction.

Existing rows and their numbers do not change; new dispatches are appended. A kill before the commit
leaves the old plan, a kill after it the larger one.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gemmetry.domain.errors import listed
from gemmetry.domain.record import Environment, Record, ResultSet, Verdict
from gemmetry.engine.store import creation
from gemmetry.engine.store.creation import (
    INSERT_RECORD,
    SET_VERDICT,
    Manifest,
    decode_lane,
    lane_row,
    record_row,
)
from gemmetry.engine.store.rows import (
    Lane,
    PlanBatch,
    PlannedDispatch,
    StoredRound,
    without_unfounded_interval,
)
from gemmetry.engine.store.schema import (
    CHECKED_TABLES,
    checksum,
    damaged,
    has_checksums,
    is_damaged,
    storage_errors,
    with_checksum,
)

_RECORD_DECODER = msgspec.json.Decoder(Record)
_MOST_NAMED = 5
_PAGE = 4096
"""Rows read at a time while streaming; limits memory, not results."""


class StoredResults:
    """The results in a folder. Methods raise JournalDamagedError where the journal cannot be
    read."""

    def __init__(self, path: Path, manifest: Manifest, connection: sqlite3.Connection) -> None:
        self.path = path
        self.manifest = manifest
        self._connection = connection
        self._mutex = threading.RLock()
        self._damaged: dict[int, str] | None = None
        self.lost = ""
        """What a damaged log hides, in a sentence; "" if it hides nothing."""
        self._alike: list[str] = []
        """Environments whose results are comparable with those that a writer adds."""

    def records(self) -> Iterator[Record]:
        """All records in plan order, read page by page."""
        return (record for _, record in self.numbered_records())

    def numbered_records(self, after: int = 0) -> Iterator[tuple[int, Record]]:
        """Like :meth:`records`, with the number of each dispatch; only numbers above `after`."""
        statement = "SELECT id, document FROM records WHERE id > ? ORDER BY id LIMIT ?"
        damaged_ones = self.damaged_dispatches()
        for number, document in self._pages(statement, after):
            if number in damaged_ones:
                continue
            with self._decoding("a record"):
                record = without_unfounded_interval(_RECORD_DECODER.decode(document))
            yield number, record

    def damaged_dispatches(self) -> dict[int, str]:
        """Dispatches of which a stored row, or that of the environment, does not agree with its
        checksum, by number, and their names. Their records are left out of all others."""
        if self._damaged is None:
            keys = {table: self._damaged_keys(table) for table in CHECKED_TABLES}
            found = set().union(*(keys[table] for table in CHECKED_TABLES[:-1]))
            for key in keys["environments"]:
                rows = self._query("SELECT id FROM records WHERE environment = ?", (key,))
                found.update(number for (number,) in rows)
            self._damaged = {
                number: self._name(number, trusts_plan=number not in keys["plan"])
                for number in sorted(found)
            }
        return self._damaged

    def _damaged_keys(self, table: str) -> set[Any]:
        """The first columns of the rows that do not agree with their checksums."""
        with self._mutex, storage_errors(self.path):
            if not has_checksums(self._connection, table):
                return set()
            rows = self._connection.execute(f"SELECT * FROM {table}")
            return {row[0] for row in rows if is_damaged(row)}

    def _name(self, number: int, *, trusts_plan: bool) -> str:
        names = [
            "SELECT o.name || '_' || c.name FROM plan p JOIN operations o"
            " ON o.id = p.operation JOIN configurations c ON c.id = p.configuration"
            " WHERE p.id = ?",
            "SELECT dispatch FROM records WHERE id = ?",
        ]
        for statement in names if trusts_plan else names[1:]:
            if rows := self._query(statement, (number,)):
                return str(rows[0][0])
        return f"dispatch {number}"

    def remarks(self) -> list[str]:
        """What a report has to state about its completeness, in sentences: rows of the plan
        without a result, and what is damaged."""
        remarks = []
        finished, total = sum(self.outcome_counts().values()), self.total()
        found = self.damaged_dispatches()
        if damaged_ones := list(found.values()):
            remarks.append(
                f"{len(damaged_ones)} damaged in the journal and left out: "
                f"{listed(damaged_ones, _MOST_NAMED)}. The same command measures them again."
            )
            finished -= len(found) - len(self.without_record(found))
        if self.lost:
            remarks.append(f"{self.lost[:1].upper()}{self.lost[1:]}.")
        if total and finished < total:
            remarks.append(f"{max(finished, 0):,} of {total:,} planned dispatches have a result; "
                           "the command that made the experiment measures the rest.")  # fmt: skip
        return remarks

    def samples(self, record: Record) -> list[float]:
        """Raw samples of `record` in ns per launch, in the order they were taken."""
        return [sample for blob, _ in self._rounds_of(record) for sample in _floats(blob)]

    def turns(self, record: Record) -> dict[int, list[float]]:
        """The samples of `record` by the turn of their round; rounds without a turn are left
        out."""
        found: dict[int, list[float]] = {}
        for blob, text in self._rounds_of(record):
            turn = msgspec.json.decode(text).get("turn")
            if turn:
                found.setdefault(turn, []).extend(_floats(blob))
        return found

    def _rounds_of(self, record: Record) -> list[tuple[bytes, str]]:
        return self._query(
            "SELECT r.samples, r.document FROM records d JOIN rounds r ON r.dispatch = d.id WHERE"
            " d.dispatch = ? AND d.target = ? AND d.device = ? AND d.provider = ?"
            " AND d.environment = ? AND d.distribution = ? AND d.seed = ? ORDER BY r.round",
            (
                record.dispatch,
                record.target,
                record.device,
                record.provider,
                record.environment_id,
                record.distribution,
                record.seed,
            ),
        )

    def environments(self) -> dict[str, Environment]:
        """Every environment that records reference, by id."""
        rows = self._query("SELECT id, document FROM environments")
        damaged_ones = self._damaged_keys("environments")
        with self._decoding("an environment"):
            return {
                key: msgspec.json.decode(text, type=Environment)
                for key, text in rows
                if key not in damaged_ones
            }

    def result_set(self) -> ResultSet:
        """All results, loaded; samples stay in the journal until they are needed."""
        return ResultSet(
            title=self.manifest.name,
            records=list(self.records()),
            environments=self.environments(),
            samples=self.samples,
            rounds=self.turns,
            command=self.manifest.commands[-1] if self.manifest.commands else "",
            path=str(self.path),
            created=self.manifest.created,
            document=self.manifest.document,
            planned=self.total() or None,
            remarks=tuple(self.remarks()),
        )

    def total(self) -> int:
        """Number of dispatches in the plan."""
        return int(self._query("SELECT count(*) FROM plan")[0][0])

    def outcome_counts(self) -> dict[str, int]:
        """Number of records by outcome."""
        return dict(self._query("SELECT outcome, count(*) FROM records GROUP BY outcome"))

    def operations_without_ok(self, excused: Collection[str] = ()) -> int:
        """Finished operations without an ok dispatch, unless all their outcomes are in
        `excused`."""
        rows = self._query(
            "SELECT count(*) FROM (SELECT 1 FROM records GROUP BY operation HAVING"
            f" sum(outcome = 'ok') = 0 AND sum(outcome NOT IN ({question_marks(excused)})) > 0)",
            tuple(excused),
        )
        return int(rows[0][0])

    def lanes(self) -> list[Lane]:
        """The plan's provider × target pairs."""
        rows = self._query("SELECT id, provider, options, target FROM lanes ORDER BY id")
        return [creation.decode_lane(row) for row in rows]

    def remaining(self, lanes: Sequence[int] | None = None) -> Iterator[PlannedDispatch]:
        """Dispatches of `lanes` without a record, in plan order, read page by page."""
        of_lanes = "" if lanes is None else f"AND p.lane IN ({','.join(map(str, lanes))})"
        return self._plan_rows(f"r.id IS NULL {of_lanes}")

    def without_record(self, dispatches: Collection[int]) -> set[int]:
        """Those of `dispatches`, given by number, that have no record yet."""
        rows = self._query(
            f"SELECT id FROM records WHERE id IN ({question_marks(dispatches)})",
            tuple(dispatches),
        )
        return set(dispatches) - {number for (number,) in rows}

    def planned(self) -> Iterator[PlannedDispatch]:
        """All dispatches of the plan, in plan order, read page by page."""
        return self._plan_rows("TRUE")

    def _plan_rows(self, where: str) -> Iterator[PlannedDispatch]:
        rows = self._pages(
            "SELECT p.id, o.name, p.lane, c.name FROM plan p"
            " JOIN operations o ON o.id = p.operation"
            " JOIN configurations c ON c.id = p.configuration"
            " LEFT JOIN records r ON r.id = p.id"
            f" WHERE {where} AND p.id > ? ORDER BY p.id LIMIT ?"
        )
        return (PlannedDispatch(*row) for row in rows)

    def rounds(self, dispatches: Iterable[int]) -> dict[int, list[StoredRound]]:
        """Stored rounds of the dispatches that have any, in order."""
        found: dict[int, list[StoredRound]] = {}
        for dispatch in dispatches:
            rows = self._query(
                "SELECT round, samples, seconds, document, environment FROM rounds"
                " WHERE dispatch = ?"
                " ORDER BY round",
                (dispatch,),
            )
            if rows:
                found[dispatch] = [
                    StoredRound(
                        dispatch,
                        number,
                        np.frombuffer(blob),
                        seconds,
                        msgspec.json.decode(text),
                        environment,
                    )
                    for number, blob, seconds, text, environment in rows
                ]
        return found

    def verdicts(self, dispatches: Iterable[int]) -> dict[int, Verdict]:
        """Stored verdicts of the unfinished dispatches that have one, of this environment."""
        found: dict[int, Verdict] = {}
        for dispatch in dispatches:
            rows = self._query(
                "SELECT document FROM verdicts WHERE dispatch = ? AND environment IN"
                f" ({question_marks(self._alike)})",
                (dispatch, *self._alike),
            )
            if rows:
                with self._decoding("a verdict"):
                    found[dispatch] = msgspec.json.decode(rows[0][0], type=Verdict)
        return found

    def device_losses(self) -> dict[int, int]:
        """How often the device was lost while each unfinished dispatch ran."""
        rows = self._query(
            "SELECT dispatch, times FROM device_losses"
            " WHERE dispatch NOT IN (SELECT id FROM records)"
        )
        return dict(rows)

    def samples_count(self) -> int:
        """Number of samples stored so far, of finished and started dispatches."""
        return int(self._query("SELECT coalesce(sum(length(samples)), 0) / 8 FROM rounds")[0][0])

    def last_number(self) -> int:
        """The number of the plan's last dispatch; 0 if it has none."""
        return int(self._query("SELECT coalesce(max(id), 0) FROM plan")[0][0])

    def _pages(self, statement: str, after: int = 0) -> Iterator[tuple[Any, ...]]:
        """The rows of `statement`, read page by page; its parameters are a number, which the first
        column of its rows exceeds, and the most rows of a page."""
        while True:
            rows = self._query(statement, (after, _PAGE))
            yield from rows
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    @contextmanager
    def _decoding(self, what: str) -> Iterator[None]:
        try:
            yield
        except (msgspec.MsgspecError, ValueError) as error:
            raise damaged(self.path, f"{what} cannot be read: {error}") from error

    def _query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._mutex, storage_errors(self.path):
            return self._connection.execute(sql, parameters).fetchall()


def _floats(blob: bytes) -> list[float]:
    return [float(value) for value in np.frombuffer(blob)]


def question_marks(values: Collection[object]) -> str:
    """Placeholders for `values` in a statement."""
    return ", ".join("?" * len(values))


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
