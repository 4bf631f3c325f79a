"""Isolates a provider of another package, so that its exceptions do not end a listing or a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from gemmetry.domain.errors import GemmetryError
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target

_Answer = TypeVar("_Answer")


class IsolatedPlugin:
    """Wraps a plug-in; its exceptions become the reason why it is unavailable or does not support
    an operation.

    Methods that run in worker processes (``compile``, ``build`` ...) are called directly: the
    engine isolates workers.
    """

    def __init__(self, name: str, plugin: Any) -> None:
        self.name = name
        self._plugin = plugin

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._plugin, attribute)

    def available(self) -> str | None:
        """The plug-in's result, or the exception raised by this method or by the one for its
        targets."""
        answer, raised = _ask("available", self._plugin.available, None)
        return raised or answer or self._targets[1]

    def targets(self) -> Sequence[Target]:
        """The plug-in's result; none if it raised."""
        return self._targets[0]

    def supports(self, operation: Operation, target: Target) -> str | None:
        """The plug-in's result, or the exception it raised."""
        answer, raised = _ask("supports", lambda: self._plugin.supports(operation, target), None)
        return raised or answer

    def versions(self) -> Mapping[str, str]:
        """The plug-in's result; empty if it raised."""
        nothing: Mapping[str, str] = {}
        return _ask("versions", self._plugin.versions, nothing)[0]

    def doctor_notes(self) -> Sequence[str]:
        """The plug-in's notes, or the exception it raised."""
        nothing: Sequence[str] = ()
        notes, raised = _ask("doctor_notes", self._plugin.doctor_notes, nothing)
        return (raised,) if raised else notes

    @cached_property
    def _targets(self) -> tuple[Sequence[Target], str | None]:
        nothing: Sequence[Target] = ()
        return _ask("targets", self._plugin.targets, nothing)


def _ask(
    name: str, question: Callable[[], _Answer], otherwise: _Answer
) -> tuple[_Answer, str | None]:
    """The result and None, or `otherwise` and the exception raised by the method `name`."""
    try:
        return question(), None
    except GemmetryError as error:
        return otherwise, error.message
    except (Exception, SystemExit) as error:  # noqa: BLE001
        # The isolation boundary around other packages' code, as where they are imported.
        return otherwise, f"its {name}() raised {type(error).__name__}: {error}"
