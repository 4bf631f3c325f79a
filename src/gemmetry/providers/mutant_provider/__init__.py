"""The provider ``mutant``: kernels with planted bugs, and correct ones that look suspicious.

``mutant.py`` is the form of a planted kernel, ``catalogue.py`` collects them and ``provider.py``
builds them. ``host/emulator.py`` is a tiled GEMM in numpy, written like a GPU kernel; each class in
the other files of ``host/`` changes one thing of it, and its decorator plants it. Those of
``unseen/`` do so too, written without a look at the checks.
"""

from gemmetry.domain.contracts import ProviderTraits

TRAITS = ProviderTraits(is_default=False, colour=6)
NAME = "mutant"
