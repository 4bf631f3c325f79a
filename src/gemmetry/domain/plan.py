"""The plan of a run: operations × providers × targets, filtered by a selection."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gemmetry.domain.operation import Operation
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target


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
    settings: RunSettings = RunSettings()
    document: Mapping[str, Any] = field(default_factory=dict)
    """Everything that decides which dispatches run and how, so that equal documents are equal
    plans; output options are not in it."""

    @property
    def hash(self) -> str:
        """Ten hex digits over the document."""
        text = json.dumps(self.document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:10]
