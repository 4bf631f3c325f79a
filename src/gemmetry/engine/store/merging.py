"""Merges experiments: the records, samples, environments and hardware counters of several folders
into a new one. All shards of a plan become the experiment of the whole plan.
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

from gemmetry.domain.dispatch import hash_of, parse_shard
from gemmetry.domain.errors import RequestError, listed
from gemmetry.domain.files import within, write_whole
from gemmetry.domain.units import noun_for
from gemmetry.engine.store.creation import (
    DAMAGED_NAME,
    INSERT_RECORD,
    INSERT_ROUND,
    LOCK_NAME,
    MANIFEST_NAME,
    PREVIOUS_NAME,
    SET_ENVIRONMENT,
    FolderLock,
    Manifest,
    complete_manifest,
    create_filled,
    plan_differences,
    store_plan,
    time_created,
)
from gemmetry.engine.store.experiment import Experiment
from gemmetry.engine.store.rows import Lane, PlanBatch
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

    All shards of a plan become the experiment that one command for the whole plan makes: the same
    command without its shard continues it.

    Raises:
        RequestError: a path holds no experiment, or `into` already holds one; a shard is missing,
            or one belongs to another plan.
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
    whole = _whole_plan(paths, heads)
    winners, replaced = _winners(paths, damaged)
    head = whole or _head(heads)
    with storage_errors(into):
        into.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(into)
        try:
            if whole is not None:
                copy_files(paths, into)
                _forget_shard(into / "spec.yaml")
            create_filled(
                into,
                complete_manifest(head, command, created=time_created()),
                lambda new: _copy(new, paths, winners, into, _plan_of(new, paths) if whole else {}),
            )
        finally:
            lock.release()
    return MergeSummary(len(winners), replaced)


def _head(heads: Sequence[Manifest]) -> Manifest:
    hashes = [head.plan_hash for head in heads]
    digest = hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:10]
    name = " + ".join(dict.fromkeys(head.name for head in heads))
    document = {"merged": [{"name": head.name, "plan_hash": head.plan_hash} for head in heads]}
    return Manifest(name=name, plan_hash=f"merge-{digest}", document=document)


def _whole_plan(paths: Sequence[Path], heads: Sequence[Manifest]) -> Manifest | None:
    """The plan of which `heads` are all shards; None if none of them is a shard."""
    document = whole_document(paths, [head.document for head in heads])
    if document is None:
        return None
    return Manifest(name=heads[0].name, plan_hash=hash_of(document), document=document)


def whole_document(
    paths: Sequence[Path], documents: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The document of the plan of which the folders `paths` with `documents` are all shards; None
    if none of them is a shard.

    Raises:
        RequestError: one is of another plan, is there twice, or is missing.
    """
    shards = [parse_shard(str(document.get("shard", ""))) for document in documents]
    first = shards[0]
    if not any(shards):
        return None
    found: dict[int, Path] = {}
    whole: dict[str, Any] = {}
    for path, document, shard in zip(paths, documents, shards, strict=True):
        theirs = {key: value for key, value in document.items() if key != "shard"}
        whole = whole or theirs
        picked = [one.get("selection", {}).get("dispatches") for one in (whole, theirs)]
        if None not in picked and picked[0] != picked[1]:
            # The finals of a search, which each shard has chosen from its own operations.
            both = list(dict.fromkeys((*picked[0], *picked[1])))
            whole, theirs = ({**one, "selection": {"dispatches": both}} for one in (whole, theirs))
        difference = plan_differences(whole, theirs)
        if first is None or shard is None or shard.count != first.count or difference:
            raise RequestError(
                f"{path} is not a shard of the same plan as {paths[0]}"
                + (f": they differ in {difference}" if difference else ""),
                hint="Merge all shards of one plan, K/N for each K from 1 to N, and nothing else.",
            )
        if shard.number in found:
            raise RequestError(
                f"{found[shard.number]} and {path} are both the shard {shard}",
                hint="Name one of them.",
            )
        found[shard.number] = path
    assert first is not None
    missing = [f"{one}/{first.count}" for one in range(1, first.count + 1) if one not in found]
    if missing:
        verb = noun_for(len(missing), "is", "are")
        raise RequestError(
            f"of the shards of this plan, {listed(missing, 8)} {verb} missing",
            hint=f"Run the same command with --shard {missing[0]}, and name its folder as well.",
        )
    return whole


def _plan_of(new: sqlite3.Connection, paths: Sequence[Path]) -> dict[tuple[int, int], int]:
    """Store the plan of all shards `paths`, in the order of the whole plan. Maps the index of a
    shard and a number in it to the number."""
    lanes: list[Lane] = []
    rows: list[tuple[int, int, str, int, str]] = []
    for index, path in enumerate(paths):
        with Experiment.open(path) as shard:
            lanes = lanes or shard.lanes()
            places = {lane.place: lane.id for lane in lanes}
            known = {lane.id: places[lane.place] for lane in shard.lanes()}
            rows += [
                (one.id, index, one.operation, known[one.lane], one.configuration)
                for one in shard.planned()
            ]
    rows.sort()
    operations = {name: number for number, name in enumerate(dict.fromkeys(r[2] for r in rows), 1)}
    configurations = {
        name: number for number, name in enumerate(dict.fromkeys(r[4] for r in rows), 1)
    }
    batch = PlanBatch(
        [(number, name) for name, number in operations.items()],
        [(number, name) for name, number in configurations.items()],
        [
            (number, operations[operation], lane, configurations[configuration])
            for number, (_, _, operation, lane, configuration) in enumerate(rows, 1)
        ],
    )
    store_plan(new, lanes, [batch])
    return {(index, old): number for number, (old, index, *_) in enumerate(rows, 1)}


def _forget_shard(spec: Path) -> None:
    """Make the request that a shard has stored that of the whole plan."""
    if spec.is_file():
        lines = spec.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = (line for line in lines if not line.startswith(("shard:", "experiment:")))
        write_whole(spec, "".join(kept).encode())


NOT_COPIED = (JOURNAL_NAME, MANIFEST_NAME, LOCK_NAME, PREVIOUS_NAME, DAMAGED_NAME, "report.html",
               "references", "temporary", "counters")  # fmt: skip


def copy_files(paths: Sequence[Path], into: Path, but: tuple[str, ...] = NOT_COPIED) -> None:
    """Copy what the shards `paths` keep, except names that begin with `but`. Other names contain
    those of dispatches, so that only logs and descriptions meet, of which the first is kept."""
    for path in paths:
        for one in sorted(path.rglob("*")):
            place = one.relative_to(path)
            if place.parts[0].startswith(but):
                continue
            target = into / place
            if one.is_dir() and not one.is_symlink():
                target.mkdir(exist_ok=True)
            elif not target.exists():
                shutil.copyfile(one, target, follow_symlinks=False)


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
    numbers: Mapping[tuple[int, int], int],
) -> None:
    """Copy the records of `winners`, which get the `numbers` of their plan if there is one."""
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
            if numbers:
                bandwidths = "SELECT key, value FROM meta WHERE key LIKE 'host_bytes_per_s %'"
                new.executemany("INSERT OR IGNORE INTO meta VALUES(?, ?)", old.execute(bandwidths))
            for row_id in wanted:
                next_id = numbers.get((index, row_id), next_id)
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
