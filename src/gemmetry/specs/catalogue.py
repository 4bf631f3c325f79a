"""What exists on this machine, as the caller states it; specs themselves look nothing up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from gemmetry.domain.contracts import ProviderTraits
from gemmetry.domain.target import Target


class Catalogue(Protocol):
    """Answers about providers. Each answer may cost an import, so ask only what is needed."""

    def provider_names(self) -> Collection[str]:
        """Names of all providers, without loading any; iteration leaves out unlisted ones."""

    def traits(self, name: str) -> ProviderTraits:
        """What is known of a provider without loading it."""

    def unavailable(self, name: str, options: Mapping[str, Any]) -> str | None:
        """None if the provider works here, else the reason and what to install."""

    def targets(self, name: str, options: Mapping[str, Any]) -> Sequence[Target]:
        """The devices it runs on here, and architectures it compiles for (``index`` None)."""
