"""Configurations and dispatches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmetry.domain.names import operation_name
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target

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
