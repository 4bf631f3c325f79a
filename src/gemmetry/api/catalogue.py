"""The installed providers, for specs and listings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from gemmetry.domain.contracts import Provider, ProviderTraits
from gemmetry.domain.target import Target
from gemmetry.providers.registry import (
    BrokenPluginError,
    ProviderNames,
    UnavailableProvider,
    load_provider,
    provider_names,
)
from gemmetry.providers.traits import traits_of


class InstalledCatalogue:
    """Answers from the registry; each provider is created once for each set of options."""

    def __init__(self) -> None:
        self._loaded: list[tuple[str, dict[str, Any], Provider]] = []

    def provider_names(self) -> ProviderNames:
        return _names()

    def traits(self, name: str) -> ProviderTraits:
        return traits_of(name)

    def provider(self, name: str, options: Mapping[str, Any] | None = None) -> Provider:
        """The provider itself; a provider that cannot be imported is returned as unavailable, with
        the reason.

        Raises:
            UnknownNameError: no such provider. RequestError: the provider refuses its options.
        """
        wanted = dict(options or {})
        for known, known_options, loaded in self._loaded:
            if (known, known_options) == (name, wanted):
                return loaded
        try:
            provider = load_provider(name, wanted)
        except BrokenPluginError as error:
            provider = UnavailableProvider(name, error.message)
        self._loaded.append((name, wanted, provider))
        return provider

    def unavailable(self, name: str, options: Mapping[str, Any]) -> str | None:
        return self.provider(name, options).available()

    def targets(self, name: str, options: Mapping[str, Any]) -> Sequence[Target]:
        return self.provider(name, options).targets()


@cache
def _names() -> ProviderNames:
    return provider_names()
