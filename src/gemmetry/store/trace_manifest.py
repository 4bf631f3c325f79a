"""``traces_matmul/manifest.json``: which dispatch each folder of traces belongs to.

A dispatch gets its number once and keeps it, whatever is recorded in the folder later. All else in
the file is taken from the journal, so that it can be made again at any time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gemmetry.domain.columns import COLUMNS_BY_NAME, row
from gemmetry.domain.environment import Environment
from gemmetry.domain.errors import JournalDamagedError
from gemmetry.domain.record import Record
from gemmetry.domain.settings import TraceSchedule
from gemmetry.store.manifest import write_durably
from gemmetry.store.schema import told_errors

TRACES = "traces_matmul"
"""Folder of the traces in an experiment's; the grid tracing document's name."""

SCHEMA_VERSION = 1

WRITE_EVERY_S = 1.0
"""Between two writes while recording goes on: a manifest of a thousand folders has about a
megabyte, which is not written again for each of them."""

Key: TypeAlias = tuple[str, str, str]
"""(device or, where none is attached, target; provider; dispatch)."""

_COLUMNS = (
    "operation", "configuration", "kind", "m", "n", "k", "batch", "lhs_dtype", "rhs_dtype",
    "result_dtype", "accumulator", "layouts", "distribution", "seed", "verification", "reason",
    "environment_id", "reproduce",
)  # fmt: skip
"""Columns of the record that an entry repeats."""


class Entry(msgspec.Struct, kw_only=True):
    """One configuration."""

    number: int
    folder: str
    """Relative to the experiment; on the disk where `outcome` is ok."""
    device: str
    provider: str
    dispatch: str
    schedule: dict[str, int] = {}
    outcome: str | None = None
    """None: it has not come to its turn."""
    record: dict[str, Any] = {}
    """Columns of its record."""
    files: list[str] = []
    operators: int | None = None
    kernels: int | None = None
    input_sha256: dict[str, str] = {}
    output_sha256: str | None = None

    @property
    def key(self) -> Key:
        """What its number belongs to."""
        return self.device, self.provider, self.dispatch


class Document(msgspec.Struct, kw_only=True):
    """The file."""

    schema_version: int = SCHEMA_VERSION
    configurations: list[Entry] = []
    environments: dict[str, Any] = {}
    """Machine and versions, by ``environment_id``."""


class TraceManifest:
    """The manifest of one experiment, for its writer."""

    def __init__(self, experiment: Path) -> None:
        """Read what is there.

        Raises:
            JournalDamagedError: it does not read.
        """
        self._experiment = experiment
        self._path = experiment / TRACES / "manifest.json"
        self._written = 0.0
        self._document = _read(self._path)
        self._entries = {entry.key: entry for entry in self._document.configurations}

    def begin(
        self, keys: Iterable[Key], records: Iterable[Record], schedule: TraceSchedule
    ) -> None:
        """Give every key a number, take over what the journal knows, and write.

        Raises:
            StorageError: the file cannot be written.
        """
        steps: dict[str, int] = asdict(schedule)
        last = max((entry.number for entry in self._entries.values()), default=0)
        for key in keys:
            known = self._entries.get(key)
            if known is None:
                last += 1
            # What was recorded before --fresh is known no more.
            self._entries[key] = _blank(key, last if known is None else known.number, steps)
        for record in records:
            self._fill(record)
        self.write()

    def folder(self, key: Key) -> str:
        """Where the traces of `key` go, relative to the experiment."""
        return self._entries[key].folder

    def add(self, record: Record) -> None:
        """Take in a finished dispatch; its folder goes where nothing was recorded.

        Raises:
            StorageError: the file cannot be written.
        """
        entry = self._fill(record)
        if record.trace is None:
            shutil.rmtree(self._experiment / entry.folder, ignore_errors=True)
        if time.monotonic() - self._written > WRITE_EVERY_S:
            self.write()

    def add_environments(self, environments: Mapping[str, Environment]) -> None:
        """Take in what the records' ``environment_id`` stands for."""
        self._document.environments |= {key: asdict(one) for key, one in environments.items()}

    def write(self) -> None:
        """Replace the file.

        Raises:
            StorageError: it cannot be written.
        """
        self._document.configurations = sorted(self._entries.values(), key=lambda e: e.number)
        text = msgspec.json.format(msgspec.json.encode(self._document), indent=2) + b"\n"
        with told_errors(self._experiment):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(self._path, text)
        self._written = time.monotonic()

    def _fill(self, record: Record) -> Entry:
        entry = self._entries[key_of(record)]
        trace = record.trace
        entry.outcome = str(record.outcome)
        entry.record = row(record, [COLUMNS_BY_NAME[name] for name in _COLUMNS])
        entry.files = [] if trace is None else list(trace.files)
        entry.operators = None if trace is None else trace.operators
        entry.kernels = None if trace is None else trace.kernels
        entry.input_sha256 = {} if trace is None else dict(trace.input_sha256)
        entry.output_sha256 = None if trace is None else trace.output_sha256
        return entry


def key_of(record: Record) -> Key:
    """What the number of a record's folder belongs to."""
    return record.device or record.target, record.provider, record.dispatch


def _blank(key: Key, number: int, schedule: dict[str, int]) -> Entry:
    device, provider, dispatch = key
    return Entry(
        number=number,
        folder=f"{TRACES}/config_{number:04d}",
        device=device,
        provider=provider,
        dispatch=dispatch,
        schedule=schedule,
    )


def _read(path: Path) -> Document:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Document()
    except OSError as error:
        raise _damaged(path, f"cannot be read: {error.strerror or error}") from error
    try:
        document = msgspec.json.decode(text, type=Document)
    except msgspec.MsgspecError as error:
        raise _damaged(path, f"does not read: {error}") from error
    if document.schema_version != SCHEMA_VERSION:
        version = document.schema_version
        raise _damaged(path, f"is of version {version}, this gemmetry reads {SCHEMA_VERSION}")
    return document


def _damaged(path: Path, cause: str) -> JournalDamagedError:
    return JournalDamagedError(
        f"the manifest {path} {cause}",
        hint="Without it the folders' numbers are not known. Restore it from a copy, or give "
        "another --experiment.",
    )
