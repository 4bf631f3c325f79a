"""Targets: the devices that dispatches run on or are compiled for.

Configurations, dispatches, and the plan of a run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gemmetry.domain.errors import RequestError
from gemmetry.domain.operation import Operation, operation_name
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
    """Which device of that kind on this machine; None: none is attached, compile only."""
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
    compile_only = match["arch"] is not None and match["index"] is None
    return Target(
        TargetKind(match["kind"]),
        match["arch"] or "",
        None if compile_only else int(match["index"] or 0),
    )


def check_device_names(names: Iterable[str]) -> None:
    """Check that none of the names of devices is their number.

    Raises:
        RequestError: one is.
    """
    for name in names:
        if name.isdigit():
            raise RequestError(
                f"--devices {name}: a number names no device",
                hint="Name the devices, as in --devices cuda:0,cuda:1.",
            )


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several parts of a plan, each the work of a command of its own."""

    number: int
    """Counts from 1."""
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
    """How a provider computes an operation; it may change the speed, never the answer.

    ``name`` is unique within its provider and operation, consists of letters, digits and ``_``, and
    does not begin with a modifier of docs/names.md (``bias``, ``slices2`` ...).
    """

    name: str = DEFAULT_CONFIGURATION
    parameters: Mapping[str, Parameter] = field(default_factory=dict, hash=False)
    is_proposed: bool = field(default=True, compare=False)
    """Whether it takes part where nobody requests configurations."""

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

    @property
    def everything(self) -> bool:
        """True if nothing is filtered, so that callers may skip the test."""


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
    """None: every provider whose grammar includes the configuration."""
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
