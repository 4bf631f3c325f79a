"""The table of a device: measured times, what to choose, and which kernels are verified."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.dispatcher.problems import ANY_CLASS, CUBLAS, MatmulProblem, operation_of
from gemmetry.domain.dispatch import Configuration, Parameter
from gemmetry.domain.errors import GemmetryError, RequestError, StorageError
from gemmetry.formats.files import write_whole
from gemmetry.formats.opening import parsed_json, read_whole

VERSION = 1
"""Of the file's form; a reader refuses every other one."""


class TableError(RequestError):
    """A table cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedShape:
    """One measured shape."""

    signature: str
    shape: tuple[int, int, int]
    choice: str
    """The candidate to run; cuBLAS unless another one was shown to be faster."""
    verdict: str
    """Of the fastest other candidate compared with cuBLAS; "" if none was measured."""
    ratio: float | None = None
    """Duration of the fastest other candidate over that of cuBLAS."""
    times_ns: Mapping[str, float]
    """Candidate -> median, of those with a correct result."""

    @property
    def problem(self) -> MatmulProblem:
        return MatmulProblem(self.signature, *self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A passed verification of a candidate for one signature."""

    signature: str
    candidate: str
    level: str
    classes: tuple[str, ...]
    """The classes of tails that were verified (:func:`.problems.tail_class`), or ``any``."""
    operation: str
    """One of the verified operations."""
    digest: str
    """Of the sources for it, and of the compiler's version (:mod:`.digests`)."""
    device: str
    date: str
    """When the experiment was created, ISO 8601."""

    def covers(self, tails: str) -> bool:
        """Whether shapes of that class are verified."""
        return ANY_CLASS in self.classes or tails in self.classes


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchTable:
    """Everything that is known of one device. An empty one chooses cuBLAS for everything."""

    version: int = VERSION
    target: str
    """``cuda-sm_90``."""
    device: str
    """Product name, as drivers spell it."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the driver, and of the libraries that decide times."""
    created: str = ""
    experiments: tuple[str, ...] = ()
    parameters: Mapping[str, Mapping[str, Parameter]] = field(default_factory=dict)
    """Candidate -> the parameters of its configuration."""
    certificates: tuple[Certificate, ...] = ()
    entries: tuple[TunedShape, ...] = ()

    def configuration(self, candidate: str) -> Configuration:
        """The configuration of a candidate."""
        return Configuration(candidate.partition(":")[2], self.parameters.get(candidate, {}))

    @property
    def certified(self) -> dict[tuple[str, str], Certificate]:
        """Certificates by signature and candidate."""
        return {(one.signature, one.candidate): one for one in self.certificates}

    def document(self) -> dict[str, Any]:
        """The table as JSON, with a checksum."""
        content: dict[str, Any] = json.loads(msgspec.json.encode(asdict(self)))
        return {**content, "sha256": _checksum(content)}


def table_text(table: DispatchTable) -> str:
    """What the file of a table holds."""
    return json.dumps(table.document(), indent=1, sort_keys=True) + "\n"


def write_table(table: DispatchTable, path: Path) -> None:
    """Write a table as JSON.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, table_text(table).encode())
    except OSError as error:
        raise StorageError(
            f"cannot write the table {path}: {error.strerror or error}",
            hint="Free some space, or choose another file with --output.",
        ) from error


def read_table(path: Path) -> DispatchTable:
    """The table in a file.

    Raises:
        TableError: it cannot be read, is damaged, or is of another version.
    """
    hint = "Make one with `gemmetry dispatcher build EXPERIMENT -o TABLE`."
    try:
        data = read_whole(path, "the table", hint=hint)
    except RequestError as error:
        raise TableError(error.message, hint=hint) from error
    return _decoded(data, str(path))


def shipped_table(device: str) -> DispatchTable | None:
    """The table of a product that comes with gemmetry; None if there is none.

    Raises:
        TableError: the installed file is damaged.
    """
    name = f"{'_'.join(re.findall('[a-z0-9]+', device.lower()))}.json"
    found = files("gemmetry.dispatcher").joinpath("tables", name)
    return _decoded(found.read_bytes(), name) if found.is_file() else None


def _decoded(data: bytes, name: str) -> DispatchTable:
    remedy = "Make it again with `gemmetry dispatcher build EXPERIMENT -o TABLE`."
    try:
        content = parsed_json(data)
        if not isinstance(content, dict):
            raise TypeError("it is not a JSON object")
        checksum = content.pop("sha256", "")
        if content.get("version") != VERSION:
            raise TableError(
                f"the table {name} has version {content.get('version')!r}, not {VERSION}",
                hint=remedy,
            )
        if checksum != _checksum(content):
            raise ValueError("its content does not match its checksum")
        table = msgspec.convert(content, DispatchTable)
        _check(table)
    except TableError:
        raise
    except (ValueError, TypeError, GemmetryError, RecursionError) as error:
        line = str(error).splitlines()[0]
        raise TableError(f"the table {name} is damaged: {line}", hint=remedy) from error
    return table


def _check(table: DispatchTable) -> None:
    """
    Raises:
        ValueError: values that no measurement gives.
    """
    for entry in table.entries:
        _check_times(entry.problem.name, entry.times_ns.values())
        if entry.choice not in entry.times_ns and entry.choice != CUBLAS:
            raise ValueError(f"{entry.problem.name}: {entry.choice} was chosen without a time")
        operation_of(entry.problem)


def _check_times(name: str, times: Iterable[float]) -> None:
    if not all(math.isfinite(ns) and ns > 0 for ns in times):
        raise ValueError(f"{name} has times that are not positive and finite")


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
