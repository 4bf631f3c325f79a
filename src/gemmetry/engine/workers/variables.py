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
"""Threads of a worker whose turn is over must not spin on the processors that the next one is
measured on, nor a thread wait spinning for one that another program has pushed aside. Intel's
OpenMP spins for 200 ms (its manual's KMP_BLOCKTIME), OpenBLAS for 2²⁶ cycles
(driver/others/blas_server.c), GNU's for 300,000 turns (libgomp manual, GOMP_SPINCOUNT); here 1 ms,
2²⁰ cycles and 10,000 turns, which torch's products on an idle machine do not feel. A user's own
setting has precedence."""


def thread_variables(threads: int) -> dict[str, str]:
    """Variables that limit CPU libraries to `threads` threads."""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads))


def default_variables() -> dict[str, str]:
    """Variables that every worker gets unless the user has set them."""
    return {**_QUIET_WHEN_IDLE, **_lasting_caches()}


def _lasting_caches() -> dict[str, str]:
    """torch.compile keeps what it compiled below the folder for temporary files, from where other
    runs take it (torch/_inductor/runtime/cache_dir_utils.py); it is to stay there."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        name = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        return {
            "TORCHINDUCTOR_CACHE_DIR": str(Path(tempfile.gettempdir(), f"torchinductor_{name}"))
        }
    return {}
