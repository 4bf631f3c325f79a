"""The provider ``null``:
a pretend device for tests of everything around a provider. Start at ``provider.py``."""

from gemmetry.providers.null_provider.provider import PROVIDER, NullProvider

__all__ = ["PROVIDER", "NullProvider"]
