"""The provider ``mutant``: kernels with deliberate bugs, and correct ones that look suspicious.

``mutant.py`` describes a mutant, ``catalogue.py`` collects them and ``provider.py`` builds them.
``host/emulator.py`` is a tiled GEMM in numpy, written like a GPU kernel. Each class in the other
files of ``host/`` changes one part of it, and its decorator adds it to the catalogue. So do the
classes of ``unseen/``, whose author had not seen the checks.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits

TRAITS = ProviderTraits(is_default=False, is_listed=False, colour=6)
NAME = "mutant"
