"""The ``cuda`` provider: this project's own kernels in CUDA C++ for Hopper, from the naive one to
the best, each a row with its configurations.

Every module of this folder except ``provider`` holds the rows of one family of kernels, as
``KERNELS``; adding a kernel takes its source in ``kernels/gemm/``, its row and its test. Nothing
here imports torch or the CUDA bindings until it is used.
"""

from __future__ import annotations

from gemmetry.domain.contracts import ProviderTraits

TRAITS = ProviderTraits(support_targets=("cuda-sm_90",), colour=5)
