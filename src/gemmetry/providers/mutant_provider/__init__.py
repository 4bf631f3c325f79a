"""The provider ``mutant``: kernels with planted bugs, and correct ones that look suspicious.

``catalogue.py`` lists what is planted where, ``provider.py`` builds it. ``host/emulator.py`` is a
tiled GEMM in numpy, written like a GPU kernel; the other files of ``host/`` change one thing of it
each. Those of ``unseen/`` do so too, written without a look at the checks.
"""

from gemmetry.providers.mutant_provider.provider import PROVIDER, MutantProvider

__all__ = ["PROVIDER", "MutantProvider"]
