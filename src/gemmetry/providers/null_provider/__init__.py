"""The provider ``null``:
a pretend device for tests of everything around a provider. Start at ``provider.py``."""

from gemmetry.domain.contracts import ProviderTraits

TRAITS = ProviderTraits(is_default=False, colour=7)
