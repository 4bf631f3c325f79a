"""Reads and sets the number of threads of numpy's BLAS through the library's own functions.

Environment variables such as OPENBLAS_NUM_THREADS are read when the library loads, which is before
a provider is created; the functions work at any time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

_FUNCTIONS = (
    # (set, get) of OpenBLAS as numpy's wheels, distributions and its own builds name them,
    # of MKL and of BLIS.
    ("scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_"),
    ("scipy_openblas_set_num_threads", "scipy_openblas_get_num_threads"),
    ("openblas_set_num_threads64_", "openblas_get_num_threads64_"),
    ("openblas_set_num_threads", "openblas_get_num_threads"),
    ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
    ("bli_thread_set_num_threads", "bli_thread_get_num_threads"),
)
_LIBRARY_WORDS = ("openblas", "mkl_rt", "blis")


def blas_name() -> str:
    """Name and version of the BLAS that numpy was built with, e.g. ``scipy-openblas 0.3.31``."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']}".strip()


def blas_threads() -> int | None:
    """Number of threads that the BLAS uses now; None where it does not report it."""
    functions = _thread_functions()
    return None if functions is None else functions[1]()


def set_blas_threads(count: int) -> bool:
    """Make the BLAS of this process use `count` threads; False where it cannot be set."""
    functions = _thread_functions()
    if functions is None:
        return False
    functions[0](count)
    return functions[1]() == count


@cache
def _thread_functions() -> tuple[Callable[[int], None], Callable[[], int]] | None:
    for path in _loaded_libraries():
        try:
            # Already loaded: this is a handle to the same library, not a second copy.
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for setter_name, getter_name in _FUNCTIONS:
            if hasattr(library, setter_name) and hasattr(library, getter_name):
                setter, getter = getattr(library, setter_name), getattr(library, getter_name)
                setter.argtypes, setter.restype = [ctypes.c_int], None
                getter.argtypes, getter.restype = [], ctypes.c_int
                return setter, getter
    return None


def _loaded_libraries(maps: Path = Path("/proc/self/maps")) -> list[str]:
    """Files of BLAS libraries in this process, numpy's own first."""
    try:
        paths = {line.split(None, 5)[5] for line in maps.read_text().splitlines() if "/" in line}
    except (OSError, IndexError):
        return []
    found = [
        path.strip()
        for path in paths
        if any(word in Path(path).name.lower() for word in _LIBRARY_WORDS)
    ]
    return sorted(found, key=lambda path: ("numpy" not in path, path))
