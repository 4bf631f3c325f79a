"""Finds providers: modules of this package by their file names, and entry points of others."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from gemmetry import providers
from gemmetry.domain.contracts import Provider
from gemmetry.domain.errors import RequestError, UnknownNameError

ENTRY_POINT_GROUP = "gemmetry.providers"
_SUFFIX = "_provider"


def provider_names() -> list[str]:
    """Names of all providers, built in and from other packages, without importing any."""
    return sorted({*_builtin_names(), *_entry_points()})


def load_provider(name: str, options: Mapping[str, Any] | None = None) -> Provider:
    """Make the provider called `name`.

    Raises:
        UnknownNameError: no provider has that name.
        RequestError: a provider of another package cannot be imported.
    """
    if name in _builtin_names():
        factory = importlib.import_module(f"{providers.__name__}.{name}{_SUFFIX}").PROVIDER
        return cast(Provider, factory(options))
    point = _entry_points().get(name)
    if point is None:
        raise UnknownNameError("provider", name, provider_names())
    try:
        factory = point.load()
    except (ImportError, AttributeError) as error:
        raise RequestError(
            f"the provider {name!r} of {point.value!r} cannot be imported: {error}",
            hint="Install or remove the package that declares it, or leave the provider out.",
        ) from error
    return cast(Provider, factory(options))


def _builtin_names() -> list[str]:
    return [
        module.name.removesuffix(_SUFFIX)
        for module in pkgutil.iter_modules(providers.__path__)
        if module.name.endswith(_SUFFIX)
    ]


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
