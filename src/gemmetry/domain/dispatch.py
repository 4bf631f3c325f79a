"""Targets: the devices that dispatches run on or are compiled for.

Configurations, dispatches, and the plan of a run.

Names of operations and dispatches, and their inverse. The grammar is in docs/names.md.

operation = kind "_" shape { "_" geometry } "_" operand "_" operand "_" operand { "_" modifier }
dispatch  = operation "_" configuration
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol

from gemmetry.domain.errors import NameSyntaxError, RequestError
from gemmetry.domain.operation import (
    DTYPES,
    SCALE_FORMATS,
    Conv2dShape,
    DType,
    EpilogueStep,
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
    Signature,
    check_shape,
    operation_name,
    parse_scaling,
)
from gemmetry.domain.settings import RunSettings


class TargetKind(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"
    HIP = "hip"
    VULKAN = "vulkan"
    NULL = "null"
    """The simulated device of the null provider."""


@dataclass(frozen=True, slots=True)
class Target:
    """A device, or for cross-compiling just an architecture (then ``index`` is None).

    Two targets are the same for comparison when their ``name`` is.
    """

    kind: TargetKind
    architecture: str = ""
    """sm_90, gfx942 ...; empty for this machine's CPU."""
    index: int | None = 0
    """Index of the device among those of its kind; None: none is attached, compile only."""
    product: str = field(default="", compare=False)
    """The product name, e.g. "NVIDIA H200"; looked up in the table of devices."""

    @property
    def name(self) -> str:
        """``cpu``, ``cuda-sm_90`` ...: the key in records."""
        return f"{self.kind}-{self.architecture}" if self.architecture else str(self.kind)

    @property
    def device(self) -> str:
        """``cpu``, ``cuda:1`` ...: how the device is addressed here; "" if none is attached."""
        if self.index is None:
            return ""
        return str(self.kind) if self.kind is TargetKind.CPU else f"{self.kind}:{self.index}"

    @property
    def is_gpu(self) -> bool:
        return self.kind in (TargetKind.CUDA, TargetKind.HIP, TargetKind.VULKAN)

    def __str__(self) -> str:
        return self.name


_TARGET = re.compile(r"(?P<kind>[a-z]+)(?:-(?P<arch>[a-z0-9_]+))?(?::(?P<index>[0-9]{1,4}))?")


def parse_target(text: str) -> Target:
    """``cpu``, ``cuda``, ``cuda:1`` (a device here) or ``cuda-sm_90`` (compile only).

    Raises:
        RequestError: the text does not have that form.
    """
    match = _TARGET.fullmatch(text.strip().lower())
    if match is None or match["kind"] not in list(TargetKind):
        raise RequestError(
            f"cannot read the target {text!r}",
            hint=f"Write one of {', '.join(TargetKind)}, cuda:1 for a device, "
            "or cuda-sm_80 to compile only.",
        )
    index = int(match["index"] or 0) if match["index"] or not match["arch"] else None
    return Target(TargetKind(match["kind"]), match["arch"] or "", index)


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several parts of a plan, each the work of a command of its own."""

    number: int
    """Number of the shard, from 1."""
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def takes(self, name: str) -> bool:
        """Whether the operation (or the point of a sweep) called `name` belongs to the shard: by
        a hash of the name alone, so that every machine and version agrees."""
        digest = hashlib.sha256(name.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.number - 1


def parse_shard(text: str) -> Shard | None:
    """``2/8``: the second of eight shards; None for no text.

    Raises:
        RequestError: the text does not have that form, or there is no such shard.
    """
    if not text:
        return None
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise RequestError(
            f"there is no shard {text!r}",
            hint="Write --shard K/N with K from 1 to N, as in 1/2 and 2/2.",
        )
    return Shard(int(match[1]), int(match[2]))


Parameter = int | float | str | bool

DEFAULT_CONFIGURATION = "default"
"""Name of the configuration in which the provider makes every choice."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A provider's way to compute an operation: it may change the speed, never the answer.

    ``name`` is unique within its provider and operation, consists of letters, digits and ``_``, and
    does not begin with a modifier of docs/names.md (``bias``, ``slices2`` ...).
    """

    name: str = DEFAULT_CONFIGURATION
    parameters: Mapping[str, Parameter] = field(default_factory=dict, hash=False)
    is_proposed: bool = field(default=True, compare=False)
    """Whether the configuration takes part where nobody requests configurations."""

    @property
    def tile(self) -> tuple[int, int, int] | None:
        """Sizes along M, N and K of the tile that one thread block computes, where the parameters
        specify them: separately as ``tile_m``, ``block_m``, ``BLOCK_M``, ``BLOCK_SIZE_M``, ``BM``
        and so on, in upper or lower case, or together as ``tile`` or ``block``, either as
        ``128x64x32`` or as one number for all three. An axis without a size counts as 1."""
        given = {name.lower(): value for name, value in self.parameters.items()}
        sizes = [
            next((_size(given[name]) for form in _SIZES if (name := form + axis) in given), 0)
            for axis in "mnk"
        ]
        if not any(sizes):
            sizes = next((_sizes(given[name]) for name in _TILES if name in given), [])
        if not any(sizes):
            return None
        m, n, k = (max(size, 1) for size in [*sizes, 1, 1][:3])
        return m, n, k


_SIZES = ("tile_", "block_", "block_size_", "tile_size_", "b")
"""Parameter names of a tile's size along m, n or k, without that letter."""

_TILES = ("tile", "block", "tile_shape", "block_shape", "tile_size", "block_size")
"""Parameter names that hold all sizes at once."""


def _size(value: Parameter) -> int:
    """A tile size; 0 for a value that is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _sizes(value: Parameter) -> list[int]:
    """Sizes along M, N and, where it is specified, K, parsed from ``128x64x32``, ``128, 64`` or
    ``64``."""
    if isinstance(value, str):
        return [int(number) for number in re.findall(r"[0-9]+", value)][:3]
    return [_size(value)] * 3


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Operation × Configuration × Provider on a Target."""

    operation: Operation
    configuration: Configuration
    provider: str
    target: Target

    @property
    def name(self) -> str:
        """The operation's name, ``_``, the configuration's name."""
        return f"{operation_name(self.operation)}_{self.configuration.name}"

    @property
    def key(self) -> tuple[str, str, str]:
        """(target, provider, name): unique everywhere."""
        return (self.target.name, self.provider, self.name)

    def __str__(self) -> str:
        return f"{self.provider}:{self.name}"


class Selection(Protocol):
    """Decides which dispatches of the product are wanted."""

    def matches(self, provider: str, name: str, operation: Operation) -> bool:
        """True if the dispatch called `name` of `provider` is selected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """A provider by its registered name, with its constructor's options (JSON values)."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDispatch:
    """One dispatch requested by its full name, independently of the axes."""

    operation: Operation
    configuration: str
    provider: str | None = None
    """Provider; None: every provider whose grammar includes the configuration."""
    target: str | None = None
    """Name of the only target; None: every target it is known on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run, complete and re-iterable; `document` is its canonical JSON form."""

    name: str
    operations: Iterable[Operation]
    """May be lazy, must be re-iterable and free of duplicates."""
    providers: tuple[ProviderRequest, ...]
    targets: tuple[Target, ...]
    selection: Selection | None = None
    """Selection; None: all dispatches."""
    named: tuple[NamedDispatch, ...] = ()
    default_configurations_only: bool = False
    proposed_only: frozenset[str] = frozenset()
    """Providers of which only the proposed configurations take part."""
    settings: RunSettings = RunSettings()
    document: Mapping[str, Any] = field(default_factory=dict)
    """Everything that decides which dispatches run and how, so that equal documents are equal
    plans; output options are not in it."""

    @property
    def hash(self) -> str:
        """Ten hex digits over the document."""
        return hash_of(self.document)


def hash_of(document: Mapping[str, Any]) -> str:
    """The hash of the plan with this document."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


_DTYPE_PATTERN = "|".join(sorted(DTYPES, key=len, reverse=True))
_OPERAND = re.compile(rf"({_DTYPE_PATTERN})(nhwc|hwcf|t|n)")
_NUMBER = r"m?\d+(?:p\d+)?(?:e(?:m?\d+))?"
_MODIFIER = re.compile(
    rf"slices(?P<slices>\d{{1,12}})|acc(?P<acc>{_DTYPE_PATTERN})|scale(?P<scale>tensor|row)"
    rf"|(?P<block>vs\d{{1,6}}(?:x\d{{1,6}})?)|(?P<factors>{'|'.join(map(str, SCALE_FORMATS))})"
    rf"|alpha(?P<alpha>{_NUMBER})|beta(?P<beta>{_NUMBER})"
    rf"|(?P<step>{'|'.join(EpilogueStep)})",
    re.ASCII,
)
_RANK = {
    "slices": 0, "acc": 1, "scale": 2, "block": 2, "factors": 3, "alpha": 4, "beta": 5, "step": 6,
}  # fmt: skip
_REPEATED = ("block", "step")
"""Modifiers that may follow one of their kind: blocks of B, fused steps."""
_SIZE_FORMS = {OperationKind.BATCH_MATMUL: "BxMxNxK", OperationKind.CONV2D: "NxHxWxC_RxSxF"}


def parse_number(text: str) -> float:
    """The inverse of :func:`print_number`."""
    return float(text.replace("m", "-").replace("p", "."))


def parse_operation(name: str) -> Operation:
    """The operation named `name`; the inverse of :func:`operation_name`.

    Raises:
        NameSyntaxError: the name does not parse, or something follows the operation.
    """
    operation, configuration = split_dispatch_name(name)
    if configuration:
        raise _syntax(name, f"{configuration!r} follows the operation")
    return operation


def split_dispatch_name(name: str) -> tuple[Operation, str]:
    """Split a dispatch's name into its operation and its configuration's name ("" if absent).

    Raises:
        NameSyntaxError: the name does not begin with an operation, or its parts contradict each
            other.
    """
    kind = next((kind for kind in _KINDS if name.startswith(f"{kind}_")), None)
    if kind is None:
        raise _syntax(
            name, f"it does not start with an operation kind ({', '.join(OperationKind)})"
        )
    parts = name[len(kind) + 1 :].split("_")
    shape, used = _parse_shape(name, kind, parts)
    operands: list[tuple[DType, Layout]] = []
    for part in parts[used : used + 3]:
        match = _OPERAND.fullmatch(part)
        if match is None:
            raise _syntax(name, f"{part!r} is not an operand (dtype and layout, as in f16t)")
        operands.append((DTYPES[match[1]], Layout(match[2])))
    if len(operands) < 3:
        raise _syntax(name, "it needs three operands: A, B and C, as in f16t_f16t_f32t")
    modifiers, used = _parse_modifiers(name, parts, used + 3)
    try:
        signature = _signature(kind, tuple(operands), modifiers)
        check_shape(signature, shape)
    except RequestError as error:
        raise _syntax(name, error.message) from None
    return Operation(signature, shape), "_".join(parts[used:])


_KINDS = sorted(OperationKind, key=len, reverse=True)
_Modifiers = tuple[tuple[str, str], ...]


@lru_cache(maxsize=4096)
def _signature(
    kind: OperationKind, operands: tuple[tuple[DType, Layout], ...], modifiers: _Modifiers
) -> Signature:
    values = {key: text for key, text in modifiers if key != "step"}
    blocks = "_".join(text for key, text in modifiers if key in ("block", "factors"))
    (lhs, lhs_layout), (rhs, rhs_layout), (result, result_layout) = operands
    return Signature(
        kind, lhs, rhs, result, lhs_layout, rhs_layout, result_layout,
        accumulator=DTYPES[values["acc"]] if "acc" in values else None,  # type: ignore[arg-type]
        split_k_slices=int(values.get("slices", "1")),
        scaling=parse_scaling(blocks or values.get("scale", "none")),
        alpha=parse_number(values.get("alpha", "1")),
        beta=parse_number(values.get("beta", "0")),
        epilogue=tuple(EpilogueStep(text) for key, text in modifiers if key == "step"),
    )  # fmt: skip


def _parse_shape(
    name: str, kind: OperationKind, parts: list[str]
) -> tuple[MatmulShape | Conv2dShape, int]:
    if kind is not OperationKind.CONV2D:
        rank = 4 if kind is OperationKind.BATCH_MATMUL else 3
        *batch, m, n, k = _parsed_sizes(name, kind, parts[0], rank)
        return MatmulShape(m, n, k, *batch), 1
    image = _parsed_sizes(name, kind, parts[0], 4)
    filters = _parsed_sizes(name, kind, parts[1] if len(parts) > 1 else "", 3)
    used, geometry = 2, list[int]()
    for word, usual in (("stride", [1, 1]), ("pad", [0, 0])):
        if is_given := len(parts) > used and parts[used].startswith(word):
            usual = _parsed_sizes(name, kind, parts[used].removeprefix(word), 2)
        used += is_given
        geometry += usual
    return Conv2dShape(*image, *filters, *geometry), used


def _parsed_sizes(name: str, kind: OperationKind, text: str, rank: int) -> list[int]:
    fields = text.split("x")
    if len(fields) != rank or not all(f.isascii() and f.isdigit() for f in fields):
        form = _SIZE_FORMS.get(kind, "MxNxK")
        raise _syntax(name, f"{text!r} is not of the form {form} for {kind}")
    if any(len(f) > 12 for f in fields):
        raise _syntax(name, f"a size in {text!r} has more than 12 digits")
    return [int(f) for f in fields]


def _parse_modifiers(name: str, parts: list[str], used: int) -> tuple[_Modifiers, int]:
    found: list[tuple[str, str]] = []
    rank = -1
    while used < len(parts) and (match := _MODIFIER.fullmatch(parts[used])):
        key = str(match.lastgroup)
        if key == "factors" and not (found and found[-1][0] == "block"):
            break  # Only the word after a block is a format of factors.
        repeats = _RANK[key] == rank and not (key in _REPEATED and found[-1][0] == key)
        if _RANK[key] < rank or repeats:
            raise _syntax(name, f"{parts[used]!r} is out of order or appears twice")
        rank = _RANK[key]
        found.append((key, match[key]))
        used += 1
    return tuple(found), used


def _syntax(name: str, problem: str) -> NameSyntaxError:
    # Hostile names may be megabytes long; both ends of a message stay readable.
    if len(problem) > 300:
        problem = f"{problem[:200]} ... {problem[-90:]}"
    return NameSyntaxError(
        f"cannot read the name {name[:200]!r}: {problem}",
        hint="`gemmetry help names` explains the grammar; for example "
        "matmul_768x512x1024_f16t_f16t_f32t.",
    )
