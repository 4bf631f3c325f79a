"""What makes two results comparable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Machine, software and device of a run; stored once an experiment, referred to by its id."""

    hostname: str = ""
    operating_system: str = ""
    python: str = ""
    cpu: str = ""
    cpu_count: int = 0
    """Processors this process may use."""
    memory_bytes: int = 0
    devices: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = ()
    """The driver's identities of the GPUs: two cards of one model differ by some percent."""
    driver: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Name -> version of gemmetry and of every provider library installed."""
    git_revision: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables known to change speed (thread counts, NCCL_*, TRITON_* ...)."""

    @property
    def id(self) -> str:
        """Short hash of everything here; equal ids mean comparable results."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def agrees_with(self, other: Environment) -> bool:
        """Whether nothing differs but packages that only one of both has asked for."""
        both = self.packages.keys() & other.packages.keys()
        mine = replace(self, packages={name: self.packages[name] for name in both})
        return mine == replace(other, packages={name: other.packages[name] for name in both})

    def differences(self, other: Environment) -> list[str]:
        """One readable line for each field that differs; of mappings for each key that does."""
        mine, theirs = _flat(asdict(self)), _flat(asdict(other))
        return [
            f"{name}: {_shown(mine.get(name))} vs {_shown(theirs.get(name))}"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        ]


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of mappings beside the other fields: ``packages.torch``."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": item for key, item in value.items()}
        else:
            found[name] = value
    return found


def _shown(value: Any) -> str:
    if value in (None, "", ()):
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
