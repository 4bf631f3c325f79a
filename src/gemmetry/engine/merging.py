"""Merges experiments: the records, samples, environments and hardware counters of several folders
into a new one. All shards of a plan become the experiment of the whole plan.

Stores results that other benchmarks wrote as an experiment, marked as not verified here.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

from gemmetry.domain.dispatch import TargetKind, hash_of, parse_shard, split_dispatch_name
from gemmetry.domain.errors import (
    NameSyntaxError,
    Outcome,
    RequestError,
    Stage,
    Verification,
    listed,
)
from gemmetry.domain.files import within, write_whole
from gemmetry.domain.operation import operation_name
from gemmetry.domain.record import IMPORTED, BuildFacts, Environment, Measurement, Record, Verdict
from gemmetry.domain.units import noun_for
from gemmetry.engine import schema
from gemmetry.engine.experiment import Experiment
from gemmetry.formats.benchmarks import ForeignResult, StatedOperation, read_results
from gemmetry.statistics.intervals import rounds_interval


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
            or one belongs to another plan; launches were apart in one and back to back in another.
        JournalDamagedError: an experiment cannot be read. StorageError: `into` is not writable.
    """
    if len(paths) < 2:
        raise RequestError("merging needs two experiments or more", hint="Name their folders.")
    heads = []
    damaged: dict[Path, Collection[int]] = {}
    launches: dict[str, tuple[str, Path]] = {}
    for path in paths:
        with Experiment.open(path) as source:
            heads.append(source.manifest)
            for record in source.records():
                if record.launches is None:
                    continue
                known, first = launches.setdefault(record.target, (record.launches, path))
                if known != record.launches:
                    raise RequestError(
                        f"launches on {record.target} are {known} in {first} and "
                        f"{record.launches} in {path}: their times are not comparable",
                        hint="Measure both with one --launches.",
                    )
            damaged[path] = source.damaged_dispatches().keys()
    whole = whole_document(paths, [head.document for head in heads])
    winners, replaced = _winners(paths, damaged)
    head = _head(heads)
    if whole is not None:
        head = schema.Manifest(name=heads[0].name, plan_hash=hash_of(whole), document=whole)
    with schema.new_folder(into):
        spec = into / "spec.yaml"
        if whole is not None:
            copy_files(paths, into)
            # The request that a shard has stored becomes that of the whole plan.
            if spec.is_file():
                lines = spec.read_text(encoding="utf-8").splitlines(keepends=True)
                kept = (line for line in lines if not line.startswith(("shard:", "experiment:")))
                write_whole(spec, "".join(kept).encode())

        def fill(new: sqlite3.Connection) -> None:
            _copy(new, paths, winners, into, _plan_of(new, paths) if whole else {})

        schema.create(into, head, command, fill)
    return MergeSummary(len(winners), replaced)


def _head(heads: Sequence[schema.Manifest]) -> schema.Manifest:
    hashes = " ".join(head.plan_hash for head in heads)
    digest = hashlib.sha256(hashes.encode()).hexdigest()[:10]
    name = " + ".join(dict.fromkeys(head.name for head in heads))
    document = {"merged": [{"name": head.name, "plan_hash": head.plan_hash} for head in heads]}
    return schema.Manifest(name=name, plan_hash=f"merge-{digest}", document=document)


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
        difference = schema.plan_differences(whole, theirs)
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
    lanes: list[schema.Lane] = []
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
    names = [list(dict.fromkeys(some)) for some in ((r[2] for r in rows), (r[4] for r in rows))]
    operations, configurations = ({n: i for i, n in enumerate(some, 1)} for some in names)
    dispatches = [
        (number, operations[operation], lane, configurations[configuration])
        for number, (_, _, operation, lane, configuration) in enumerate(rows, 1)
    ]
    batch = schema.PlanBatch(list(enumerate(names[0], 1)), list(enumerate(names[1], 1)), dispatches)
    schema.store_plan(new, lanes, [batch])
    return {(index, old): number for number, (old, index, *_) in enumerate(rows, 1)}


NOT_COPIED = (
    *(schema.JOURNAL_NAME, schema.MANIFEST_NAME, schema.LOCK_NAME, schema.PREVIOUS_NAME),
    *(schema.DAMAGED_NAME, "report.html", "references", "temporary", "counters"),
)


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
        with closing(schema.connect_reader(path / schema.JOURNAL_NAME)) as connection:
            rows = connection.execute(
                "SELECT target, device, provider, dispatch, environment, distribution, seed,"
                " finished_ns, id FROM records ORDER BY id"
            )
            for *key, finished_ns, row_id in rows:
                if row_id not in damaged[path]:
                    seen += 1
                    candidate = (finished_ns, index, row_id)
                    newest[tuple(key)] = max(candidate, newest.get(tuple(key), candidate))
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
        with closing(schema.connect_reader(path / schema.JOURNAL_NAME)) as old:
            rows = old.execute("SELECT * FROM environments")
            whole = (
                schema.with_checksum(row[:2])
                for row in rows
                if len(row) == 2 or not schema.is_damaged(row)
            )
            new.executemany(schema.SET_ENVIRONMENT, whole)
            if numbers:
                bandwidths = "SELECT key, value FROM meta WHERE key LIKE 'host_bytes_per_s %'"
                new.executemany("INSERT OR IGNORE INTO meta VALUES(?, ?)", old.execute(bandwidths))
            for row_id in wanted:
                next_id = numbers.get((index, row_id), next_id)
                record = old.execute("SELECT * FROM records WHERE id = ?", (row_id,)).fetchone()
                *facts, document = record[1:12]
                document = _with_counters(document, paths[index], into, taken)
                new.execute(schema.INSERT_RECORD, schema.with_checksum((next_id, *facts, document)))
                statement = ("SELECT round, environment, seconds, samples, document FROM rounds"
                             " WHERE dispatch = ?")  # fmt: skip
                rounds = old.execute(statement, (row_id,))
                new.executemany(
                    schema.INSERT_ROUND, (schema.with_checksum((next_id, *row)) for row in rounds)
                )
                next_id += 1


def _with_counters(document: bytes, source: Path, into: Path, taken: set[str]) -> bytes:
    """The document of a record, whose counters, if it has any, are copied to a folder that is not
    in `taken`."""
    record = msgspec.json.decode(document)
    if not (counters := record.get("counters")):
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


UNKNOWN = "unknown"
"""Distribution of inputs that nobody stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOn:
    """What imported files do not state: the device and the inputs of their results. Records are
    compared where these are the same."""

    target: str = TargetKind.CUDA
    device: str = ""
    distribution: str = UNKNOWN
    seed: int = 0


@dataclass(slots=True)
class ImportSummary:
    """What was imported, and what was not."""

    records: int = 0
    by_format: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    """Rows and files that were left out, each with its place and the reason."""


def measured_like(path: Path) -> MeasuredOn:
    """The device and the inputs of the experiment in `path`.

    Raises:
        RequestError: no experiment is there, it has no records, or it has several devices or
            distributions.
        JournalDamagedError: the experiment cannot be read.
    """
    with Experiment.open(path) as experiment:
        found = {
            MeasuredOn(target=r.target, device=r.device, distribution=r.distribution, seed=r.seed)
            for r in experiment.records()
        }
    if len(found) != 1:
        why = "has no records" if not found else "has several devices, distributions or seeds"
        raise RequestError(
            f"{path} {why}, so that imported results cannot be like those in it",
            hint="Give an experiment of one device.",
        )
    return found.pop()


def import_results(
    files: Sequence[Path],
    into: Path,
    *,
    operation: str = "",
    measured_on: MeasuredOn = MeasuredOn(),
    command: str = "",
) -> ImportSummary:
    """Store the results in `files` as an experiment in the folder `into`, which must not hold one
    yet. Rows that cannot be read are left out, and the rest is imported.

    Args:
        operation: what the kernels compute, where a file does not state it: an operation's name, or
            formats and layouts.

    Raises:
        RequestError: a file cannot be read or is of no known format, nothing in them can be
            imported, or `into` already holds an experiment.
        StorageError: `into` is not writable.
    """
    stated = StatedOperation(operation)
    summary = ImportSummary()
    made: list[_Imported] = []
    digest = hashlib.sha256(repr((operation, measured_on)).encode())
    for path in files:
        form, found = read_results(path, stated)
        digest.update(path.read_bytes())
        summary.problems += found.problems
        if not found.results and not found.problems:
            summary.problems.append(f"{path.name}: there are no results in it")
        summary.by_format[form.name] += len(found.results)
        made += [(form.name, path.name, result) for result in found.results]
    if not made:
        raise RequestError(
            f"nothing can be imported from {', '.join(map(str, files))}: " + summary.problems[0],
            hint="gemmetry import --help shows what files have to state.",
        )
    summary.records = len(made)
    head = schema.Manifest(
        name=" + ".join(sorted(summary.by_format)),
        plan_hash=f"import-{digest.hexdigest()[:10]}",
        document={"imported": [{"file": path.name} for path in files]},
    )
    with schema.new_folder(into):
        schema.create(into, head, command, lambda new: _fill(new, made, measured_on))
    return summary


_Imported: TypeAlias = tuple[str, str, ForeignResult]
"""The provider, the file's name, and the result."""


def _fill(new: sqlite3.Connection, made: Iterable[_Imported], on: MeasuredOn) -> None:
    environments: dict[str, Environment] = {}
    seen: Counter[tuple[str, str, str]] = Counter()
    for number, one in enumerate(made, 1):
        provider, _, result = one
        devices = tuple(filter(None, [result.device]))
        environment = environments.setdefault(result.device, Environment(devices=devices))
        operation = operation_name(result.operation)
        name = _unambiguous(operation, result.configuration)
        seen[provider, operation, name] += 1
        again = seen[provider, operation, name]
        record = _record(one, name if again == 1 else f"{name}_{again}", on, environment.id)
        new.execute(schema.INSERT_RECORD, schema.record_row(number, record, time.time_ns()))
        if result.samples_ns:
            samples = np.array(result.samples_ns, dtype=np.float64)
            row = (number, 1, environment.id, 0.0, samples.tobytes(), b"{}")
            new.execute(schema.INSERT_ROUND, schema.with_checksum(row))
    new.executemany(schema.SET_ENVIRONMENT, schema.environment_rows(environments.values()))


def _unambiguous(operation: str, configuration: str) -> str:
    """The configuration's name; with a prefix where the operation's name would include its
    beginning."""
    with suppress(NameSyntaxError):
        if split_dispatch_name(f"{operation}_{configuration}")[1] == configuration:
            return configuration
    return f"kernel_{configuration}"


def _record(one: _Imported, name: str, on: MeasuredOn, environment: str) -> Record:
    provider, file, result = one
    operation = operation_name(result.operation)
    statistic = "the samples" if result.samples_ns else f"a {result.statistic}"
    return Record(
        dispatch=f"{operation}_{name}",
        provider=provider,
        target=on.target,
        device=on.device,
        operation=operation,
        configuration=name,
        outcome=result.outcome,
        stage=None if result.outcome is Outcome.OK else Stage.MEASURE,
        reason=result.reason,
        distribution=on.distribution,
        seed=on.seed,
        flops=result.operation.flops,
        bytes=result.operation.bytes,
        configuration_parameters=result.parameters,
        verdict=Verdict(
            status=Verification.NOT_VERIFIED, reason=f"imported from {file}, not verified here"
        ),
        measurement=_measurement(result) if result.outcome is Outcome.OK else None,
        facts=BuildFacts(notes=(f"imported from {file}, which states {statistic}",)),
        environment_id=environment,
    )


def _measurement(result: ForeignResult) -> Measurement:
    """The statistics that the file supports: without samples there is no interval, no minimum and
    no percentile."""
    if not result.samples_ns:
        assert result.time_ns is not None
        return Measurement(
            median_ns=result.time_ns, ci_low_ns=None, ci_high_ns=None, min_ns=None, p95_ns=None,
            sample_count=0, method=IMPORTED, regime="", launches="", rounds=0, processes=0,
            input_sets=0, launches_per_sample=0,
        )  # fmt: skip
    samples = np.array(result.samples_ns, dtype=np.float64)
    interval, effective = rounds_interval([samples])
    return Measurement(
        median_ns=float(np.median(samples)), ci_low_ns=interval and interval[0],
        ci_high_ns=interval and interval[1], min_ns=float(samples.min()),
        p95_ns=float(np.quantile(samples, 0.95)), sample_count=samples.size, method=IMPORTED,
        regime="", launches="", input_sets=0, effective_samples=effective,
    )  # fmt: skip
