"""What a table is keyed by: the size of a product, everything else about it, and candidates.

The table of a device: measured times, what to choose, and which kernels are verified.

Digests of the sources that a dispatch is compiled from: a verified kernel whose source changed
is no longer verified.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gemmetry.domain.contracts import Provider, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Parameter
from gemmetry.domain.errors import GemmetryError, RequestError, StorageError
from gemmetry.domain.files import write_whole
from gemmetry.domain.names import parse_operation
from gemmetry.domain.opening import parsed_json, read_whole
from gemmetry.domain.operation import Operation, operation_name

CUBLAS = "torch:default"
"""The candidate that computes everything: torch's own call, which is cuBLAS on NVIDIA."""

ANY_CLASS = "any"
"""Stands for all classes of tails."""

_DEFAULT_TILE = (128, 128, 64)
"""Assumed where a configuration does not specify a tile, as verification assumes it."""
_PROOF_SIZES = ((136, 1032, 4608), (128, 1792, 4608))
"""Of N, 1032 is no multiple of any tile, but of 8, so that operands need no packed copy; 1792 is a
multiple of 112, 128 and 256. K is a multiple of 512, which some kernels for few rows require."""
_SMALL_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
_ROW_STEP = 256


class MatmulProblem(NamedTuple):
    """A matmul: its size, and what its name has after the size."""

    signature: str
    """Formats, layouts and modifiers, as in ``bf16t_bf16n_bf16t_bias_relu``."""
    m: int
    n: int
    k: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.m, self.n, self.k

    @property
    def name(self) -> str:
        """The operation's name."""
        return f"matmul_{self.m}x{self.n}x{self.k}_{self.signature}"

    @property
    def row_bucket(self) -> int:
        """M rounded up to 1, 2, 4 … 128, or to a multiple of 256: kernels of one bucket run the
        same number of rows of tiles."""
        if self.m > _SMALL_ROWS[-1]:
            return -(-self.m // _ROW_STEP) * _ROW_STEP
        return next(rows for rows in _SMALL_ROWS if rows >= self.m)

    @property
    def for_proof(self) -> tuple[MatmulProblem, ...]:
        """Small problems with tails and without, of at most as many rows (kernels for few rows
        accept no more): verifying large ones with many checks takes the host seconds each, and
        shows nothing more of a kernel that is the same for all sizes."""
        return tuple(
            MatmulProblem(self.signature, min(self.m, rows), columns, depth)
            for rows, columns, depth in _PROOF_SIZES
        )

    def distance(self, other: MatmulProblem) -> float:
        """Euclidean distance in octaves of M, N and K."""
        pairs = zip(self.shape, other.shape, strict=True)
        return math.hypot(*(math.log2(a / b) for a, b in pairs))


def problem_of(operation: Operation) -> MatmulProblem:
    """The problem of a matmul."""
    m, n, k, _ = operation.matmul_shape
    return MatmulProblem(operation_name(operation).split("_", 2)[2], m, n, k)


@lru_cache(maxsize=4096)
def operation_of(problem: MatmulProblem) -> Operation:
    """The operation of a problem.

    Raises:
        NameSyntaxError: the signature does not follow docs/names.md.
    """
    return parse_operation(problem.name)


def candidate_of(provider: str, configuration: str) -> str:
    """``provider:configuration``."""
    return f"{provider}:{configuration}"


def parts_of(candidate: str) -> tuple[str, str]:
    """The provider and the configuration's name."""
    provider, _, configuration = candidate.partition(":")
    return provider, configuration


def tail_class(problem: MatmulProblem, configuration: Configuration) -> str:
    """The axes that are no multiples of the configuration's tile, as in ``mk``; ``whole`` if
    there are none. A kernel that is correct for one shape of a class takes the same paths for the
    others."""
    tile = configuration.tile or _DEFAULT_TILE
    sizes = zip("mnk", problem.shape, tile, strict=True)
    return "".join(axis for axis, size, step in sizes if size % step) or "whole"


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
    found = files("gemmetry.tuning.dispatcher").joinpath("tables", name)
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
        if not all(math.isfinite(ns) and ns > 0 for ns in entry.times_ns.values()):
            raise ValueError(f"{entry.problem.name} has times that are not positive and finite")
        if entry.choice not in entry.times_ns and entry.choice != CUBLAS:
            raise ValueError(f"{entry.problem.name}: {entry.choice} was chosen without a time")
        operation_of(entry.problem)


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


ProviderOf = Callable[[str], Provider]
"""Name -> provider; raises GemmetryError for those that do not exist."""


def source_digest(provider: Provider, dispatch: Dispatch) -> str:
    """SHA-256 over the sources that `provider` generates for `dispatch`, and its versions, which
    include that of the compiler.

    Raises:
        GemmetryError: the provider cannot generate them.
    """
    found = hashlib.sha256()
    for name, data in sorted(_sources(provider, dispatch).items()):
        found.update(f"{name}\0{len(data)}\0".encode() + data)
    for name, version in sorted(provider.versions().items()):
        found.update(f"{name}={version}\0".encode())
    return found.hexdigest()


def is_unchanged(provider: Provider, dispatch: Dispatch, stored: Path) -> bool:
    """Whether the sources in `stored`, the folder where an experiment kept those of `dispatch`, are
    what the provider generates today. Files that the experiment did not keep are not compared."""
    try:
        sources = _sources(provider, dispatch)
    except GemmetryError:
        return False
    kept = {path.name: path for path in stored.glob("*") if path.is_file()}
    return all(kept[name].read_bytes() == sources[name] for name in sources.keys() & kept.keys())


def _sources(provider: Provider, dispatch: Dispatch) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="gemmetry-") as folder:
        paths = provider.generate([dispatch], Workspace(generated=Path(folder)))
        return {path.name: path.read_bytes() for path in paths}
