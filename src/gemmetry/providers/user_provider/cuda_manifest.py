"""Integer expressions of a manifest: ``ceil(N, TILE)``, ``2 * STAGES * TILE_K``, ``K % 8 == 0``.

They are Python's, limited to the arithmetic below, and are computed without executing anything
else, because a manifest is data.

The arguments of a user's CUDA kernel, as its manifest lists them, and what they are for an
operation.

The manifest of a file with CUDA kernels: ``my.toml`` next to ``my.cu`` or ``my.cubin``, one
table for each kernel.

What a manifest contains: docs/my-kernel.md.
"""

from __future__ import annotations

import ast
import hashlib
import operator
import re
import struct
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from gemmetry.domain.dispatch import Parameter, parse_operation
from gemmetry.domain.errors import GemmetryError, RequestError, UnknownNameError
from gemmetry.domain.opening import read_text_file, read_whole
from gemmetry.domain.operation import Operation, Signature, TensorSpec
from gemmetry.domain.record import Trait
from gemmetry.domain.units import plural
from gemmetry.hardware.cuda_plans import (
    ADDRESS_ALIGNMENT,
    ELEMENT_BYTES,
    LARGEST_BOX,
    Argument,
    Boxes,
    CubinContents,
    CubinError,
    CubinKernel,
    Pointer,
    Tiles,
    read_cubin,
)
from gemmetry.providers.user_provider.kernel import existing_file, name_configurations

_OPERATORS: Mapping[type[ast.AST], Callable[..., int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

FUNCTIONS: Mapping[str, Callable[..., int]] = {
    "ceil": lambda size, step: -(-size // step),
    "min": min,
    "max": max,
}
"""``ceil(a, b)`` is a divided by b, rounded up."""

_GRAMMAR = "+ - * // %, comparisons, and, or, not, parentheses, ceil(a, b), min() and max()"


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression, parsed."""

    text: str
    _tree: ast.expr

    @property
    def names(self) -> frozenset[str]:
        """The sizes and macros that it mentions."""
        nodes = ast.walk(self._tree)
        return frozenset(n.id for n in nodes if isinstance(n, ast.Name)) - FUNCTIONS.keys()

    def value(self, names: Mapping[str, int]) -> int:
        """Value of the expression; comparisons are 1 or 0.

        Raises:
            ValueError: it divides by zero, or calls a function with a wrong number of arguments.
        """
        try:
            return int(_value(self._tree, names))
        except (ArithmeticError, TypeError) as error:
            raise ValueError(f"{self.text!r} has no value: {error}") from None


def parse_expression(text: str | int) -> Expression:
    """Raises:
    ValueError: it is not an expression of the grammar; the message says where.
    """
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise ValueError(f"{text!r} is neither a number nor an expression")
    try:
        tree = ast.parse(str(text), mode="eval").body
    except (SyntaxError, ValueError):
        raise ValueError(f"{text!r} is not an expression of {_GRAMMAR}") from None
    _check(tree, str(text))
    return Expression(str(text), tree)


def _operands(node: Any) -> list[Any] | None:
    """The nodes that an expression is computed from; None where the grammar does not have it."""
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return []
        case ast.Name():
            return []
        case ast.BinOp(op=op) if type(op) in _OPERATORS:
            return [node.left, node.right]
        case ast.UnaryOp(op=op) if type(op) in _OPERATORS:
            return [node.operand]
        case ast.Compare(ops=ops) if all(type(op) in _OPERATORS for op in ops):
            return [node.left, *node.comparators]
        case ast.BoolOp():
            return list(node.values)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            return list(node.args)
    return None


def _check(node: ast.expr, text: str) -> None:
    operands = _operands(node)
    if operands is None:
        hint = "; // divides" if isinstance(node, ast.BinOp) else ""
        raise ValueError(f"{ast.unparse(node)!r} in {text!r} is not made of {_GRAMMAR}{hint}")
    for one in operands:
        _check(one, text)


def _value(node: Any, names: Mapping[str, int]) -> int:
    """The value of an expression that :func:`_check` has accepted."""
    match node:
        case ast.Constant():
            return int(node.value)  # type: ignore[arg-type]
        case ast.Name(id=name):
            return names[name]
        case ast.BoolOp():
            wanted = all if isinstance(node.op, ast.And) else any
            return wanted(_value(part, names) for part in node.values)
    values = [_value(part, names) for part in _operands(node) or ()]
    match node:
        case ast.Compare():
            pairs = zip(node.ops, values[:-1], values[1:], strict=True)
            return all(_OPERATORS[type(op)](left, right) for op, left, right in pairs)
        case ast.Call(func=ast.Name(id=name)):
            return FUNCTIONS[name](*values)
    return _OPERATORS[type(node.op)](*values)


TENSORS = {
    "A": "lhs", "B": "rhs", "C": "result", "addend": "addend", "scale_a": "scale_a",
    "scale_b": "scale_b", "bias": "bias", "residual": "residual",
}  # fmt: skip
"""Argument -> role of the tensor whose address it is; null where the operation does not have it."""

FACTORS = ("alpha", "beta")
"""Arguments that are f32 numbers."""

MAP_KEYS = ("map", "box", "swizzle", "promotion")
SWIZZLES = (0, 32, 64, 128)
PROMOTIONS = (0, 64, 128, 256)
"""Bytes that the copy engine permutes within, and that the L2 cache fetches at a time (CUDA Driver
API, CUtensorMapSwizzle and CUtensorMapL2promotion)."""

_FORMATS = {"int": "i", "int64": "q"}
"""Type of a member -> its code in the module struct."""
_LARGEST = {"int": 2**31 - 1, "int64": 2**63 - 1}
_POINTER_BYTES, _NUMBER_BYTES, _MAP_BYTES = 8, 4, 128


@dataclass(frozen=True, slots=True)
class MapArgument:
    """A tensor map, for kernels that fetch boxes by Hopper's copy engine."""

    tensor: str
    """Tensor of :data:`TENSORS`."""
    box: tuple[Expression, ...]
    """Elements along each axis, the contiguous one first."""
    swizzle_bytes: int = 0
    promotion_bytes: int = 0

    size: ClassVar[int] = _MAP_BYTES
    """Bytes of the kernel's parameter."""

    def value(self, operation: Operation, names: Mapping[str, int]) -> Argument:
        """Raises:
        ValueError: the copy engine cannot fetch such boxes of the tensor.
        """
        spec = _tensor(operation, TENSORS[self.tensor])
        if spec is None:
            raise ValueError(f"a tensor map of {self.tensor}, which the operation does not have")
        element = "u8" if spec.dtype.storage_bits == 8 else str(spec.dtype)
        if element not in ELEMENT_BYTES:
            raise ValueError(f"there are no tensor maps of {spec.dtype}")
        extents = (*reversed(spec.storage_shape), *(1,) * 5)[: len(self.box)]
        box = tuple(one.value(names) for one in self.box)
        boxes = Boxes(
            element=element, extents=extents, box=box, swizzle_bytes=self.swizzle_bytes,
            promotion_bytes=self.promotion_bytes,
        )  # fmt: skip
        if len(box) < len(spec.storage_shape):
            raise ValueError(f"the box of {self.tensor} lacks an axis: {times(box)}")
        if any(not 1 <= size <= LARGEST_BOX for size in box):
            raise ValueError(f"the box of {self.tensor} is {times(box)}; 1 to 256 are possible")
        row = box[0] * ELEMENT_BYTES[element]
        if self.swizzle_bytes and row > self.swizzle_bytes:
            raise ValueError(
                f"a row of the box of {self.tensor} has {row} bytes, and the swizzle "
                f"{self.swizzle_bytes}"
            )
        if any(stride % ADDRESS_ALIGNMENT for stride in boxes.all_strides):
            raise ValueError(
                f"the tensor map of {self.tensor} requires rows of a multiple of "
                f"{ADDRESS_ALIGNMENT} bytes; they have {boxes.all_strides[0]}"
            )
        return Tiles(TENSORS[self.tensor], boxes)


@dataclass(frozen=True, slots=True)
class StructArgument:
    """Integers that are passed by value as one parameter, laid out as in C."""

    members: tuple[tuple[str, Expression], ...]
    """The type, ``int`` or ``int64``, and the value."""

    @property
    def _layout(self) -> str:
        codes = "".join(_FORMATS[kind] for kind, _ in self.members)
        return f"@{codes}0{max(codes, key=struct.calcsize)}"  # the last pads the end, as C does

    @property
    def size(self) -> int:
        """Bytes of the kernel's parameter."""
        return struct.calcsize(self._layout)

    def value(self, operation: Operation, names: Mapping[str, int]) -> Argument:
        """Raises:
        ValueError: a number does not fit its type.
        """
        numbers = (number_of(one, names, kind) for kind, one in self.members)
        return struct.pack(self._layout, *numbers)


UserArgument = str | Expression | MapArgument | StructArgument
"""A name of :data:`TENSORS` or :data:`FACTORS`, an int, a tensor map or integers by value."""


def argument_bytes(argument: UserArgument) -> int:
    """Bytes of the kernel's parameter."""
    if isinstance(argument, MapArgument | StructArgument):
        return argument.size
    return _POINTER_BYTES if argument in TENSORS else _NUMBER_BYTES


def argument_for(
    argument: UserArgument, operation: Operation, names: Mapping[str, int]
) -> Argument:
    """Argument to pass for an operation.

    Raises:
        ValueError: an expression has no value or does not fit, or a tensor map is impossible.
    """
    if isinstance(argument, MapArgument | StructArgument):
        return argument.value(operation, names)
    if isinstance(argument, Expression):
        return number_of(argument, names, "int")
    if argument in FACTORS:
        return float(getattr(operation.signature, argument))
    role = TENSORS[argument]
    return None if _tensor(operation, role) is None else Pointer(role)


def number_of(expression: Expression, names: Mapping[str, int], kind: str) -> int:
    """The value of an argument of the type `kind`: ``int`` or ``int64``.

    Raises:
        ValueError: the expression has no value, or one that does not fit.
    """
    value = expression.value(names)
    if abs(value) > _LARGEST[kind]:
        raise ValueError(f"the argument {expression.text} does not fit an {kind}")
    return value


def _tensor(operation: Operation, role: str) -> TensorSpec | None:
    return {spec.role: spec for spec in (*operation.inputs, operation.output)}.get(role)


def times(sizes: Iterable[int]) -> str:
    """``16 × 8 × 1``."""
    return " × ".join(map(str, sizes))


SIZES = ("M", "N", "K", "BATCH", "SLICES")
"""Names of an operation's sizes in expressions."""

SOURCE, MACHINE_CODE = ".cu", ".cubin"
"""Suffixes of the files that have a manifest."""

_KEYS = {
    "entry", "operations", "arguments", "grid", "block", "cluster", "shared_bytes", "requires",
    "configurations", "declares",
}  # fmt: skip
_STRUCT_KEYS = ("struct", "int64")
_REQUIRED = ("operations", "arguments", "grid", "block")
_SMALLEST = "128x128x128"
"""A shape with which every signature is valid; the manifest states none."""
_HINT = "`gemmetry help my-kernel` shows a manifest."
_EXAMPLE = (
    'operations = ["bf16t_bf16n_bf16t"], arguments = ["A", "B", "C", "M", "N", "K"], '
    'grid = ["ceil(N, 16)", "ceil(M, 16)"], block = [16, 16]'
)


@dataclass(frozen=True, kw_only=True)
class CudaManifest:
    """A kernel of a file in CUDA C++ or with machine code, and how it is launched."""

    path: Path
    """The source, or the machine code."""
    function_name: str
    """The name of the function's table."""
    entry: str
    """Name in the file."""
    configurations: Mapping[str, Mapping[str, Parameter]]
    """Configuration's name -> macros of a source, or values for expressions."""
    signatures: tuple[Signature, ...]
    """Computed operations, where alpha is 1 if it is an argument, and beta too."""
    arguments: tuple[UserArgument, ...]
    """Arguments in the kernel's order."""
    grid: tuple[Expression, ...]
    """Blocks along x, y and z."""
    block: tuple[Expression, ...]
    """Threads along x, y and z."""
    cluster: tuple[Expression, ...] = ()
    """Blocks of a cluster along x, y and z; empty: no clusters."""
    shared_bytes: Expression = parse_expression(0)
    """Dynamic shared memory of a block."""
    requires: tuple[Expression, ...] = ()
    """Conditions of a supported operation."""
    declared: tuple[Trait, ...] = ()
    cubin: CubinContents | None = None
    """Content of the machine code; None for a source."""

    @property
    def machine_code(self) -> CubinKernel | None:
        """Facts of the machine code about this kernel; None for a source."""
        return None if self.cubin is None else self.cubin.kernels[self.entry]

    def __str__(self) -> str:
        return f"{self.path.name}:{self.function_name}"

    @cached_property
    def digest(self) -> str:
        """Twelve hex digits over the file, its manifest, and the headers that a source can
        include."""
        headers = sorted(self.path.parent.glob("*.cuh")) if self.cubin is None else []
        files = (self.path, manifest_path(self.path), *headers)
        data = b"".join(read_whole(path, "the kernel's file") for path in files)
        return hashlib.sha256(data).hexdigest()[:12]

    def computes(self, signature: Signature) -> bool:
        """Whether one of the manifest's operations has this signature."""
        alpha = 1.0 if "alpha" in self.arguments else signature.alpha
        beta = 1.0 if "beta" in self.arguments and signature.beta != 0 else signature.beta
        return replace(signature, alpha=alpha, beta=beta) in self.signatures


def manifest_path(source: Path) -> Path:
    """``my.toml`` for ``my.cu`` and ``my.cubin``."""
    return source.with_suffix(".toml")


def kernels_of(path: Path) -> list[str]:
    """Every kernel that a manifest lists, as ``file:kernel``: those of a file, or of all the
    machine code in a folder.

    Raises:
        RequestError: no kernel is listed, or a manifest is missing or has a mistake.
    """
    files = sorted(path.glob(f"*{MACHINE_CODE}")) if path.is_dir() else [path]
    if not files:
        raise RequestError(
            f"the folder {path} contains no {MACHINE_CODE} files",
            hint="Name a folder with machine code, or a file.",
        )
    found = [f"{file}:{name}" for file in files for name in _tables(file, "kernel")]
    if not found:
        raise RequestError(
            f"{manifest_path(files[0]).name} lists no kernel",
            hint=f"Write a table [kernel]: {_EXAMPLE}.",
        )
    return found


def load_manifest(text: str, *, configurations: Any = None, prefix: bool = False) -> CudaManifest:
    """The kernel ``path/file.cu:kernel`` or ``path/file.cubin:kernel``, without compiling it.

    Args:
        text: file and kernel; a relative path starts at the current directory.
        configurations: sequence of mappings, macro -> value; None: the manifest's list.
        prefix: put the kernel's name in front of each configuration's.

    Raises:
        RequestError: the source or its manifest is missing or has a mistake.
        UnknownNameError: the manifest has no such kernel, key or argument.
    """
    file_text, _, entry = text.rpartition(":")
    source = existing_file(file_text)
    tables = _tables(source, entry)
    if entry not in tables:
        raise UnknownNameError("kernel", entry, tables, where=manifest_path(source).name)
    return _Reader(source, entry).read(tables[entry], configurations, prefix)


def _tables(source: Path, entry: str) -> dict[str, dict[str, Any]]:
    """The tables of the manifest; `entry` is the one that an error proposes."""
    path = manifest_path(source)
    if not path.is_file():
        raise RequestError(
            f"{source.name} has no manifest: there is no {path.name} next to it",
            hint=f"Write {path.name} with a table [{entry}]: {_EXAMPLE}.",
        )
    try:
        document = tomllib.loads(read_text_file(path, "the manifest", hint=_HINT))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RequestError(f"the manifest {path} is not valid TOML: {error}", hint=_HINT) from None
    tables = {name: value for name, value in document.items() if isinstance(value, dict)}
    if stray := [name for name in document if name not in tables]:
        raise RequestError(
            f"{path.name}: {stray[0]!r} stands outside of a kernel's table",
            hint=f"Write [{entry}] above it.",
        )
    return tables


def _contents(source: Path, entry: str) -> CubinContents | None:
    """Content of the machine code; None for a source.

    Raises:
        RequestError: the file cannot be read, or is not machine code.
        UnknownNameError: it has no such kernel.
    """
    data = read_whole(source, "the kernel")
    try:
        contents = read_cubin(data) if source.suffix == MACHINE_CODE else None
    except CubinError as error:
        raise RequestError(
            f"{source.name} is not machine code for NVIDIA GPUs: {error}",
            hint="Compile it again: nvcc -cubin -arch sm_90a -o my.cubin my.cu.",
        ) from None
    if contents is not None:
        if entry not in contents.kernels:
            raise UnknownNameError("kernel", entry, contents.kernels, where=source.name)
    # Macros may compose names, which only the compiler sees.
    elif not re.search(rf"\b{re.escape(entry)}\b|##", data.decode(errors="replace")):
        raise UnknownNameError("kernel", entry, entries_of(source), where=source.name)
    return contents


def entries_of(source: Path) -> list[str]:
    """Names of functions that the source declares as ``__global__``."""
    plain = re.sub(
        r"__(launch_bounds|cluster_dims|block_size)__\s*\([^)]*\)", "",
        read_whole(source, "the kernel").decode(errors="replace"),
    )  # fmt: skip
    return re.findall(r"__global__[\w\s]*?(\w+)\s*\(", plain)


class _Reader:
    """Reads one table; its errors name the manifest, the table and the key."""

    def __init__(self, source: Path, entry: str) -> None:
        self._source, self._entry = source, entry
        self._where = f"{manifest_path(source).name} [{entry}]"

    def read(self, table: dict[str, Any], configurations: Any, prefix: bool) -> CudaManifest:
        for key in table:
            self._one_of("key", key, _KEYS)
        if missing := [key for key in _REQUIRED if key not in table]:
            raise RequestError(
                f"{self._where} lacks {', '.join(missing)}", hint=f"For example {_EXAMPLE}."
            )
        if configurations is None:
            configurations = table.get("configurations")
        if configurations in (None, []):
            configurations = [{}]
        if not self._list(table, "operations"):
            raise self._mistake("operations", "there are none")
        named = name_configurations(configurations, prefix=f"{self._entry}_" if prefix else "")
        macros = set.intersection(
            *({key for key, v in values.items() if isinstance(v, int)} for values in named.values())
        )
        self._known = {*SIZES, *macros}
        entry = table.get("entry", self._entry)
        if not isinstance(entry, str):
            raise self._mistake("entry", f"{entry!r} is not a text")
        kernel = CudaManifest(
            path=self._source,
            function_name=self._entry,
            entry=entry,
            cubin=_contents(self._source, entry),
            configurations=named,
            signatures=tuple(self._signature(text) for text in self._texts(table, "operations")),
            arguments=tuple(self._argument(item) for item in self._list(table, "arguments")),
            grid=self._extents(table, "grid"),
            block=self._extents(table, "block"),
            cluster=self._extents(table, "cluster") if "cluster" in table else (),
            shared_bytes=self._expression("shared_bytes", table.get("shared_bytes", 0)),
            requires=self._expressions("requires", self._list(table, "requires")),
            declared=tuple(
                Trait(self._one_of("declaration", text, list(map(str, Trait))))
                for text in self._texts(table, "declares")
            ),
        )
        self._check_parameters(kernel)
        return kernel

    def _check_parameters(self, kernel: CudaManifest) -> None:
        """Raises:
        RequestError: the machine code takes other arguments than the manifest lists.
        """
        taken = kernel.machine_code.parameter_bytes if kernel.machine_code else None
        listed = tuple(map(argument_bytes, kernel.arguments))
        if taken not in (None, listed):
            raise self._mistake(
                "arguments",
                f"the kernel {kernel.entry} of {kernel.path.name} takes {_sizes(taken)}, and the "
                f"manifest lists {_sizes(listed)}",
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
        return self._expressions(key, items)

    def _expressions(self, key: str, items: Iterable[Any]) -> tuple[Expression, ...]:
        return tuple(self._expression(key, item) for item in items)

    def _expression(self, key: str, item: Any) -> Expression:
        try:
            expression = parse_expression(item)
        except ValueError as error:
            raise self._mistake(key, str(error)) from None
        for name in sorted(expression.names):
            self._one_of("size or macro", name, self._known, f"{key} of {self._where}")
        return expression

    def _one_of(self, kind: str, name: str, known: Iterable[str], where: str = "") -> str:
        if name not in known:
            raise UnknownNameError(kind, name, list(known), where=where or self._where)
        return name

    def _argument(self, item: Any) -> UserArgument:
        if isinstance(item, dict):
            return self._map(item) if "map" in item else self._struct(item)
        if item in TENSORS or item in FACTORS:
            return str(item)
        if isinstance(item, str) and item.isidentifier():
            self._one_of("argument", item, (*TENSORS, *FACTORS, *self._known))
        return self._expression("arguments", item)

    def _map(self, item: dict[str, Any]) -> MapArgument:
        self._keys(item, MAP_KEYS)
        tensor = self._one_of("tensor", str(item["map"]), TENSORS)
        box = self._list(item, "box")
        if not 1 <= len(box) <= 5:
            raise self._mistake("box", "it has one to five numbers, the contiguous axis first")
        for key, possible in (("swizzle", SWIZZLES), ("promotion", PROMOTIONS)):
            if item.get(key, 0) not in possible:
                known = ", ".join(map(str, possible))
                raise self._mistake(key, f"{item[key]!r} is none of {known}")
        numbers = item.get("swizzle", 0), item.get("promotion", 0)
        return MapArgument(tensor, self._expressions("box", box), *numbers)

    def _struct(self, item: dict[str, Any]) -> StructArgument:
        self._keys(item, _STRUCT_KEYS)
        if len(item) != 1:
            raise self._mistake("arguments", f"{item!r} is neither a struct nor an int64")
        if "int64" in item:
            return StructArgument((("int64", self._expression("arguments", item["int64"])),))
        members: list[tuple[str, Expression]] = []
        for member in self._list(item, "struct"):
            if isinstance(member, dict):
                members += self._struct(member).members
            else:
                members.append(("int", self._expression("arguments", member)))
        if not members:
            raise self._mistake("arguments", "the struct is empty")
        return StructArgument(tuple(members))

    def _keys(self, item: dict[str, Any], known: Iterable[str]) -> None:
        for key in item:
            if key not in known:
                every = (*known, "map", *_STRUCT_KEYS)
                raise UnknownNameError("key", key, every, where=f"arguments of {self._where}")

    def _signature(self, text: str) -> Signature:
        batched = text.removeprefix("batch_matmul_")
        shape = f"batch_matmul_1x{_SMALLEST}" if batched != text else f"matmul_{_SMALLEST}"
        try:
            return parse_operation(f"{shape}_{batched}").signature
        except GemmetryError as error:
            raise RequestError(
                f"{self._where}: operations: {error.message}",
                hint="Write formats and layouts of A, B and C as in names of operations: "
                "bf16t_bf16n_bf16t (gemmetry help names).",
            ) from None

    def _mistake(self, key: str, problem: str) -> RequestError:
        return RequestError(f"{self._where}: {key}: {problem}", hint=_HINT)


def _sizes(sizes: tuple[int, ...]) -> str:
    """``2 arguments of 8 and 4 bytes``."""
    *first, last = map(str, sizes) if sizes else ("0",)
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"{plural(len(sizes), 'argument')} of {listed} bytes"
