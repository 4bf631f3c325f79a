"""Base class with defaults for everything that a provider need not decide.

A provider sets ``name`` and writes ``available``, ``supports``, ``configurations``, ``build``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from gemmetry.domain.contracts import Compiled, Executable, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.target import Target, TargetKind


class BaseProvider(ABC):
    """See :class:`gemmetry.domain.contracts.Provider` for the contract of each method.

    Constructing a provider must be cheap and import no heavy library: listings create one of each.
    """

    name: ClassVar[str]
    description: ClassVar[str] = ""
    """One line for ``gemmetry list providers``."""
    rebuilds_quickly: bool = True

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options: Mapping[str, Any] = options or {}

    @abstractmethod
    def available(self) -> str | None: ...

    @abstractmethod
    def supports(self, operation: Operation, target: Target) -> str | None: ...

    @abstractmethod
    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]: ...

    @abstractmethod
    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable: ...

    def search_space(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        return self.configurations(operation, target)

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        return next((c for c in self.configurations(operation, target) if c.name == name), None)

    def why_not(self, name: str, operation: Operation, target: Target) -> str | None:
        return None

    def targets(self) -> Sequence[Target]:
        return (Target(TargetKind.CPU),)

    def prepare(self, target: Target) -> None:
        return

    def compiles_ahead(self, target: Target) -> bool:
        return False

    def generate(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Sequence[Path]:
        return ()

    def compile(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Iterable[Compiled]:
        return [Compiled(dispatch=dispatch, facts=BuildFacts()) for dispatch in dispatches]

    def seconds_per_launch(self, dispatch: Dispatch) -> float | None:
        return None

    def versions(self) -> Mapping[str, str]:
        return {}

    def doctor_notes(self) -> Sequence[str]:
        return ()
