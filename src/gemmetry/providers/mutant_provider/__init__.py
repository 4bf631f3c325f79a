"""The provider ``mutant``: kernels with planted bugs, and correct ones that look suspicious.

``catalogue.py`` says what is planted where, ``provider.py`` builds it. ``host_emulator.py`` is a
tiled GEMM in numpy, written like a GPU kernel; ``host_*.py`` change one thing of it each.
``unseen_*.py`` do so too, written without a look at the checks.
"""

from gemmetry.providers.mutant_provider.provider import PROVIDER, MutantProvider

__all__ = ["PROVIDER", "MutantProvider"]
