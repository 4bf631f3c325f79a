"""The ``gluon`` provider: a GEMM for Hopper in Gluon, for readers who compare it with the same in
CUDA C++. Start at ``provider.py``; nothing here imports triton or torch until it is used.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits

TRAITS = ProviderTraits(is_default=False, colour=8)
