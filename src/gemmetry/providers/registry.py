"""Isolates a provider of another package, so that its exceptions do not end a listing or a plan.

Finds providers: modules of this package by file name, and entry points of other packages.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from gemmetry.domain.contracts import Executable, Provider, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target
from gemmetry.domain.errors import GemmetryError, RequestError, UnknownNameError, UnsupportedError
from gemmetry.domain.operation import Operation
from gemmetry.providers.base import BaseProvider, builtin_module, builtin_names, traits_of


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
        answer, raised = self._ask("available", None)
        return raised or answer or self._targets[1]

    def targets(self) -> Sequence[Target]:
        """The plug-in's result; none if it raised."""
        return self._targets[0]

    def supports(self, operation: Operation, target: Target) -> str | None:
        """The plug-in's result, or the exception it raised."""
        answer, raised = self._ask("supports", None, operation, target)
        return raised or answer

    def versions(self) -> Mapping[str, str]:
        """The plug-in's result; empty if it raised."""
        return cast(Mapping[str, str], self._ask("versions", {})[0])

    def doctor_notes(self) -> Sequence[str]:
        """The plug-in's notes, or the exception it raised."""
        notes, raised = self._ask("doctor_notes", ())
        return (raised,) if raised else notes

    @cached_property
    def _targets(self) -> tuple[Sequence[Target], str | None]:
        return self._ask("targets", ())

    def _ask(self, name: str, otherwise: Any, *arguments: object) -> tuple[Any, str | None]:
        """The result of the method `name` and None, or `otherwise` and the exception it raised."""
        try:
            return getattr(self._plugin, name)(*arguments), None
        except GemmetryError as error:
            return otherwise, error.message
        except (Exception, SystemExit) as error:  # noqa: BLE001
            # The isolation boundary around other packages' code, as where they are imported.
            return otherwise, f"its {name}() raised {type(error).__name__}: {error}"


ENTRY_POINT_GROUP = "gemmetry.providers"


class ProviderNames(Collection[str]):
    """Names of providers: all that exist are in it, and iteration gives those that are listed, in
    alphabetical order. An unlisted provider must be requested by name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._all = frozenset(names)
        self._listed = sorted(name for name in self._all if traits_of(name).is_listed)

    def __contains__(self, name: object) -> bool:
        return name in self._all

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


def provider_names() -> ProviderNames:
    """Names of all providers, built in and from other packages, without loading any."""
    return ProviderNames([*builtin_names(), *_entry_points()])


class BrokenPluginError(RequestError):
    """A provider of another package cannot be imported or created."""


def load_provider(name: str, options: Mapping[str, Any] | None = None) -> Provider:
    """Create the provider called `name`; one of another package is wrapped as
    :class:`IsolatedPlugin`.

    Raises:
        UnknownNameError: no provider has that name.
        BrokenPluginError: a provider of another package cannot be imported or created.
    """
    if name in builtin_names():
        module = builtin_module(name)
        if not hasattr(module, "PROVIDER"):
            module = importlib.import_module(f"{module.__name__}.provider")
        return cast(Provider, module.PROVIDER(options))
    point = _entry_points().get(name)
    if point is None:
        raise UnknownNameError("provider", name, provider_names())
    try:
        return cast(Provider, IsolatedPlugin(name, point.load()(options)))
    except GemmetryError:
        raise  # the provider's own objection to its options
    except (Exception, SystemExit) as error:
        # The isolation boundary around other packages' code: it may raise anything, and must not
        # prevent working providers from being listed and used.
        raise BrokenPluginError(
            f"the provider {name!r} of {point.value!r} cannot be imported: "
            f"{type(error).__name__}: {error}",
            hint="Install or remove the package that declares it, or leave the provider out.",
        ) from error


class UnavailableProvider(BaseProvider):
    """Represents a plug-in that cannot be created, in lists of all providers."""

    name: str  # type: ignore[misc]  # a class variable of all that have a class of their own

    def __init__(self, name: str, reason: str) -> None:
        super().__init__()
        self.name = name
        self._reason = reason

    def available(self) -> str:
        return self._reason

    def supports(self, operation: Operation, target: Target) -> str:
        return self._reason

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        return ()

    def targets(self) -> Sequence[Target]:
        return ()

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        raise UnsupportedError(f"{dispatch}: {self._reason}")


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
