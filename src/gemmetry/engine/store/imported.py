"""Stores results that other benchmarks wrote as an experiment, marked as not verified here."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from gemmetry.domain.dispatch import TargetKind
from gemmetry.domain.errors import NameSyntaxError, Outcome, RequestError, Stage, Verification
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.operation import operation_name
from gemmetry.domain.record import IMPORTED, BuildFacts, Environment, Measurement, Record, Verdict
from gemmetry.engine.store.creation import (
    INSERT_RECORD,
    INSERT_ROUND,
    SET_ENVIRONMENT,
    FolderLock,
    Manifest,
    complete_manifest,
    create_filled,
    record_row,
    time_created,
)
from gemmetry.engine.store.experiment import Experiment
from gemmetry.engine.store.schema import JOURNAL_NAME, storage_errors, with_checksum
from gemmetry.formats.benchmarks import ForeignResult, StatedOperation, read_results
from gemmetry.statistics.intervals import rounds_interval

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
        JournalDamagedError: it cannot be read.
    """
    with Experiment.open(path) as experiment:
        found = {(r.target, r.device, r.distribution, r.seed) for r in experiment.records()}
    if len(found) != 1:
        why = "has no records" if not found else "has several devices, distributions or seeds"
        raise RequestError(
            f"{path} {why}, so that imported results cannot be like those in it",
            hint="Give an experiment of one device.",
        )
    target, device, distribution, seed = found.pop()
    return MeasuredOn(target=target, device=device, distribution=distribution, seed=seed)


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
    if (into / JOURNAL_NAME).exists():
        raise RequestError(
            f"{into} already contains an experiment", hint="Name a folder that does not exist yet."
        )
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
        made += [_Imported(form.name, path.name, result) for result in found.results]
    if not made:
        raise RequestError(
            f"nothing can be imported from {', '.join(map(str, files))}: " + summary.problems[0],
            hint="gemmetry import --help shows what files have to state.",
        )
    summary.records = len(made)
    head = Manifest(
        name=" + ".join(sorted(summary.by_format)),
        plan_hash=f"import-{digest.hexdigest()[:10]}",
        document={"imported": [{"file": path.name} for path in files]},
    )
    with storage_errors(into):
        into.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(into)
        try:
            manifest = complete_manifest(head, command, created=time_created())
            create_filled(into, manifest, lambda new: _fill(new, made, measured_on))
        finally:
            lock.release()
    return summary


@dataclass(frozen=True, slots=True)
class _Imported:
    provider: str
    file: str
    result: ForeignResult


def _fill(new: sqlite3.Connection, made: Iterable[_Imported], on: MeasuredOn) -> None:
    environments: dict[str, Environment] = {}
    for number, (one, name) in enumerate(_named(made), 1):
        environment = environments.setdefault(
            one.result.device, Environment(devices=tuple(filter(None, [one.result.device])))
        )
        record = _record(one, name, on, environment.id)
        new.execute(INSERT_RECORD, record_row(number, record, time.time_ns()))
        if one.result.samples_ns:
            samples = np.array(one.result.samples_ns, dtype=np.float64)
            row = (number, 1, environment.id, 0.0, samples.tobytes(), msgspec.json.encode({}))
            new.execute(INSERT_ROUND, with_checksum(row))
    rows = [with_checksum((one.id, msgspec.json.encode(one))) for one in environments.values()]
    new.executemany(SET_ENVIRONMENT, rows)


def _named(made: Iterable[_Imported]) -> Iterator[tuple[_Imported, str]]:
    """Each result with its configuration's name, numbered where one appears again."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for one in made:
        operation = operation_name(one.result.operation)
        name = _unambiguous(operation, one.result.configuration)
        key = (one.provider, operation, name)
        seen[key] += 1
        yield one, name if seen[key] == 1 else f"{name}_{seen[key]}"


def _unambiguous(operation: str, configuration: str) -> str:
    """The configuration's name; with a prefix where the operation's name would include its
    beginning."""
    try:
        is_plain = split_dispatch_name(f"{operation}_{configuration}")[1] == configuration
    except NameSyntaxError:
        is_plain = False
    return configuration if is_plain else f"kernel_{configuration}"


def _record(one: _Imported, name: str, on: MeasuredOn, environment: str) -> Record:
    result = one.result
    operation = operation_name(result.operation)
    statistic = "the samples" if result.samples_ns else f"a {result.statistic}"
    return Record(
        dispatch=f"{operation}_{name}",
        provider=one.provider,
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
            status=Verification.NOT_VERIFIED, reason=f"imported from {one.file}, not verified here"
        ),
        measurement=_measurement(result) if result.outcome is Outcome.OK else None,
        facts=BuildFacts(notes=(f"imported from {one.file}, which states {statistic}",)),
        environment_id=environment,
    )


def _measurement(result: ForeignResult) -> Measurement:
    """The statistics that the file supports: without samples there is no interval, no minimum and
    no percentile."""
    if not result.samples_ns:
        assert result.time_ns is not None
        return Measurement(
            median_ns=result.time_ns, ci_low_ns=None, ci_high_ns=None, min_ns=None, p95_ns=None,
            sample_count=0, method=IMPORTED, regime="", rounds=0, processes=0, input_sets=0,
            launches_per_sample=0,
        )  # fmt: skip
    samples = np.array(result.samples_ns, dtype=np.float64)
    interval, effective = rounds_interval([samples])
    return Measurement(
        median_ns=float(np.median(samples)),
        ci_low_ns=interval and interval[0],
        ci_high_ns=interval and interval[1],
        min_ns=float(samples.min()),
        p95_ns=float(np.quantile(samples, 0.95)),
        sample_count=samples.size,
        method=IMPORTED,
        regime="",
        input_sets=0,
        effective_samples=effective,
    )
