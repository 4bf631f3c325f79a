"""Stored lines of a history: one per run and device class.

The files of a history: lines of JSON that are only ever appended to, one file for each device
class, and one with annotations.

Turns an experiment into entries of a history, one for each class of devices.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

import msgspec

from gemmetry.dispatches.analysis import mark_kind
from gemmetry.domain.dispatch import TargetKind
from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.files import sync
from gemmetry.domain.record import Environment, Measurement, Record, ResultSet
from gemmetry.domain.settings import BACK_TO_BACK
from gemmetry.domain.units import format_memory, plural
from gemmetry.engine.schema import FolderLock

SCHEMA = 1
"""Schema of the lines. A reader skips lines of other schemas, and names them."""


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One dispatch of one run; times are in ns per launch."""

    provider: str
    dispatch: str
    operation: str
    target: str
    distribution: str
    regime: str = "burst"
    launches: str = BACK_TO_BACK
    outcome: str = "ok"
    median_ns: float | None = None
    """Median in ns; None where the dispatch was not measured."""
    low_ns: float | None = None
    """Lower end of the median's 95 % interval; None where there were too few samples for one."""
    high_ns: float | None = None
    samples: int = 0
    rounds: int = 0
    method: str = ""
    """Timing method: ``graph``, ``events``, ``wall_clock`` or ``simulated``."""
    environment: str = ""
    """A key of :attr:`HistoryRun.environments`."""
    sm_clock_hz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()
    load_average: float | None = None
    marks: tuple[str, ...] = ()
    """Kinds of the marks on the measurement."""

    @property
    def key(self) -> tuple[str, str, str, str, str, str]:
        """Key of a series within a device class."""
        conditions = (self.distribution, self.regime, self.launches)
        return (self.provider, self.dispatch, self.target, *conditions)


def points_digest(points: Sequence[HistoryPoint]) -> str:
    """Twelve hexadecimal digits over the points of a run."""
    return hashlib.sha256(msgspec.json.encode(points)).hexdigest()[:12]


class HistoryRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run on the devices of one class."""

    schema: int
    id: str
    """Id of the experiment: a later line with the same id replaces an earlier one."""
    digest: str
    """Digest of the points: equal if nothing was measured in the meantime."""
    device: str
    """Device class: model, memory and power limit of a GPU; model and processors of a CPU."""
    time: str
    """Time by which runs are ordered (ISO 8601, UTC)."""
    points: list[HistoryPoint]
    commit: str = ""
    label: str = ""
    source: str = ""
    """The experiment's folder, as it was given."""
    settings: dict[str, Any] = {}
    """Settings of the run that decide how dispatches are verified and measured."""
    environments: dict[str, dict[str, Any]] = {}
    """Id -> fields of the environment."""


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """A remark on a change; with `acknowledged`, the change is no alarm any more."""

    schema: int
    run: str
    """Id of the first run after the change, or its time or commit as the user wrote it."""
    pattern: str
    """Glob on ``provider:dispatch``."""
    text: str
    acknowledged: bool = True
    time: str = ""
    """Time of writing (ISO 8601, UTC)."""


ANNOTATIONS = "annotations.jsonl"

PATIENCE_S = 10.0
"""Seconds for which a writer waits for others; each holds the lock for a few lines."""

_POLL_S = 0.05

_SUFFIX = ".jsonl"
_LONGEST_NAME = 60
_T = TypeVar("_T", HistoryRun, Annotation)


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """Readable content of a history."""

    runs: dict[str, list[HistoryRun]] = field(default_factory=dict)
    """Device class -> its runs in the order of their times, each experiment once."""
    annotations: list[Annotation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """A sentence for each line that was skipped, with its file and number."""


class _Head(msgspec.Struct):
    schema: int = 0


def read_history(folder: Path) -> StoredHistory:
    """Everything in the history at `folder`. Lines that cannot be read are skipped and named.

    Raises:
        RequestError: the folder does not exist, or holds no history.
        StorageError: a file cannot be read.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX)
    except OSError as error:
        raise RequestError(
            f"no history in {folder}: {error.strerror}",
            hint="gemmetry history add EXPERIMENT --store DIR creates it.",
        ) from error
    history = StoredHistory()
    latest: dict[tuple[str, str], HistoryRun] = {}
    for path in files:
        if path.name == ANNOTATIONS:
            history.annotations.extend(_lines(path, Annotation, history.problems))
            continue
        for run in _lines(path, HistoryRun, history.problems):
            latest[run.device, run.id] = run
    for run in sorted(latest.values(), key=lambda one: one.time):
        history.runs.setdefault(run.device, []).append(run)
    if not history.runs and not history.problems:
        raise RequestError(
            f"no history in {folder}: it holds no runs",
            hint="gemmetry history add EXPERIMENT --store DIR adds one.",
        )
    return history


def append(folder: Path, entries: Sequence[HistoryRun | Annotation]) -> None:
    """Append `entries` to the history at `folder`, which is created where it does not exist. All of
    them are stored or none: what a full disk cuts off is removed again. Another process that is
    writing to it is waited for.

    Raises:
        RequestError: another process was still writing after :data:`PATIENCE_S`.
        StorageError: it cannot be written.
    """
    with writing(folder) as store:
        store(entries)


@contextmanager
def writing(folder: Path) -> Iterator[Callable[[Sequence[HistoryRun | Annotation]], None]]:
    """A function that appends entries to the history at `folder`, as :func:`append` does. Nobody
    else writes to it meanwhile, so that what is read here is still true when entries are stored.

    Raises:
        RequestError, StorageError: as :func:`append`.
    """
    ends = monotonic() + PATIENCE_S
    lock = None
    while lock is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(folder, option="--store")
        except RequestError:  # Another writer has it.
            if monotonic() >= ends:
                raise
            sleep(_POLL_S)
        except OSError as error:
            raise _not_stored(folder, error) from error
    try:
        yield partial(_store, folder)
    finally:
        lock.release()


def _store(folder: Path, entries: Sequence[HistoryRun | Annotation]) -> None:
    lines: dict[Path, bytes] = {}
    for entry in entries:
        name = ANNOTATIONS if isinstance(entry, Annotation) else file_name(entry.device)
        lines[folder / name] = lines.get(folder / name, b"") + msgspec.json.encode(entry) + b"\n"
    sizes: dict[Path, int] = {}
    for path, text in lines.items():
        try:
            sizes[path] = _append_lines(path, text)
        except OSError as error:
            for written, size in sizes.items():
                os.truncate(written, size)
            raise _not_stored(path, error) from error


def file_name(device: str) -> str:
    """The file of a device class: its name without special characters, and a hash of it, as two
    names may differ in those alone."""
    plain = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")[:_LONGEST_NAME]
    digest = hashlib.sha256(device.encode()).hexdigest()[:6]
    return f"{plain or 'device'}-{digest}{_SUFFIX}"


def _append_lines(path: Path, text: bytes) -> int:
    """Append all of `text` or nothing of it; the size of the file before."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            text = b"\n" + text  # half a line that an ended process left stays a line of its own
        rest = memoryview(text)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)
    if not size:
        sync(path.parent)
    return size


def _lines(path: Path, kind: type[_T], problems: list[str]) -> Iterator[_T]:
    decode = msgspec.json.Decoder(kind).decode
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror}", hint="Check its permissions."
        ) from error
    *complete, rest = content.split(b"\n")
    for number, line in enumerate((*complete, rest), 1):
        if not line.strip():
            continue
        entry, schema, problem = None, SCHEMA, ""
        try:
            entry = decode(line)
            schema = entry.schema
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            is_half = number > len(complete)
            problem = "it ends in the middle" if is_half else f"it is damaged ({error})"
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                schema = msgspec.json.decode(line, type=_Head).schema
                problem = f"it is no entry ({error})"
        if schema != SCHEMA:
            problem = f"its schema is {schema}, but this version of gemmetry reads {SCHEMA}"
        elif isinstance(entry, HistoryRun) and entry.digest != points_digest(entry.points):
            problem = "its points do not agree with their digest: they were changed or damaged"
        if problem:
            problems.append(f"{path.name}:{number} was skipped: {problem}")
        elif entry is not None:
            yield entry


def _not_stored(path: Path, error: OSError) -> StorageError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    hint = "Free some disk space" if full else "Choose a folder that you may write to"
    return StorageError(
        f"cannot append to the history {path}: {error.strerror or error}",
        hint=f"{hint} and add it again; what was stored before is unchanged.",
    )


_NOT_OF_THE_METHOD = frozenset({
    "tags", "seed", "deadlines_s", "distribution", "regime", "launches", "judge_rivals",
    "max_seconds_per_launch",
})  # fmt: skip
"""Settings that no time depends on, and those that each point has of its own."""

_LIMIT_STEP_W = 10
"""Power limits are rounded to this many watts, so that one set as 699.9 W is that of 700 W."""


def runs_of(
    results: ResultSet, *, commit: str = "", label: str = "", time: str = ""
) -> list[HistoryRun]:
    """The entries of an experiment.

    Args:
        commit: of what was measured; "": the one that the environment recorded.
        time: ISO 8601; "": when the experiment was created. Without a zone, UTC.

    Raises:
        RequestError: the experiment has no records, or the time cannot be read.
    """
    classes: dict[str, dict[tuple[str, ...], HistoryPoint]] = {}
    # What failed belongs to the series of what was measured.
    usual = {one.target: one.measurement for one in results.records if one.launches is not None}
    for record in results.records:
        environment = results.environments.get(record.environment_id, Environment())
        point = _point(record, record.measurement or usual.get(record.target))
        # Of a dispatch that merged experiments measured twice the later record counts.
        classes.setdefault(device_class(record, environment), {})[point.key] = point
    if not classes:
        raise RequestError(
            f"{results.path or results.title} has no results yet",
            hint="Add it when its run has finished at least one dispatch.",
        )
    moment = _utc(time or results.created)
    identity = _identity(results)
    settings = {name: value for name, value in dict(results.document.get("settings", {})).items()
                if name not in _NOT_OF_THE_METHOD}  # fmt: skip
    runs = []
    for device, of_device in classes.items():
        points = list(of_device.values())
        used = {key: results.environments[key] for key in {point.environment for point in points}
                if key in results.environments}  # fmt: skip
        revisions = sorted({one.git_revision for one in used.values()} - {""})
        runs.append(HistoryRun(
            schema=SCHEMA, id=identity, digest=points_digest(points), device=device, time=moment,
            points=points, commit=commit or (revisions[0] if len(revisions) == 1 else ""),
            label=label, source=results.path or results.title, settings=settings,
            environments={key: asdict(one) for key, one in used.items()},
        ))  # fmt: skip
    return runs


def device_class(record: Record, environment: Environment) -> str:
    """Constant facts that determine a device's speed: model, memory and power limit of a GPU, model
    and number of processors of a CPU. Clocks and versions are not part of it: they belong to the
    environment, so that a series continues when they change."""
    kind = TargetKind(record.target.partition("-")[0])
    if kind is TargetKind.NULL:
        return "simulated device"
    if kind is TargetKind.CPU:
        return f"{environment.cpu or 'CPU'}, {plural(environment.cpu_count, 'processor')}"
    if not environment.devices:
        return record.target
    index = re.search(r":(\d+)$", record.device)
    place = int(index[1]) if index and int(index[1]) < len(environment.devices) else 0
    parts = [environment.devices[place]]
    memory = environment.device_memory_bytes[place : place + 1]
    limit = environment.power_limits_w[place : place + 1]
    parts += [format_memory(round(value, -8)) for value in memory if value]
    parts += [f"{round(value / _LIMIT_STEP_W) * _LIMIT_STEP_W} W" for value in limit if value]
    return ", ".join(parts)


def _point(record: Record, conditions: Measurement | None) -> HistoryPoint:
    m = record.measurement
    facts: dict[str, Any] = {}
    if conditions is not None:
        facts = {"regime": conditions.regime, "launches": conditions.launches}
    if m is not None:
        state = m.telemetry
        facts |= {
            "median_ns": m.median_ns, "low_ns": m.ci_low_ns, "high_ns": m.ci_high_ns,
            "samples": m.sample_count, "rounds": m.rounds, "method": m.method,
            "sm_clock_hz": state.sm_clock_hz, "power_w": state.power_w,
            "temperature_c": state.temperature_c, "throttle": state.throttle_reasons,
            "load_average": state.load_average,
            "marks": tuple(dict.fromkeys(map(mark_kind, m.marks))),
        }  # fmt: skip
    return HistoryPoint(
        provider=record.provider, dispatch=record.dispatch, operation=record.operation,
        target=record.target, distribution=record.distribution, outcome=str(record.outcome),
        environment=record.environment_id, **facts,
    )  # fmt: skip


def _identity(results: ResultSet) -> str:
    """Identity that an experiment shares with its copies, and keeps as it grows."""
    hosts = sorted({one.hostname for one in results.environments.values()})
    first = next((r for r in results.records if r.measurement is not None), None)
    # Older experiments state only the second; the command distinguishes simulated devices.
    median, command = (first.median_ns, first.reproduce) if first else (None, "")
    facts = (results.created, hosts, results.title, median, command)
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:12]


def _utc(text: str) -> str:
    if not text:
        return datetime.now(UTC).isoformat(timespec="seconds")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise RequestError(
            f"cannot read the time {text!r}", hint="Write it as 2026-11-23 or 2026-11-23T06:30:00."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="seconds")
