"""The built kernels of this file's folder as one function, for ``gemmetry --kernel``.

``audit.py`` puts a copy next to what it built, ``M_N_K.so``; sizes without such a file are refused.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

BACKEND = "torch"
DECLARES = ["nondeterministic"]
"""Some of the kernels add partial sums in any order; bounds are the same for every order."""


@cache
def _launcher(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"there is no kernel for {path.stem}")
    launch = ctypes.CDLL(str(path)).launch
    launch.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 3 + [ctypes.c_void_p] * 2
    return launch


def released(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """C = A·B into `out` (M, N) in f16, for A (M, K) and B (K, N) as the kernel reads it.

    Raises:
        ValueError: no kernel was built for these sizes. RuntimeError: the kernel raised.
    """
    import torch

    (m, k), n = a.shape, b.shape[1]
    launch = _launcher(Path(__file__).resolve().parent / f"{m}_{n}_{k}.so")
    stream = torch.cuda.current_stream().cuda_stream if a.is_cuda else 0
    reason = ctypes.create_string_buffer(256)
    if launch(a.data_ptr(), b.data_ptr(), out.data_ptr(), m, n, k, stream, reason):
        raise RuntimeError(reason.value.decode(errors="replace"))
