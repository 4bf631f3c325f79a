"""The self-test of verification: kernels with deliberate bugs, and correct ones that look
suspicious.

``mutants.csv`` is the list. ``provider.py`` builds them as the provider ``mutant``: on the host
from changes of the GEMM of ``emulator.py``, otherwise from sources of ``providers/kernels``.
``run.py`` runs all of them, and ``kill_matrix.py`` counts which check killed which.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits

TRAITS = ProviderTraits(is_default=False, is_listed=False, colour=6)
NAME = "mutant"
