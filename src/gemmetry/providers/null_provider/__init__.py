"""The provider ``null``:
a simulated device for testing everything around a provider. Start at ``provider.py``.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits

TRAITS = ProviderTraits(is_default=False, colour=7)
