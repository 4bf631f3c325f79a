"""Configurations and dispatches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmetry.domain.names import operation_name
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target

Parameter = int | float | str | bool

DEFAULT_CONFIGURATION = "default"
"""Name of the configuration that leaves every choice to the provider."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a provider computes an operation; it may change the speed, never the answer.

    ``name`` is unique within its provider and operation, made of letters, digits and ``_``, and
    does not begin with a modifier of docs/names.md (``bias``, ``slices2`` ...).
    """

    name: str = DEFAULT_CONFIGURATION
    parameters: Mapping[str, Parameter] = field(default_factory=dict, hash=False)

    @property
    def tile(self) -> tuple[int, int, int] | None:
        """Sizes along M, N and K of what one block of threads computes, where the parameters tell
        them as ``tile_m`` or ``block_m`` and so on; an axis that they leave out is 1."""
        sizes = [self.parameters.get(f"tile_{a}", self.parameters.get(f"block_{a}")) for a in "mnk"]
        if all(size is None for size in sizes):
            return None
        m, n, k = (size if isinstance(size, int) and size > 0 else 1 for size in sizes)
        return m, n, k


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
