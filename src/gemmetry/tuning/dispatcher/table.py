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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gemmetry.domain.contracts import Provider, Workspace
from gemmetry.domain.dispatch import (
    Configuration,
    Dispatch,
    Parameter,
    parse_operation,
    parse_target,
)
from gemmetry.domain.errors import GemmetryError, RequestError, StorageError
from gemmetry.domain.files import write_whole
from gemmetry.domain.opening import parsed_json, read_whole
from gemmetry.domain.operation import Operation, operation_name

CUBLAS = "torch:default"
"""The candidate that computes everything: torch's own call, which is cuBLAS on NVIDIA."""

ANY_CLASS = "any"
"""Stands for all classes of tails."""

_DEFAULT_TILE = (128, 128, 64)
"""Assumed where a configuration does not specify a tile, as verification assumes it."""
_PROOF_SIZES = ((136, 128), (1032, 1792), (4608, 4608))
"""M, N and K of proofs: with a tail, and rounded down to whole tiles. 1032 is no multiple of any
tile, but of 8, so that operands need no packed copy."""
_PROOF_STEPS = (8, 512)
"""What N and K of proofs are multiples of; some kernels for few rows require that of K."""
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

    def distance(self, other: MatmulProblem) -> float:
        """Euclidean distance in octaves of M, N and K."""
        return octaves(self.shape, other.shape)


def octaves(one: Sequence[int], other: Sequence[int]) -> float:
    """Euclidean distance of two shapes in octaves."""
    return math.hypot(*(math.log2(a / b) for a, b in zip(one, other, strict=True)))


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
    sizes = zip("mnk", problem.shape, configuration.tile or _DEFAULT_TILE, strict=True)
    return "".join(axis for axis, size, step in sizes if size % step) or "whole"


def small_proofs(problem: MatmulProblem, configuration: Configuration) -> list[MatmulProblem]:
    """Small problems, of at most as many rows, one for each class of tails: verifying large ones
    takes seconds each, and shows nothing more of a kernel that is the same for all sizes. The first
    has the most tails, the last has whole tiles if any has."""
    tile = configuration.tile or _DEFAULT_TILE
    (most, whole), *others = _PROOF_SIZES
    rows = min(problem.m, most)
    rows -= rows > 1 and rows % tile[0] == 0
    full = max(min(problem.m, whole) // tile[0], 1) * tile[0]
    axes = [[rows, full] if full <= problem.m else [rows]]
    for (tail, whole), own, step in zip(others, tile[1:], _PROOF_STEPS, strict=True):
        multiple = math.lcm(own, step)
        axes.append([tail, max(whole // multiple, 1) * multiple])
    found = (MatmulProblem(problem.signature, *sizes) for sizes in product(*axes))
    return list({tail_class(one, configuration): one for one in found}.values())


VERSION = 2
"""Of the file's form. Certificates of version 1 have digests over sources and versions."""


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
    """Candidate -> its median, or the mean of the middle half of its turns; none without a correct
    result."""

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
    """The classes of tails that were verified (:func:`tail_class`), or ``any``."""
    operation: str
    """One of the verified operations."""
    digest: str
    """Of the sources that were verified (:func:`source_digest`)."""
    versions: Mapping[str, str] | None = None
    """Of the libraries of the process that verified, compilers among them; None: the table is of
    version 1."""
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
        return Configuration(parts_of(candidate)[1], self.parameters.get(candidate, {}))

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


def shipped_table(device: str, target: str = "") -> DispatchTable | None:
    """The table of a product that comes with gemmetry, else one of another product with the same
    `target`; None if there is none.

    Raises:
        TableError: the installed file is damaged.
    """
    name = f"{'_'.join(re.findall('[a-z0-9]+', device.lower()))}.json"
    folder = files("gemmetry.tuning.dispatcher").joinpath("tables")
    found = folder.joinpath(name)
    if found.is_file():
        return _decoded(found.read_bytes(), name)
    others = sorted(folder.iterdir(), key=lambda one: one.name) if target else []
    tables = (_decoded(one.read_bytes(), one.name) for one in others)
    return next((one for one in tables if one.target == target), None)


def _decoded(data: bytes, name: str) -> DispatchTable:
    remedy = "Make it again with `gemmetry dispatcher build EXPERIMENT -o TABLE`."
    try:
        content = parsed_json(data)
        if not isinstance(content, dict):
            raise TypeError("it is not a JSON object")
        checksum = content.pop("sha256", "")
        if content.get("version") not in range(1, VERSION + 1):
            raise TableError(
                f"the table {name} has version {content.get('version')!r}, not up to {VERSION}",
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


def source_digest(
    provider: Provider,
    dispatch: Dispatch,
    *,
    versions: Mapping[str, str] | None = None,
    kept: Path | None = None,
) -> str:
    """SHA-256 over the sources that `provider` generates for `dispatch`.

    Args:
        versions: hashed too, as in tables of version 1.
        kept: a folder whose files of the same names stand for the generated ones: those that an
            experiment kept of what it verified.

    Raises:
        GemmetryError: the provider cannot generate them.
    """
    found = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix="gemmetry-") as folder:
        paths = provider.generate([dispatch], Workspace(generated=Path(folder)))
        for path in sorted(paths, key=lambda one: one.name):
            stored = kept / path.name if kept else path
            data = (stored if stored.is_file() else path).read_bytes()
            found.update(f"{path.name}\0{len(data)}\0".encode() + data)
    for name, version in sorted((versions or {}).items()):
        found.update(f"{name}={version}\0".encode())
    return found.hexdigest()


def why_refused(certificate: Certificate, target: str, provider_of: ProviderOf) -> str:
    """Why a verified candidate cannot be used in this process: its provider does not work, or the
    source or a library of the provider is another one than in the process that verified; "" if it
    can."""
    name = parts_of(certificate.candidate)[0]
    try:
        provider = provider_of(name)
        if reason := provider.available():
            return f"{name}: {reason}"
        here = provider.versions()
        # As when it was verified, for the architecture rather than for a device.
        dispatch = dispatch_of(certificate.operation, certificate.candidate, target, provider_of)
        then, old = certificate.versions, None
        if then is None:
            old, then = here, here
        digest = source_digest(provider, dispatch, versions=old)
    except GemmetryError as error:
        return error.message
    changed = version_changes({one: then.get(one, "none") for one in here}, here)
    if changed or digest == certificate.digest:
        return changed
    return "its source changed" if old is None else "its source or its compiler changed"


def refusals(table: DispatchTable, provider_of: ProviderOf) -> dict[str, int]:
    """Why certificates do not fit this process -> how many of them, the most first."""
    found = Counter(why_refused(one, table.target, provider_of) for one in table.certificates)
    del found[""]
    return dict(found.most_common())


def version_changes(then: Mapping[str, str], here: Mapping[str, str]) -> str:
    """The versions of `then` that are others in `here`; "" if all are the same."""
    pairs = ((name, text, here.get(name, "none")) for name, text in sorted(then.items()))
    return ", ".join(f"{name} {text}, now {now}" for name, text, now in pairs if now != text)


def dispatch_of(operation: str, candidate: str, target: str, provider_of: ProviderOf) -> Dispatch:
    """The dispatch of a candidate for an operation.

    Raises:
        GemmetryError: there is no such provider, or it has no such configuration.
    """
    provider, name = parts_of(candidate)
    parsed, where = parse_operation(operation), parse_target(target)
    configuration = provider_of(provider).parse_configuration(name, parsed, where)
    if configuration is None:
        raise RequestError(f"the provider {provider} has no configuration {name} for {operation}")
    return Dispatch(parsed, configuration, provider, where)
