"""Reads an experiment's journal page by page, also while a run writes to it.

Adds the missing parts of a plan to a journal that holds another plan, in one transaction.

Existing rows and their numbers do not change; new dispatches are appended. A kill before the commit
leaves the old plan, a kill after it the larger one.

An experiment folder: ``manifest.json``, ``journal.sqlite``, ``references/``, ``artifacts/``.

One process writes it (:meth:`Experiment.create_or_open`), and any number may read it at the same
time (:meth:`Experiment.open`). A commit is on disk when the call returns.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from gemmetry.domain.dispatch import Plan
from gemmetry.domain.errors import PlanMismatchError, listed
from gemmetry.domain.files import remove
from gemmetry.domain.record import Environment, Record, ResultSet, Verdict
from gemmetry.engine import schema

_RECORD_DECODER = msgspec.json.Decoder(Record)
_MOST_NAMED = 5
_PAGE = 4096
"""Rows read at a time while streaming; limits memory, not results."""


Obstacles = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
"""Maps the documents of a folder's plan and another plan to the reasons why they cannot share the
folder."""

EnumeratePlan = Callable[[], tuple[Sequence[schema.Lane], Iterable[schema.PlanBatch]]]
"""Enumerates the plan's rows; called only when a new journal is created."""


@dataclass(eq=False, repr=False)
class Experiment:
    """The folder of one run. Methods raise JournalDamagedError where the journal cannot be read,
    and those that write StorageError where writing fails."""

    path: Path
    manifest: schema.Manifest
    _connection: sqlite3.Connection
    _folder_lock: schema.FolderLock | None = None
    alike: Sequence[str] = ()
    """The ids of environments that agree with this writer's."""
    lost: str = ""
    """What a damaged log hides, in a sentence; "" if it hides nothing."""
    is_new: bool = False
    """True if :meth:`create_or_open` created the experiment instead of resuming it."""
    must_grow: bool = False
    """True if the journal does not hold the plan passed to :meth:`create_or_open`."""

    def __post_init__(self) -> None:
        self._mutex = threading.RLock()
        self._damaged: dict[int, str] | None = None
        self._environment_id = ""

    # -- opening -----------------------------------------------------------------------------

    @classmethod
    def open(cls, path: Path) -> Experiment:
        """Open for reading, also during a run, which is not disturbed.

        Raises:
            RequestError: the folder holds no experiment. JournalDamagedError: it cannot be read.
        """
        if not (path / schema.JOURNAL_NAME).is_file():
            raise schema.missing_experiment(path)
        manifest = schema.read_manifest(path)
        if manifest is None:
            raise schema.damaged(
                path, "its manifest.json is missing; the same profile command creates it"
            )
        schema.check_journal(path)
        lost = "" if schema.is_locked(path) else schema.lost_in_log(path)
        with schema.storage_errors(path):
            return cls(path, manifest, schema.connect_reader(path / schema.JOURNAL_NAME), lost=lost)

    @classmethod
    def create_or_open(
        cls,
        path: Path,
        plan: Plan,
        *,
        fresh: bool = False,
        environment: Environment,
        command: str = "",
        enumerate_plan: EnumeratePlan | None = None,
        obstacles: Obstacles = schema.plan_differences,
        older_plans_grow: bool = False,
    ) -> Experiment:
        """Open for writing: resume the run of `plan` in `path`, or create a new journal.

        Where the folder is another plan's and `obstacles` finds none, :attr:`must_grow` is set, and
        the caller is to call :meth:`grow`; with `older_plans_grow` also where the folder has grown
        beyond `plan`, some of whose results it may lack. By default no journal grows.

        `fresh` moves an existing journal to ``previous/`` (replacing its contents), or, if it
        cannot be read, to ``damaged-1/``, ``damaged-2/`` ...

        Raises:
            PlanMismatchError: the folder belongs to another plan.
            JournalDamagedError: the journal or manifest cannot be read; nothing is changed.
            StorageError: the folder cannot be written.
            RequestError: another process is using the folder.
        """
        head = schema.Manifest(name=plan.name, plan_hash=plan.hash, document=dict(plan.document))
        with schema.storage_errors(path):
            existed = path.exists()
            path.mkdir(parents=True, exist_ok=True)
            lock = schema.FolderLock(path)
        try:
            lost = schema.lost_in_log(path)
            with schema.storage_errors(path):
                manifest = None if fresh else _resumable(path, head, obstacles)
                is_new = manifest is None
                if manifest is None:
                    plan_of = enumerate_plan or (lambda: ((), ()))
                    manifest = schema.create(
                        path, head, command, lambda new: schema.store_plan(new, *plan_of())
                    )
                elif manifest.with_command(command) != manifest:
                    manifest = manifest.with_command(command)
                    schema.write_manifest(path, manifest)
                connection = schema.connect_writer(path / schema.JOURNAL_NAME)
            experiment = cls(path, manifest, connection, lock, is_new=is_new)
            experiment.lost = "" if is_new else lost
            newest, hashes = _plan_hashes(connection)
            is_older = older_plans_grow and plan.hash != newest
            experiment.must_grow = is_older or plan.hash not in hashes
            experiment._environment_id = environment.id
            experiment.add_environments([environment])
            known = experiment.environments().items()
            experiment.alike = [key for key, one in known if one.agrees_with(environment)]
        except BaseException:
            if not existed and not (path / schema.JOURNAL_NAME).exists():
                # Only what was made here, and while it is locked: others may use the folder.
                with contextlib.suppress(OSError):
                    remove(path / schema.LOCK_NAME, inside=path)
                    path.rmdir()
            lock.release()
            raise
        return experiment

    def close(self) -> None:
        """Close the journal and let other processes write."""
        with self._mutex:
            self._connection.close()
            if self._folder_lock is not None:
                self._folder_lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- reading -----------------------------------------------------------------------------

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
                record = schema.without_unfounded_interval(_RECORD_DECODER.decode(document))
            yield number, record

    def damaged_dispatches(self) -> dict[int, str]:
        """Dispatches of which a stored row, or that of the environment, does not agree with its
        checksum, by number, and their names. Their records are left out of all others."""
        if self._damaged is None:
            keys = {table: self._damaged_keys(table) for table in schema.CHECKED_TABLES}
            found = set().union(*(keys[table] for table in schema.CHECKED_TABLES[:-1]))
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
        with self._mutex, schema.storage_errors(self.path):
            if not schema.has_checksums(self._connection, table):
                return set()
            rows = self._connection.execute(f"SELECT * FROM {table}")
            return {row[0] for row in rows if schema.is_damaged(row)}

    def _name(self, number: int, *, trusts_plan: bool) -> str:
        planned = [one.name for one in self._plan_rows(f"p.id = {number}") if trusts_plan]
        stored = self._query("SELECT dispatch FROM records WHERE id = ?", (number,))
        return str([*planned, *(name for (name,) in stored), f"dispatch {number}"][0])

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
            finished -= len(found) - len(self.unfinished(found))
        if self.lost:
            remarks.append(f"{self.lost[:1].upper()}{self.lost[1:]}.")
        if total and finished < total:
            remarks.append(f"{max(finished, 0):,} of {total:,} planned dispatches have a result; "
                           "the command that made the experiment measures the rest.")  # fmt: skip
        return remarks

    def samples(self, record: Record) -> list[float]:
        """Raw samples of `record` in ns per launch, in the order they were taken."""
        return [float(one) for blob, _ in self._rounds_of(record) for one in np.frombuffer(blob)]

    def turns(self, record: Record) -> dict[int, list[float]]:
        """The samples of `record` by the turn of their round; rounds without a turn are left
        out."""
        found: dict[int, list[float]] = {}
        for blob, text in self._rounds_of(record):
            if turn := msgspec.json.decode(text).get("turn"):
                found.setdefault(turn, []).extend(map(float, np.frombuffer(blob)))
        return found

    def _rounds_of(self, record: Record) -> list[tuple[bytes, str]]:
        return self._query(
            "SELECT r.samples, r.document FROM records d JOIN rounds r ON r.dispatch = d.id WHERE"
            " d.dispatch = ? AND d.target = ? AND d.device = ? AND d.provider = ?"
            " AND d.environment = ? AND d.distribution = ? AND d.seed = ? ORDER BY r.round",
            (record.dispatch, record.target, record.device, record.provider,
             record.environment_id, record.distribution, record.seed),
        )  # fmt: skip

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

    def lacks_ok(self, excused: Collection[str] = (), *, provider: str = "") -> bool:
        """Whether some operation, or `provider` if given, has finished dispatches but none that is
        ok. Outcomes in `excused` alone are no reason."""
        group = "provider" if provider else "operation"
        rows = self._query(
            f"SELECT EXISTS(SELECT 1 FROM records WHERE ? IN ('', provider) GROUP BY {group} HAVING"
            f" sum(outcome = 'ok') = 0 AND sum(outcome NOT IN ({question_marks(excused)})) > 0)",
            (provider, *excused),
        )
        return bool(rows[0][0])

    def lanes(self) -> list[schema.Lane]:
        """The plan's provider × target pairs."""
        rows = self._query("SELECT id, provider, options, target FROM lanes ORDER BY id")
        return [schema.decode_lane(row) for row in rows]

    def remaining(self, lanes: Sequence[int] | None = None) -> Iterator[schema.PlannedDispatch]:
        """Dispatches of `lanes` without a record, in plan order, read page by page."""
        of_lanes = "" if lanes is None else f"AND p.lane IN ({','.join(map(str, lanes))})"
        return self._plan_rows(f"r.id IS NULL {of_lanes}")

    def unfinished(self, dispatches: Collection[int]) -> set[int]:
        """Those of `dispatches`, given by number, that have no record yet."""
        rows = self._query(
            f"SELECT id FROM records WHERE id IN ({question_marks(dispatches)})",
            tuple(dispatches),
        )
        return set(dispatches) - {number for (number,) in rows}

    def planned(self) -> Iterator[schema.PlannedDispatch]:
        """All dispatches of the plan, in plan order, read page by page."""
        return self._plan_rows("TRUE")

    def _plan_rows(self, where: str) -> Iterator[schema.PlannedDispatch]:
        rows = self._pages(
            "SELECT p.id, o.name, p.lane, c.name FROM plan p"
            " JOIN operations o ON o.id = p.operation"
            " JOIN configurations c ON c.id = p.configuration"
            " LEFT JOIN records r ON r.id = p.id"
            f" WHERE {where} AND p.id > ? ORDER BY p.id LIMIT ?"
        )
        return (schema.PlannedDispatch(*row) for row in rows)

    def rounds(self, dispatches: Iterable[int]) -> dict[int, list[schema.StoredRound]]:
        """Stored rounds of the dispatches that have any, in order."""
        from gemmetry.measurement.stopping import Round

        statement = (
            "SELECT round, samples, document, environment FROM rounds"
            " WHERE dispatch = ? ORDER BY round"
        )
        found: dict[int, list[schema.StoredRound]] = {}
        for key in dispatches:
            for number, blob, text, place in self._query(statement, (key,)):
                document = msgspec.json.decode(text)
                document["samples_ns"] = np.frombuffer(blob).tolist()
                one = schema.StoredRound(key, number, msgspec.convert(document, Round), place)
                found.setdefault(key, []).append(one)
        return found

    def verdicts(self, dispatches: Iterable[int]) -> dict[int, Verdict]:
        """Stored verdicts of the unfinished dispatches that have one, of this environment."""
        statement = (
            "SELECT document FROM verdicts WHERE dispatch = ? AND environment IN"
            f" ({question_marks(self.alike)})"
        )
        with self._decoding("a verdict"):
            return {
                key: msgspec.json.decode(text, type=Verdict)
                for key in dispatches
                for (text,) in self._query(statement, (key, *self.alike))
            }

    def device_losses(self) -> dict[int, int]:
        """Number of times the device was lost while each unfinished dispatch ran."""
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

    # -- writing -----------------------------------------------------------------------------

    def add_rounds(
        self, rounds: Sequence[schema.StoredRound], verdicts: Mapping[int, Verdict] | None = None
    ) -> None:
        """Store rounds, and verdicts of unfinished dispatches, in one transaction.

        A round that is already stored is an error; a verdict replaces an older one.
        """
        mine = self._environment_id
        judged = [
            schema.with_checksum((key, mine, msgspec.json.encode(verdict)))
            for key, verdict in (verdicts or {}).items()
        ]
        rows = [
            schema.round_row(replace(one, environment=one.environment or mine)) for one in rounds
        ]
        with self._transaction() as connection:
            connection.executemany(schema.INSERT_ROUND, rows)
            connection.executemany(schema.SET_VERDICT, judged)

    def drop_rounds(self, dispatches: Collection[int]) -> int:
        """Delete rounds and verdicts of unfinished dispatches, which start again. Returns the
        number of deleted samples."""
        where = f"dispatch IN ({question_marks(dispatches)})"
        return self._drop(("rounds", "verdicts"), where, tuple(dispatches))

    def drop_foreign_rounds(self) -> int:
        """Delete rounds of unfinished dispatches from other environments: one measurement must not
        mix samples of two environments. Returns the number of deleted samples."""
        known = question_marks(self.alike)
        where = f"environment NOT IN ({known}) AND dispatch NOT IN (SELECT id FROM records)"
        return self._drop(("rounds",), where, self.alike)

    def _drop(self, tables: Sequence[str], where: str, parameters: Sequence[object]) -> int:
        count = f"SELECT coalesce(sum(length(samples)), 0) / 8 FROM rounds WHERE {where}"
        with self._transaction() as connection:
            (dropped,) = connection.execute(count, parameters).fetchone()
            for table in tables:
                connection.execute(f"DELETE FROM {table} WHERE {where}", parameters)
        return int(dropped)

    def grow(
        self,
        plan: Plan,
        lanes: Sequence[schema.Lane],
        batches: Iterable[schema.PlanBatch],
        again: Again,
    ) -> None:
        """Add the missing parts of `plan`, all or nothing; see
        :mod:`gemmetry.engine.experiment`."""
        with self._transaction() as connection:
            add_plan(connection, lanes, batches, again, self._environment_id)
            hashes = [(self.manifest.plan_hash,), (plan.hash,)]
            connection.executemany("INSERT OR IGNORE INTO plans VALUES(?)", hashes)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'plan_hash'", (plan.hash,))
        self.manifest = replace(self.manifest, plan_hash=plan.hash, document=dict(plan.document))
        self.must_grow = False
        with schema.storage_errors(self.path):
            schema.write_manifest(self.path, self.manifest)

    def add_environments(self, environments: Iterable[Environment]) -> None:
        """Store the data referenced by records that are carried over from another journal."""
        with self._transaction() as connection:
            connection.executemany(schema.SET_ENVIRONMENT, schema.environment_rows(environments))

    def count_device_loss(self, dispatch: int) -> int:
        """Record that the device was lost while `dispatch` ran. Returns how often that has happened
        so far."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO device_losses VALUES(?, 1)"
                " ON CONFLICT(dispatch) DO UPDATE SET times = times + 1",
                (dispatch,),
            )
        return self.device_losses().get(dispatch, 0)

    def finish(self, records: Mapping[int, Record]) -> None:
        """Store the records of dispatches (by their plan id) in one transaction."""
        if not records:
            return
        finished_ns = time.time_ns()
        rows = [schema.record_row(key, record, finished_ns) for key, record in records.items()]
        with self._transaction() as connection:
            connection.executemany(schema.INSERT_RECORD, rows)
            # The record has it now.
            finished = ((key,) for key in records)
            connection.executemany("DELETE FROM verdicts WHERE dispatch = ?", finished)

    def amend(self, number: int, record: Record) -> None:
        """Replace the record of a finished dispatch by one with further facts."""
        with self._transaction() as connection:
            before = connection.execute("SELECT * FROM records WHERE id = ?", (number,)).fetchone()
            after = schema.with_checksum((*before[:11], msgspec.json.encode(record)))
            connection.execute(
                "UPDATE records SET document = ?, crc = ? WHERE id = ?", (*after[11:], number)
            )

    def host_bandwidth(self, measure: Callable[[], float | None]) -> float | None:
        """Memory bandwidth of the host in bytes per second: the value stored when this environment
        was first used here, else the result of `measure`, which is then stored. A resumed run thus
        uses the same roof; the number is not part of the environment because it is noisy."""
        key = f"host_bytes_per_s {self._environment_id}"
        if rows := self._query("SELECT value FROM meta WHERE key = ?", (key,)):
            return float(rows[0][0])
        if (found := measure()) is not None:
            with self._transaction() as connection:
                connection.execute("INSERT OR IGNORE INTO meta VALUES(?, ?)", (key, repr(found)))
        return found

    def drop_damaged(self) -> list[str]:
        """Delete what is left of dispatches with damaged rows, which start again; where rows of the
        plan are damaged, :attr:`must_grow` is set. Returns the names of the dispatches."""
        found = self.damaged_dispatches()
        plan, environments = map(self._damaged_keys, ("plan", "environments"))
        self.must_grow = self.must_grow or bool(plan)
        with self._transaction() as connection:
            for table, key, values in (
                ("plan", "id", plan), ("environments", "id", environments),
                ("records", "id", found), ("rounds", "dispatch", found),
                ("verdicts", "dispatch", found),
            ):  # fmt: skip
                statement = f"DELETE FROM {table} WHERE {key} = ?"
                connection.executemany(statement, [(value,) for value in values])
        self._damaged = {}
        return list(found.values())

    # -- inside ------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._mutex, schema.storage_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

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
            raise schema.damaged(self.path, f"{what} cannot be read: {error}") from error

    def _query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._mutex, schema.storage_errors(self.path):
            return self._connection.execute(sql, parameters).fetchall()


def _plan_hashes(connection: sqlite3.Connection) -> tuple[str, set[str]]:
    """Hashes of the plan that was added last, and of all plans in the journal; a journal of an
    older gemmetry has only one."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'plan_hash'").fetchall()
    with contextlib.suppress(sqlite3.OperationalError):
        found += connection.execute("SELECT hash FROM plans").fetchall()
    return (found[0][0] if found else ""), {row[0] for row in found}


def _resumable(path: Path, head: schema.Manifest, obstacles: Obstacles) -> schema.Manifest | None:
    """The manifest of the experiment to resume; None if the folder has no journal yet."""
    if not (path / schema.JOURNAL_NAME).exists():
        return None
    meta = schema.check_journal(path)
    manifest = schema.read_manifest(path)
    with closing(schema.connect_reader(path / schema.JOURNAL_NAME)) as connection:
        newest, hashes = _plan_hashes(connection)
    is_known, is_newest = head.plan_hash in hashes, head.plan_hash == newest
    theirs = manifest.name if manifest else "?"
    differences = ""
    if manifest is not None and not is_newest:
        # Checked for earlier plans too: the folder may have more repeats by now.
        differences = obstacles(manifest.document, head.document)
        if not differences:
            return manifest
        is_known = False
    if not is_known:
        raise PlanMismatchError(
            f"{path} belongs to the plan {theirs} ({meta.get('plan_hash')}), "
            f"but this command creates the plan {head.name} ({head.plan_hash})"
            + (f"; they differ in {differences}" if differences else ""),
            hint="Give another folder with --experiment, or add --fresh to set the old results "
            "aside and start again.",
        )
    if manifest is None:
        manifest = replace(head, created=meta["created"])
        schema.write_manifest(path, manifest)
    elif is_newest and manifest.plan_hash != head.plan_hash:
        # A run was killed after the journal had grown, but before the manifest had.
        manifest = replace(manifest, plan_hash=head.plan_hash, document=head.document)
        schema.write_manifest(path, manifest)
    return manifest


def question_marks(values: Collection[object]) -> str:
    """Placeholders for `values` in a statement."""
    return ", ".join("?" * len(values))


_INSERT = (
    "INSERT INTO plan(operation, lane, configuration) SELECT ?, ?, ? WHERE NOT EXISTS"
    " (SELECT 1 FROM temp.known WHERE operation = ? AND lane = ? AND configuration = ?)"
)


Again = Mapping[int, Verdict | None]
"""Finished dispatches, by number, of which a larger plan requires more. Their rounds are kept, and
with the verdict they continue where they stopped."""


def add_plan(
    connection: sqlite3.Connection,
    lanes: Sequence[schema.Lane],
    batches: Iterable[schema.PlanBatch],
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
            row = (operations[operation], numbers[lane], configurations[configuration])
            if number not in finished:
                rows.append(row * 2)
                continue
            cursor = connection.execute(_INSERT, row * 2)
            if cursor.rowcount and cursor.lastrowid:
                connection.execute(
                    schema.INSERT_RECORD, schema.record_row(cursor.lastrowid, finished[number], 0)
                )
        connection.executemany(_INSERT, rows)
    connection.execute("DELETE FROM temp.known")
    added = connection.execute(
        "SELECT id, operation, lane, configuration FROM plan WHERE id > ?", (last,)
    ).fetchall()
    connection.executemany(
        "UPDATE plan SET crc = ? WHERE id = ?", [(schema.checksum(row), row[0]) for row in added]
    )
    for number, verdict in again.items():
        connection.execute("DELETE FROM records WHERE id = ?", (number,))
        if verdict is not None:
            text = msgspec.json.encode(verdict)
            connection.execute(
                schema.SET_VERDICT, schema.with_checksum((number, environment, text))
            )


class _Names(dict[int, int]):
    """Add a table of names. Maps the plan's numbers of the names to the journal's."""

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        super().__init__()
        self._connection = connection
        self._insert = f"INSERT INTO {table}(name) VALUES(?)"
        self._known: dict[str, int] = dict(connection.execute(f"SELECT name, id FROM {table}"))

    def take(self, names: Iterable[tuple[int, str]]) -> None:
        for number, name in names:
            if name not in self._known:
                self._known[name] = self._connection.execute(self._insert, (name,)).lastrowid or 0
            self[number] = self._known[name]


def _add_lanes(connection: sqlite3.Connection, lanes: Sequence[schema.Lane]) -> dict[int, int]:
    """The journal's number of each lane."""
    rows = connection.execute("SELECT id, provider, options, target FROM lanes").fetchall()
    known = {lane.place: lane.id for lane in map(schema.decode_lane, rows)}
    numbers = {}
    for lane in lanes:
        number = known.get(lane.place) or max(known.values(), default=0) + 1
        known[lane.place] = numbers[lane.id] = number
        row = schema.lane_row(replace(lane, id=number))
        connection.execute("INSERT OR REPLACE INTO lanes VALUES(?, ?, ?, ?)", row)
    return numbers
