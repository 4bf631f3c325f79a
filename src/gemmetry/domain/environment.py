"""What makes two results comparable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


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

    def differences(self, other: Environment) -> list[str]:
        """One readable line for each field that differs."""
        mine, theirs = asdict(self), asdict(other)
        return [f"{k}: {mine[k]!r} vs {theirs[k]!r}" for k in mine if mine[k] != theirs[k]]
