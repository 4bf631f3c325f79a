"""The provider ``user``:
a user's own kernel, straight from a file. Start at ``provider.py``.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits

TRAITS = ProviderTraits(is_default=False, takes_kernels=True, colour=4)
