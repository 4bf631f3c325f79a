"""Environment variables of workers."""

from __future__ import annotations

import contextlib
import getpass
import re
import tempfile
from pathlib import Path

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

_QUIET_WHEN_IDLE = {
    "KMP_BLOCKTIME": "1",
    "GOMP_SPINCOUNT": "10000",
    "OPENBLAS_THREAD_TIMEOUT": "20",
}
"""Threads of a worker whose turn is over must not spin on the processors on which the next worker
is measured, nor must a thread spin while it waits for one that another program has preempted.
Intel's OpenMP spins for 200 ms (its manual's KMP_BLOCKTIME), OpenBLAS for 2²⁶ cycles
(driver/others/blas_server.c), GNU's for 300,000 turns (libgomp manual, GOMP_SPINCOUNT). Here it is
1 ms, 2²⁰ cycles and 10,000 turns, which does not affect torch's products on an idle machine. The
user's own settings have precedence."""


def thread_variables(threads: int) -> dict[str, str]:
    """Variables that limit CPU libraries to `threads` threads."""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads))


def default_variables() -> dict[str, str]:
    """Variables that every worker gets unless the user has set them."""
    return {**_QUIET_WHEN_IDLE, **_lasting_caches()}


def _lasting_caches() -> dict[str, str]:
    """torch.compile keeps compiled code below the folder for temporary files, where other runs find
    it (torch/_inductor/runtime/cache_dir_utils.py), so it is to stay there."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        name = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        return {
            "TORCHINDUCTOR_CACHE_DIR": str(Path(tempfile.gettempdir(), f"torchinductor_{name}"))
        }
    return {}
