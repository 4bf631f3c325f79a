"""What makes two results comparable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Machine, software and device of a run; stored once per experiment and referenced by its
    id."""

    hostname: str = ""
    operating_system: str = ""
    python: str = ""
    cpu: str = ""
    cpu_count: int = 0
    """Processors this process may use."""
    memory_bytes: int = 0
    devices: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = ()
    """The driver's identifiers of the GPUs: two cards of one model differ by a few percent."""
    driver: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Name -> version of gemmetry and of every provider library installed."""
    git_revision: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables known to change speed (thread counts, NCCL_*, TRITON_* ...)."""

    @property
    def id(self) -> str:
        """Short hash over all fields; equal ids mean comparable results."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def agrees_with(self, other: Environment) -> bool:
        """Whether the only differences are packages that just one of the two lists."""
        both = self.packages.keys() & other.packages.keys()
        mine = replace(self, packages={name: self.packages[name] for name in both})
        return mine == replace(other, packages={name: other.packages[name] for name in both})

    def differences(self, other: Environment) -> list[str]:
        """One readable line for each field that differs, and for each differing key of a
        mapping."""
        mine, theirs = _flat(asdict(self)), _flat(asdict(other))
        return [
            f"{name}: {_shown(mine.get(name))} vs {_shown(theirs.get(name))}"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        ]


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with each entry of a mapping as a field of its own: ``packages.torch``."""
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
