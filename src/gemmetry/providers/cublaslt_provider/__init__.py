"""The ``cublaslt`` provider: cuBLASLt's own algorithms as configurations, and the best of those
that its heuristic proposes, a stricter baseline than torch's default. Start at ``provider.py``.

``problem`` describes an operation as cuBLASLt sees it, ``support`` says what it refuses,
``algorithms`` has the names of configurations, ``selecting`` finds and times algorithms, and
``bindings`` alone calls the library. Nothing here imports nvmath or torch until it is used.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits

TRAITS = ProviderTraits(
    baseline_rank=2, best_configuration="best", support_targets=("cuda-sm_90:0",), colour=9
)
