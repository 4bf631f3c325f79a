"""The provider ``numpy``:
numpy on the host, with the BLAS that it was built with. Start at ``provider.py``.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits

TRAITS = ProviderTraits(baseline_rank=1, support_targets=("cpu",), colour=1)
