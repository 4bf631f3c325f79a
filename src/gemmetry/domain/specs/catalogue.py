"""The providers of this machine, as the caller describes them; specs themselves look nothing up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from gemmetry.domain.contracts import ProviderTraits
from gemmetry.domain.dispatch import Target


class Catalogue(Protocol):
    """Answers about providers. Each answer may cost an import, so only the needed ones should be
    requested."""

    def provider_names(self) -> Collection[str]:
        """Names of all providers, without loading any; iteration leaves out unlisted ones."""

    def traits(self, name: str) -> ProviderTraits:
        """The traits of a provider, which are known without loading it."""

    def unavailable(self, name: str, options: Mapping[str, Any]) -> str | None:
        """None if the provider works here, else the reason and what to install."""

    def targets(self, name: str, options: Mapping[str, Any]) -> Sequence[Target]:
        """The devices it runs on here, and architectures it compiles for (``index`` None)."""
