"""An experiment folder: ``manifest.json``, ``journal.sqlite``, ``references/``, ``artifacts/``.

One process writes it (:meth:`Experiment.create_or_open`), and any number may read it at the same
time (:meth:`Experiment.open`). A commit is on disk when the call returns.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from gemmetry.domain.dispatch import Plan
from gemmetry.domain.errors import PlanMismatchError
from gemmetry.domain.files import remove
from gemmetry.domain.record import Environment, Record, Verdict
from gemmetry.engine.store import creation
from gemmetry.engine.store.creation import (
    LOCK_NAME,
    FolderLock,
    Manifest,
    is_locked,
    missing_experiment,
    plan_differences,
    read_manifest,
    write_manifest,
)
from gemmetry.engine.store.reading import Again, StoredResults, add_plan, question_marks
from gemmetry.engine.store.rows import Lane, PlanBatch, StoredRound
from gemmetry.engine.store.schema import (
    JOURNAL_NAME,
    check_journal,
    connect_reader,
    connect_writer,
    damaged,
    lost_in_log,
    storage_errors,
    with_checksum,
)

Obstacles = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
"""Maps the documents of a folder's plan and another plan to the reasons why they cannot share the
folder."""

EnumeratePlan = Callable[[], tuple[Sequence[Lane], Iterable[PlanBatch]]]
"""Enumerates the plan's rows; called only when a new journal is created."""


class Experiment(StoredResults):
    """The folder of one run. Methods that write raise StorageError where writing fails."""

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        connection: sqlite3.Connection,
        lock: FolderLock | None = None,
    ) -> None:
        super().__init__(path, manifest, connection)
        self._folder_lock = lock
        self._environment_id = ""
        self.is_new = False
        """True if :meth:`create_or_open` created the experiment instead of resuming it."""
        self.must_grow = False
        """True if the journal does not hold the plan passed to :meth:`create_or_open`."""

    # -- opening -----------------------------------------------------------------------------

    @classmethod
    def open(cls, path: Path) -> Experiment:
        """Open for reading, also during a run, which is not disturbed.

        Raises:
            RequestError: the folder holds no experiment. JournalDamagedError: it cannot be read.
        """
        if not (path / JOURNAL_NAME).is_file():
            raise missing_experiment(path)
        manifest = read_manifest(path)
        if manifest is None:
            raise damaged(path, "its manifest.json is missing; the same profile command creates it")
        check_journal(path)
        lost = "" if is_locked(path) else lost_in_log(path)
        with storage_errors(path):
            found = cls(path, manifest, connect_reader(path / JOURNAL_NAME))
        found.lost = lost
        return found

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
        obstacles: Obstacles | None = None,
        older_plans_grow: bool = False,
    ) -> Experiment:
        """Open for writing: resume the run of `plan` in `path`, or create a new journal.

        Where the folder is another plan's and `obstacles` finds none, :attr:`must_grow` is set, and
        the caller is to call :meth:`grow`; with `older_plans_grow` also where the folder has grown
        beyond `plan`, some of whose results it may lack. Without `obstacles` no journal grows.

        `fresh` moves an existing journal to ``previous/`` (replacing its contents), or, if it
        cannot be read, to ``damaged-1/``, ``damaged-2/`` ...

        Raises:
            PlanMismatchError: the folder belongs to another plan.
            JournalDamagedError: the journal or manifest cannot be read; nothing is changed.
            StorageError: the folder cannot be written.
            RequestError: another process is using the folder.
        """
        head = Manifest(name=plan.name, plan_hash=plan.hash, document=dict(plan.document))
        with storage_errors(path):
            existed = path.exists()
            path.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(path)
        try:
            lost = lost_in_log(path)
            with storage_errors(path):
                manifest = None if fresh else _resumable(path, head, obstacles)
                is_new = manifest is None
                if manifest is None:
                    manifest = creation.create(path, head, command, enumerate_plan)
                elif manifest.with_command(command) != manifest:
                    manifest = manifest.with_command(command)
                    write_manifest(path, manifest)
                connection = connect_writer(path / JOURNAL_NAME)
            experiment = cls(path, manifest, connection, lock)
            experiment.is_new = is_new
            experiment.lost = "" if is_new else lost
            newest, hashes = _plan_hashes(connection)
            is_older = older_plans_grow and plan.hash != newest
            experiment.must_grow = is_older or plan.hash not in hashes
            experiment._set_environment(environment)
        except BaseException:
            if not existed and not (path / JOURNAL_NAME).exists():
                # Only what was made here, and while it is locked: others may use the folder.
                with contextlib.suppress(OSError):
                    remove(path / LOCK_NAME, inside=path)
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

    # -- writing -----------------------------------------------------------------------------

    def add_rounds(
        self, rounds: Sequence[StoredRound], verdicts: Mapping[int, Verdict] | None = None
    ) -> None:
        """Store rounds, and verdicts of unfinished dispatches, in one transaction.

        A round that is already stored is an error; a verdict replaces an older one.
        """
        judged = [
            with_checksum((key, self._environment_id, msgspec.json.encode(verdict)))
            for key, verdict in (verdicts or {}).items()
        ]
        rows = [
            with_checksum(
                (
                    one.dispatch,
                    one.round,
                    one.environment or self._environment_id,
                    float(one.seconds),
                    np.ascontiguousarray(one.samples, dtype=np.float64).tobytes(),
                    msgspec.json.encode(one.document),
                )
            )
            for one in rounds
        ]
        with self._transaction() as connection:
            connection.executemany(creation.INSERT_ROUND, rows)
            connection.executemany(creation.SET_VERDICT, judged)

    def drop_rounds(self, dispatches: Collection[int]) -> int:
        """Delete rounds and verdicts of unfinished dispatches, which start again. Returns the
        number of deleted samples."""
        keys = tuple(dispatches)
        where = f"dispatch IN ({question_marks(keys)})"
        with self._transaction() as connection:
            dropped = connection.execute(
                f"SELECT coalesce(sum(length(samples)), 0) / 8 FROM rounds WHERE {where}", keys
            ).fetchone()[0]
            connection.execute(f"DELETE FROM rounds WHERE {where}", keys)
            connection.execute(f"DELETE FROM verdicts WHERE {where}", keys)
        return int(dropped)

    @property
    def alike(self) -> Sequence[str]:
        """The ids of environments that agree with this writer's."""
        return self._alike

    def is_alike(self, record: Record) -> bool:
        """Whether `record` comes from this writer's environment, disregarding packages that only
        one of the two lists."""
        return record.environment_id in self._alike

    def grow(
        self, plan: Plan, lanes: Sequence[Lane], batches: Iterable[PlanBatch], again: Again
    ) -> None:
        """Add the missing parts of `plan`, all or nothing; see
        :mod:`gemmetry.engine.store.reading`."""
        with self._transaction() as connection:
            add_plan(connection, lanes, batches, again, self._environment_id)
            hashes = [(self.manifest.plan_hash,), (plan.hash,)]
            connection.executemany("INSERT OR IGNORE INTO plans VALUES(?)", hashes)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'plan_hash'", (plan.hash,))
        self.manifest = replace(self.manifest, plan_hash=plan.hash, document=dict(plan.document))
        self.must_grow = False
        with storage_errors(self.path):
            write_manifest(self.path, self.manifest)

    def add_environments(self, environments: Iterable[Environment]) -> None:
        """Store the data referenced by records that are carried over from another journal."""
        rows = [with_checksum((one.id, msgspec.json.encode(one))) for one in environments]
        with self._transaction() as connection:
            connection.executemany(creation.SET_ENVIRONMENT, rows)

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
        rows = [creation.record_row(key, record, finished_ns) for key, record in records.items()]
        with self._transaction() as connection:
            connection.executemany(creation.INSERT_RECORD, rows)
            # The record has it now.
            finished = ((key,) for key in records)
            connection.executemany("DELETE FROM verdicts WHERE dispatch = ?", finished)

    def amend(self, number: int, record: Record) -> None:
        """Replace the record of a finished dispatch by one with further facts."""
        with self._transaction() as connection:
            before = connection.execute("SELECT * FROM records WHERE id = ?", (number,)).fetchone()
            after = with_checksum((*before[:11], msgspec.json.encode(record)))
            connection.execute(
                "UPDATE records SET document = ?, crc = ? WHERE id = ?", (*after[11:], number)
            )

    def drop_foreign_rounds(self) -> int:
        """Delete rounds of unfinished dispatches from other environments: one measurement must not
        mix samples of two environments. Returns the number of deleted samples."""
        known = question_marks(self._alike)
        where = f"environment NOT IN ({known}) AND dispatch NOT IN (SELECT id FROM records)"
        with self._transaction() as connection:
            dropped = connection.execute(
                f"SELECT coalesce(sum(length(samples)), 0) / 8 FROM rounds WHERE {where}",
                self._alike,
            ).fetchone()[0]
            connection.execute(f"DELETE FROM rounds WHERE {where}", self._alike)
        return int(dropped)

    def host_bandwidth(self, measure: Callable[[], float | None]) -> float | None:
        """Memory bandwidth of the host in bytes per second: the value stored when this environment
        was first used here, else the result of `measure`, which is then stored. A resumed run thus
        uses the same roof; the number is not part of the environment because it is noisy."""
        key = f"host_bytes_per_s {self._environment_id}"
        rows = self._query("SELECT value FROM meta WHERE key = ?", (key,))
        if rows:
            return float(rows[0][0])
        found = measure()
        if found is not None:
            with self._transaction() as connection:
                connection.execute("INSERT OR IGNORE INTO meta VALUES(?, ?)", (key, repr(found)))
        return found

    def drop_damaged(self) -> list[str]:
        """Delete what is left of dispatches with damaged rows, which start again; where rows of the
        plan are damaged, :attr:`must_grow` is set. Returns the names of the dispatches."""
        found = self.damaged_dispatches()
        rows = {
            "plan": ("id", self._damaged_keys("plan")),
            "environments": ("id", self._damaged_keys("environments")),
            "records": ("id", found),
            "rounds": ("dispatch", found),
            "verdicts": ("dispatch", found),
        }
        self.must_grow = self.must_grow or bool(rows["plan"][1])
        with self._transaction() as connection:
            for table, (key, values) in rows.items():
                connection.executemany(f"DELETE FROM {table} WHERE {key} = ?",
                                       [(value,) for value in values])  # fmt: skip
        self._damaged = {}
        return list(found.values())

    # -- inside ------------------------------------------------------------------------------

    def _set_environment(self, environment: Environment) -> None:
        self._environment_id = environment.id
        self.add_environments([environment])
        known = self.environments().items()
        self._alike = [key for key, other in known if other.agrees_with(environment)]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._mutex, storage_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _plan_hashes(connection: sqlite3.Connection) -> tuple[str, set[str]]:
    """Hashes of the plan that was added last, and of all plans in the journal; a journal of an
    older gemmetry has only one."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'plan_hash'").fetchall()
    with contextlib.suppress(sqlite3.OperationalError):
        found += connection.execute("SELECT hash FROM plans").fetchall()
    return (found[0][0] if found else ""), {row[0] for row in found}


def _resumable(path: Path, head: Manifest, obstacles: Obstacles | None) -> Manifest | None:
    """The manifest of the experiment to resume; None if the folder has no journal yet."""
    if not (path / JOURNAL_NAME).exists():
        return None
    meta = check_journal(path)
    manifest = read_manifest(path)
    with closing(connect_reader(path / JOURNAL_NAME)) as connection:
        newest, hashes = _plan_hashes(connection)
    is_known, is_newest = head.plan_hash in hashes, head.plan_hash == newest
    theirs = manifest.name if manifest else "?"
    differences = ""
    if manifest is not None and obstacles is not None and not is_newest:
        # Checked for earlier plans too: the folder may have more repeats by now.
        differences = obstacles(manifest.document, head.document)
        if not differences:
            return manifest
        is_known = False
    if not is_known:
        if manifest is not None and obstacles is None:
            differences = plan_differences(manifest.document, head.document)
        raise PlanMismatchError(
            f"{path} belongs to the plan {theirs} ({meta.get('plan_hash')}), "
            f"but this command creates the plan {head.name} ({head.plan_hash})"
            + (f"; they differ in {differences}" if differences else ""),
            hint="Give another folder with --experiment, or add --fresh to set the old results "
            "aside and start again.",
        )
    if manifest is None:
        manifest = creation.complete_manifest(head, "", created=meta["created"])
        write_manifest(path, manifest)
    elif is_newest and manifest.plan_hash != head.plan_hash:
        # A run was killed after the journal had grown, but before the manifest had.
        manifest = replace(manifest, plan_hash=head.plan_hash, document=head.document)
        write_manifest(path, manifest)
    return manifest
