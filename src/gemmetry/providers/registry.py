"""Finds providers: modules of this package by their file names, and entry points of others."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from gemmetry import providers
from gemmetry.domain.contracts import Executable, Provider, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.errors import (
    UNLISTED_PROVIDERS,
    GemmetryError,
    RequestError,
    UnknownNameError,
    UnsupportedError,
)
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target
from gemmetry.providers.base import BaseProvider
from gemmetry.providers.isolated_plugin import IsolatedPlugin

ENTRY_POINT_GROUP = "gemmetry.providers"
_SUFFIX = "_provider"


def provider_names() -> list[str]:
    """Names of all providers, built in and from other packages, without importing any."""
    return sorted({*builtin_names(), *_entry_points()})


def listed_provider_names() -> list[str]:
    """:func:`provider_names` without those that nobody is offered."""
    return [name for name in provider_names() if name not in UNLISTED_PROVIDERS]


class BrokenPluginError(RequestError):
    """A provider of another package cannot be imported or made."""


def load_provider(name: str, options: Mapping[str, Any] | None = None) -> Provider:
    """Make the provider called `name`; one of another package as :class:`IsolatedPlugin`.

    Raises:
        UnknownNameError: no provider has that name.
        BrokenPluginError: a provider of another package cannot be imported or made.
    """
    if name in builtin_names():
        factory = importlib.import_module(f"{providers.__name__}.{name}{_SUFFIX}").PROVIDER
        return cast(Provider, factory(options))
    point = _entry_points().get(name)
    if point is None:
        raise UnknownNameError("provider", name, provider_names())
    try:
        return cast(Provider, IsolatedPlugin(name, point.load()(options)))
    except GemmetryError:
        raise  # the provider's own objection to its options
    except (Exception, SystemExit) as error:
        # The isolation boundary around other packages' code: it may raise anything, and must not
        # keep the providers that work from being listed and used.
        raise BrokenPluginError(
            f"the provider {name!r} of {point.value!r} cannot be imported: "
            f"{type(error).__name__}: {error}",
            hint="Install or remove the package that declares it, or leave the provider out.",
        ) from error


class UnavailableProvider(BaseProvider):
    """Stands for a plug-in that cannot be made, where all providers are listed."""

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


def builtin_names() -> list[str]:
    """Names of the providers that come with gemmetry."""
    return [
        module.name.removesuffix(_SUFFIX)
        for module in pkgutil.iter_modules(providers.__path__)
        if module.name.endswith(_SUFFIX)
    ]


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
