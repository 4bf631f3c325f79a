"""The manifest of a CUDA C++ file: ``my.toml`` next to ``my.cu``, one table for each kernel.

What a manifest contains: docs/my-kernel.md.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gemmetry.domain.dispatch import Parameter
from gemmetry.domain.errors import GemmetryError, RequestError, UnknownNameError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import Signature
from gemmetry.domain.record import Trait
from gemmetry.providers.user_provider.cuda.expressions import Expression, parse_expression
from gemmetry.providers.user_provider.kernel import name_configurations

SIZES = ("M", "N", "K", "BATCH", "SLICES")
"""Names of an operation's sizes in expressions."""

TENSORS = {
    "A": "lhs", "B": "rhs", "C": "result", "addend": "addend", "scale_a": "scale_a",
    "scale_b": "scale_b", "bias": "bias", "residual": "residual",
}  # fmt: skip
"""Argument -> role of the tensor whose address it is; null where the operation does not have it."""

FACTORS = ("alpha", "beta")
"""Arguments that are f32 numbers."""

_KEYS = {
    "operations", "arguments", "grid", "block", "cluster", "shared_bytes", "requires",
    "configurations", "declares",
}  # fmt: skip
_REQUIRED = ("operations", "arguments", "grid", "block")
_SMALLEST = "128x128x128"
"""A shape with which every signature is valid; the manifest states none."""
_EXAMPLE = (
    'operations = ["bf16t_bf16n_bf16t"], arguments = ["A", "B", "C", "M", "N", "K"], '
    'grid = ["ceil(N, 16)", "ceil(M, 16)"], block = [16, 16]'
)


@dataclass(frozen=True, kw_only=True)
class CudaManifest:
    """A kernel of a CUDA C++ file, and how it is launched."""

    path: Path
    """The source."""
    function_name: str
    configurations: Mapping[str, Mapping[str, Parameter]]
    """Configuration's name -> macros."""
    signatures: tuple[Signature, ...]
    """What it computes, where alpha is 1 if it is an argument, and beta too."""
    arguments: tuple[str | Expression, ...]
    """In the kernel's order: names of :data:`TENSORS` and :data:`FACTORS`, and integers."""
    grid: tuple[Expression, ...]
    """Blocks along x, y and z."""
    block: tuple[Expression, ...]
    """Threads along x, y and z."""
    cluster: tuple[Expression, ...] = ()
    """Blocks of a cluster along x, y and z; empty: no clusters."""
    shared_bytes: Expression = parse_expression(0)
    """Dynamic shared memory of a block."""
    requires: tuple[Expression, ...] = ()
    """What must hold for an operation to be supported."""
    declared: tuple[Trait, ...] = ()

    def __str__(self) -> str:
        return f"{self.path.name}:{self.function_name}"

    @cached_property
    def digest(self) -> str:
        """Twelve hex digits over the source, its manifest and the headers in its folder."""
        digest = hashlib.sha256()
        for path in (self.path, manifest_path(self.path), *headers_of(self.path)):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:12]

    def computes(self, signature: Signature) -> bool:
        """Whether one of the manifest's operations has this signature."""
        return self._without_factors(signature) in self.signatures

    def _without_factors(self, signature: Signature) -> Signature:
        alpha = 1.0 if "alpha" in self.arguments else signature.alpha
        beta = 1.0 if "beta" in self.arguments and signature.beta != 0 else signature.beta
        return replace(signature, alpha=alpha, beta=beta)


def manifest_path(source: Path) -> Path:
    """``my.toml`` for ``my.cu``."""
    return source.with_suffix(".toml")


def headers_of(source: Path) -> list[Path]:
    """The headers that the source can include: ``*.cuh`` in its folder."""
    return sorted(source.parent.glob("*.cuh"))


def load_manifest(text: str, *, configurations: Any = None, prefix: bool = False) -> CudaManifest:
    """The kernel ``path/file.cu:entry``, without compiling it.

    Args:
        text: file and kernel; a relative path starts at the current directory.
        configurations: sequence of mappings, macro -> value; None: the manifest's list.
        prefix: put the kernel's name in front of each configuration's.

    Raises:
        RequestError: the source or its manifest is missing or has a mistake.
        UnknownNameError: the manifest has no such kernel, key or argument.
    """
    file_text, _, entry = text.rpartition(":")
    source = Path(file_text)
    if not source.is_file():
        raise RequestError(
            f"there is no kernel file {file_text!r}",
            hint="The path is relative to the directory in which gemmetry was started.",
        )
    table = _table(source, entry)
    return _Reader(source, entry).read(table, configurations, prefix)


def _table(source: Path, entry: str) -> dict[str, Any]:
    path = manifest_path(source)
    if not path.is_file():
        raise RequestError(
            f"{source.name} has no manifest: there is no {path.name} next to it",
            hint=f"Write {path.name} with a table [{entry}]: {_EXAMPLE}.",
        )
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        source_text = source.read_text(encoding="utf-8", errors="replace")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(
            f"the manifest {path} is not valid TOML: {error}", hint="See docs/my-kernel.md."
        ) from None
    except OSError as error:
        raise RequestError(
            f"cannot read {error.filename}: {error.strerror}", hint="Check its permissions."
        ) from None
    tables = {name: value for name, value in document.items() if isinstance(value, dict)}
    if stray := [name for name in document if name not in tables]:
        raise RequestError(
            f"{path.name}: {stray[0]!r} stands outside of a kernel's table",
            hint=f"Write [{entry}] above it.",
        )
    if entry not in tables:
        raise UnknownNameError("kernel", entry, tables, where=path.name)
    # Macros may compose names, which only the compiler sees.
    if not re.search(rf"\b{re.escape(entry)}\b|##", source_text):
        raise UnknownNameError("kernel", entry, entries_of(source), where=source.name)
    return tables[entry]


def entries_of(source: Path) -> list[str]:
    """Names of functions that the source declares as ``__global__``."""
    plain = re.sub(
        r"__(launch_bounds|cluster_dims|block_size)__\s*\([^)]*\)", "",
        source.read_text(errors="replace"),
    )  # fmt: skip
    return re.findall(r"__global__[\w\s]*?(\w+)\s*\(", plain)


class _Reader:
    """Reads one table; its errors name the manifest, the table and the key."""

    def __init__(self, source: Path, entry: str) -> None:
        self._source = source
        self._entry = entry
        self._where = f"{manifest_path(source).name} [{entry}]"

    def read(self, table: dict[str, Any], configurations: Any, prefix: bool) -> CudaManifest:
        for key in table:
            if key not in _KEYS:
                raise UnknownNameError("key", key, _KEYS, where=self._where)
        if missing := [key for key in _REQUIRED if key not in table]:
            raise RequestError(
                f"{self._where} lacks {', '.join(missing)}", hint=f"For example {_EXAMPLE}."
            )
        if configurations is None:
            configurations = table.get("configurations")
        if configurations is None or configurations == []:
            configurations = [{}]
        if not self._list(table, "operations"):
            raise self._mistake("operations", "there are none")
        named = name_configurations(configurations, prefix=f"{self._entry}_" if prefix else "")
        macros = set.intersection(
            *({key for key, v in values.items() if isinstance(v, int)} for values in named.values())
        )
        self._known = {*SIZES, *macros}
        return CudaManifest(
            path=self._source,
            function_name=self._entry,
            configurations=named,
            signatures=tuple(self._signature(text) for text in self._texts(table, "operations")),
            arguments=tuple(self._argument(item) for item in self._list(table, "arguments")),
            grid=self._extents(table, "grid"),
            block=self._extents(table, "block"),
            cluster=self._extents(table, "cluster") if "cluster" in table else (),
            shared_bytes=self._expression("shared_bytes", table.get("shared_bytes", 0)),
            requires=tuple(
                self._expression("requires", item) for item in self._list(table, "requires")
            ),
            declared=tuple(self._trait(text) for text in self._texts(table, "declares")),
        )

    def _list(self, table: dict[str, Any], key: str) -> list[Any]:
        value = table.get(key, [])
        return value if isinstance(value, list) else [value]

    def _texts(self, table: dict[str, Any], key: str) -> Iterable[str]:
        for item in self._list(table, key):
            if not isinstance(item, str):
                raise self._mistake(key, f"{item!r} is not a text")
            yield item

    def _extents(self, table: dict[str, Any], key: str) -> tuple[Expression, ...]:
        items = self._list(table, key)
        if not 1 <= len(items) <= 3:
            raise self._mistake(key, "it has one to three numbers, along x, y and z")
        return tuple(self._expression(key, item) for item in items)

    def _expression(self, key: str, item: Any) -> Expression:
        try:
            expression = parse_expression(item)
        except ValueError as error:
            raise self._mistake(key, str(error)) from None
        for name in sorted(expression.names - self._known):
            where = f"{key} of {self._where}"
            raise UnknownNameError("size or macro", name, self._known, where=where)
        return expression

    def _argument(self, item: Any) -> str | Expression:
        if item in TENSORS or item in FACTORS:
            return str(item)
        if isinstance(item, str) and item.isidentifier() and item not in self._known:
            known = (*TENSORS, *FACTORS, *self._known)
            raise UnknownNameError("argument", item, known, where=self._where)
        return self._expression("arguments", item)

    def _signature(self, text: str) -> Signature:
        batched = text.removeprefix("batch_matmul_")
        shape = f"batch_matmul_1x{_SMALLEST}" if batched != text else f"matmul_{_SMALLEST}"
        try:
            return parse_operation(f"{shape}_{batched}").signature
        except GemmetryError as error:
            raise RequestError(
                f"{self._where}: operations: {error.message}",
                hint="Write formats and layouts of A, B and C as in names of operations: "
                "bf16t_bf16n_bf16t (docs/names.md).",
            ) from None

    def _trait(self, text: str) -> Trait:
        known = [str(trait) for trait in Trait]
        if text not in known:
            raise UnknownNameError("declaration", text, known, where=self._where)
        return Trait(text)

    def _mistake(self, key: str, problem: str) -> RequestError:
        return RequestError(f"{self._where}: {key}: {problem}", hint="See docs/my-kernel.md.")
