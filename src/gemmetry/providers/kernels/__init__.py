"""Sources of this project's own kernels.

``triton_matmul`` (Triton) is imported only by the code that launches or compiles it, because
importing it imports triton; nothing is imported here. ``stress.cu`` and ``mutants/`` are CUDA C++,
which is compiled at run time.
"""

from __future__ import annotations
