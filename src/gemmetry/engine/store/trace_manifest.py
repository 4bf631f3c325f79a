"""``traces_matmul/manifest.json``: maps each folder of traces to its dispatch.

A dispatch is numbered once and keeps its number, whatever is recorded in the folder later. The rest
of the file is derived from the journal, so that it can be regenerated at any time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gemmetry.domain.columns import COLUMNS_BY_NAME, row
from gemmetry.domain.errors import JournalDamagedError, NameSyntaxError, RequestError
from gemmetry.domain.files import remove, within, write_whole
from gemmetry.domain.names import split_dispatch_name
from gemmetry.domain.operation import Layout
from gemmetry.domain.record import Environment, Record
from gemmetry.domain.settings import TraceSchedule
from gemmetry.engine.store.creation import indented
from gemmetry.engine.store.schema import storage_errors

TRACES = "traces_matmul"
"""Subfolder of the traces in an experiment folder, named as in the grid tracing document."""

SCHEMA_VERSION = 1

WRITE_EVERY_S = 1.0
"""Least time between two writes during recording: a manifest of a thousand folders is about a
megabyte, which should not be rewritten for each of them."""

_PRECISIONS = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "s8": "int8"}
"""The document's names of formats that gemmetry names differently."""

_TRANSPOSED = {Layout.ROW: False, Layout.COLUMN: True}

Key: TypeAlias = tuple[str, str, str]
"""(device or, where none is attached, target; provider; dispatch)."""

_COLUMNS = (
    "operation", "configuration", "kind", "m", "n", "k", "batch", "lhs_dtype", "rhs_dtype",
    "result_dtype", "accumulator", "layouts", "distribution", "seed", "verification", "reason",
    "environment_id", "reproduce",
)  # fmt: skip
"""Columns of the record that an entry includes."""


class Entry(msgspec.Struct, kw_only=True):
    """One configuration."""

    number: int
    folder: str
    """Folder relative to the experiment; it exists where `outcome` is ok."""
    device: str
    provider: str
    dispatch: str
    m: int | None = None
    n: int | None = None
    k: int | None = None
    """This field and the next four use the grid tracing document's names of properties of the
    dispatch."""
    dtype: str | None = None
    """Format of A in the document's spelling: fp32, fp16, bf16, int8."""
    transpose_a: bool | None = None
    """Whether A is stored column-major; None for a convolution."""
    transpose_b: bool | None = None
    batch_size: int | None = None
    schedule: dict[str, int] = {}
    chakra_all_steps: bool = False
    outcome: str | None = None
    """None: the dispatch has not run yet."""
    record: dict[str, Any] = {}
    """Columns of the dispatch's record."""
    files: list[str] = []
    operators: int | None = None
    kernels: int | None = None
    input_sha256: dict[str, str] = {}
    output_sha256: str | None = None

    @property
    def key(self) -> Key:
        """The key that the entry's number belongs to."""
        return self.device, self.provider, self.dispatch


class TraceManifestDocument(msgspec.Struct, kw_only=True):
    """The file."""

    schema_version: int = SCHEMA_VERSION
    configurations: list[Entry] = []
    environments: dict[str, Any] = {}
    """Machine and versions, by ``environment_id``."""


class TraceManifest:
    """The manifest of one experiment, for its writer."""

    def __init__(self, experiment: Path) -> None:
        """Read the existing file.

        Raises:
            JournalDamagedError: it cannot be read.
        """
        self._experiment = experiment
        self._path = experiment / TRACES / "manifest.json"
        self._written = 0.0
        self._document = _read(self._path)
        self._entries = {entry.key: entry for entry in self._document.configurations}

    def begin(
        self,
        keys: Iterable[Key],
        records: Iterable[Record],
        schedule: TraceSchedule,
        *,
        kept_of: str | None = None,
    ) -> None:
        """Number every key, update the entries from the journal, and write the file.

        Args:
            kept_of: files with fewer repeats than `schedule` requires are kept if they were
                recorded in the environment with this id; None: earlier recordings are discarded
                (``--fresh``).

        Raises:
            StorageError: the file cannot be written.
        """
        last = max((entry.number for entry in self._entries.values()), default=0)
        for key in keys:
            known = self._entries.get(key)
            if known is None:
                last += 1
            entry = _blank(key, last if known is None else known.number, schedule)
            if known is not None and _may_grow(known, schedule, kept_of):
                entry.files, entry.record = known.files, known.record
                entry.input_sha256, entry.output_sha256 = known.input_sha256, known.output_sha256
                entry.operators, entry.kernels = known.operators, known.kernels
            self._entries[key] = entry
        for record in records:
            self._fill(record)
        self.write()

    def kept(self, key: Key) -> int:
        """Number of repeats of `key` recorded earlier, which are kept while it waits for more."""
        entry = self._entries[key]
        return _repeats(entry) if entry.outcome is None else 0

    def folder(self, key: Key) -> str:
        """The folder for the traces of `key`, relative to the experiment."""
        return self._entries[key].folder

    def add(self, record: Record) -> None:
        """Add a finished dispatch; its folder is removed if nothing was recorded.

        Raises:
            StorageError: the file cannot be written.
        """
        before = self._entries[key_of(record)]
        stays = before.files if before.outcome is None else []
        entry = self._fill(record)
        if record.trace is None:
            entry.files = stays
            self._clear(entry)
        if time.monotonic() - self._written > WRITE_EVERY_S:
            self.write()

    def _clear(self, entry: Entry) -> None:
        """Remove the files of a failed recording, but not earlier ones."""
        folder = self._experiment / entry.folder
        with contextlib.suppress(OSError):
            for path in folder.glob("*") if entry.files else [folder]:
                if path.name not in entry.files:
                    remove(path, inside=self._experiment)

    def add_environments(self, environments: Mapping[str, Environment]) -> None:
        """Add the environment that the records' ``environment_id`` identifies."""
        self._document.environments |= {key: asdict(one) for key, one in environments.items()}

    def write(self) -> None:
        """Replace the file.

        Raises:
            StorageError: it cannot be written.
        """
        self._document.configurations = sorted(self._entries.values(), key=lambda e: e.number)
        with storage_errors(self._experiment):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, indented(self._document), durable=True)
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
    """The key that the number of a record's folder belongs to."""
    return record.device or record.target, record.provider, record.dispatch


def _blank(key: Key, number: int, schedule: TraceSchedule) -> Entry:
    device, provider, dispatch = key
    steps: dict[str, Any] = asdict(schedule)
    all_steps = bool(steps.pop("chakra_all_steps"))
    return Entry(
        number=number,
        folder=f"{TRACES}/config_{number:04d}",
        device=device,
        provider=provider,
        dispatch=dispatch,
        schedule=steps,
        chakra_all_steps=all_steps,
        **_document_names(dispatch),
    )


def _document_names(dispatch: str) -> dict[str, Any]:
    """The parts of a dispatch under the names that the grid tracing document's configurations
    use."""
    try:
        operation, _ = split_dispatch_name(dispatch)
    except NameSyntaxError:
        return {}
    shape, s = operation.matmul_shape, operation.signature
    is_matrix = s.lhs_layout in _TRANSPOSED
    return {
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        "dtype": _PRECISIONS.get(s.lhs.name, s.lhs.name),
        "transpose_a": _TRANSPOSED[s.lhs_layout] if is_matrix else None,
        "transpose_b": _TRANSPOSED[s.rhs_layout] if is_matrix else None,
        "batch_size": shape.batch,
    }


def _may_grow(entry: Entry, schedule: TraceSchedule, environment_id: str | None) -> bool:
    """True if the entry's files may be kept while further repeats are recorded. A single execution
    trace over all launches cannot be extended, and one configuration cannot combine repeats of two
    environments."""
    return (
        environment_id is not None
        and 0 < _repeats(entry) < schedule.repeats
        and not schedule.chakra_all_steps
        and entry.record.get("environment_id") == environment_id
    )


def _repeats(entry: Entry) -> int:
    return max(len(entry.files) - 1, 0)


def _read(path: Path) -> TraceManifestDocument:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return TraceManifestDocument()
    except OSError as error:
        raise _damaged(path, f"cannot be read: {error.strerror or error}") from error
    try:
        document = msgspec.json.decode(text, type=TraceManifestDocument)
        for entry in document.configurations:
            within(path.parents[1], entry.folder)
    except (msgspec.MsgspecError, UnicodeDecodeError, RequestError) as error:
        raise _damaged(path, f"cannot be read: {error}") from error
    if document.schema_version != SCHEMA_VERSION:
        version = document.schema_version
        raise _damaged(
            path, f"is of version {version}, but this version of gemmetry reads {SCHEMA_VERSION}"
        )
    return document


def _damaged(path: Path, cause: str) -> JournalDamagedError:
    return JournalDamagedError(
        f"the manifest {path} {cause}",
        hint="Without it, the numbers of the folders are unknown. Restore it from a copy, or give "
        "another --experiment.",
    )
