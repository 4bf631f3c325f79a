"""Merges experiments: the records, samples, environments and hardware counters of several folders
into a new one.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.domain.errors import RequestError
from gemmetry.domain.files import within
from gemmetry.engine.store.creation import (
    INSERT_RECORD,
    INSERT_ROUND,
    SET_ENVIRONMENT,
    FolderLock,
    Manifest,
    complete_manifest,
    create_filled,
    time_created,
)
from gemmetry.engine.store.experiment import Experiment
from gemmetry.engine.store.schema import (
    JOURNAL_NAME,
    connect_reader,
    is_damaged,
    storage_errors,
    with_checksum,
)


@dataclass(frozen=True, slots=True)
class MergeSummary:
    """Counts of the records of the merged experiments."""

    kept: int
    replaced: int
    """Number of records replaced by a newer record of the same dispatch, conditions and
    environment."""


def merge(paths: Sequence[Path], into: Path, *, command: str = "") -> MergeSummary:
    """Merge the experiments `paths` into one in the folder `into`, which must not hold one yet.

    Records of the same dispatch on the same device with the same environment, distribution and seed
    are repeated measurements of one result: the newest is kept. If any of these differ, they are
    different results, and all are kept, each with its ``environment_id``. Folders with the hardware
    counters of records are copied, under another name where two records have the same.

    Raises:
        RequestError: a path holds no experiment, or `into` already holds one.
        JournalDamagedError: an experiment cannot be read. StorageError: `into` is not writable.
    """
    if len(paths) < 2:
        raise RequestError("merging needs two experiments or more", hint="Name their folders.")
    heads = []
    damaged: dict[Path, Collection[int]] = {}
    for path in paths:
        with Experiment.open(path) as source:
            heads.append(source.manifest)
            damaged[path] = source.damaged_dispatches().keys()
    if (into / JOURNAL_NAME).exists():
        raise RequestError(
            f"{into} already contains an experiment", hint="Name a folder that does not exist yet."
        )
    winners, replaced = _winners(paths, damaged)
    with storage_errors(into):
        into.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(into)
        try:
            create_filled(into, _head(heads, command), lambda new: _copy(new, paths, winners, into))
        finally:
            lock.release()
    return MergeSummary(len(winners), replaced)


def _head(heads: Sequence[Manifest], command: str) -> Manifest:
    hashes = [head.plan_hash for head in heads]
    digest = hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:10]
    name = " + ".join(dict.fromkeys(head.name for head in heads))
    document = {"merged": [{"name": head.name, "plan_hash": head.plan_hash} for head in heads]}
    head = Manifest(name=name, plan_hash=f"merge-{digest}", document=document)
    return complete_manifest(head, command, created=time_created())


def _winners(
    paths: Iterable[Path], damaged: Mapping[Path, Collection[int]]
) -> tuple[dict[tuple[Any, ...], tuple[int, int, int]], int]:
    """Maps each key to (finished_ns, index of the source, id in it) of the newest record. Also
    returns how many records were replaced."""
    newest: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    seen = 0
    for index, path in enumerate(paths):
        with closing(connect_reader(path / JOURNAL_NAME)) as connection:
            rows = connection.execute(
                "SELECT target, device, provider, dispatch, environment, distribution, seed,"
                " finished_ns, id FROM records ORDER BY id"
            )
            for *key, finished_ns, row_id in rows:
                if row_id in damaged[path]:
                    continue
                seen += 1
                candidate = (finished_ns, index, row_id)
                known = newest.get(tuple(key))
                if known is None or candidate > known:
                    newest[tuple(key)] = candidate
    return newest, seen - len(newest)


def _copy(
    new: sqlite3.Connection,
    paths: Sequence[Path],
    winners: dict[tuple[Any, ...], tuple[int, int, int]],
    into: Path,
) -> None:
    next_id = 1
    taken: set[str] = set()
    for index, path in enumerate(paths):
        wanted = sorted(row_id for _, source, row_id in winners.values() if source == index)
        with closing(connect_reader(path / JOURNAL_NAME)) as old:
            new.executemany(
                SET_ENVIRONMENT,
                (
                    with_checksum(row[:2])
                    for row in old.execute("SELECT * FROM environments")
                    if len(row) == 2 or not is_damaged(row)
                ),
            )
            for row_id in wanted:
                record = old.execute("SELECT * FROM records WHERE id = ?", (row_id,)).fetchone()
                *facts, document = record[1:12]
                document = _with_counters(document, paths[index], into, taken)
                new.execute(INSERT_RECORD, with_checksum((next_id, *facts, document)))
                rounds = old.execute(
                    "SELECT round, environment, seconds, samples, document FROM rounds"
                    " WHERE dispatch = ?",
                    (row_id,),
                )
                new.executemany(INSERT_ROUND, (with_checksum((next_id, *row)) for row in rounds))
                next_id += 1


def _with_counters(document: bytes, source: Path, into: Path, taken: set[str]) -> bytes:
    """The document of a record, whose counters, if it has any, are copied to a folder that is not
    in `taken`."""
    record = msgspec.json.decode(document)
    counters = record.get("counters")
    if not counters:
        return document
    folder = counters["folder"]
    origin = within(source, folder)
    names = (folder if number == 1 else f"{folder}-{number}" for number in count(1))
    counters["folder"] = next(name for name in names if name not in taken)
    taken.add(counters["folder"])
    if origin.is_dir():
        # A link in it is copied as what it is, not as the file to which it leads.
        shutil.copytree(origin, into / counters["folder"], symlinks=True, dirs_exist_ok=True)
    return msgspec.json.encode(record)
