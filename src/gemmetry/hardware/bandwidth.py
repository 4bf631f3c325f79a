"""Measures the memory bandwidth of the host, which no system file reports."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gemmetry.hardware.detect import cpu_facts
from gemmetry.hardware.host import total_memory_bytes

_REPEATS = 5
_MIN_BYTES, _MAX_BYTES = 64 * 2**20, 512 * 2**20
_CACHE_FACTOR = 4
"""STREAM's rule: each array is at least four times the caches (J. McCalpin, STREAM run rules)."""

_TRAVELLING = 6
"""Number of arrays that one triad moves between caches and memory."""


@lru_cache(maxsize=1)
def measure_host_bandwidth() -> float | None:
    """Bytes per second of a triad over all usable cores; None where memory is too small for it.

    ``a = b + s·c`` as STREAM does it, in two numpy passes (numpy has no fused one): c is read and
    a written, then a and b read and a written. A cache reads a line before part of it is written,
    unless it already holds the line, so that six arrays are moved; STREAM itself counts the five
    that the program names. A product mostly reads, and its bytes must be compared with everything
    that memory moves. The result is the best of five runs, after one that touches the pages. It
    takes about a second and is measured once per process.
    """
    facts = cpu_facts()
    array_bytes = min(max(_CACHE_FACTOR * facts.total_cache_bytes, _MIN_BYTES), _MAX_BYTES)
    if total_memory_bytes() < 8 * array_bytes:
        return None
    workers = facts.physical_cores
    elements = array_bytes // 8 // workers
    parts = [tuple(np.ones(elements) for _ in range(3)) for _ in range(workers)]
    best = float("inf")
    with ThreadPoolExecutor(workers) as pool:  # numpy releases the GIL
        list(pool.map(_triad, parts))
        for _ in range(_REPEATS):
            began = time.perf_counter()
            list(pool.map(_triad, parts))
            best = min(best, time.perf_counter() - began)
    return _TRAVELLING * 8 * elements * workers / best


def _triad(arrays: tuple[npt.NDArray[np.float64], ...]) -> None:
    a, b, c = arrays
    np.multiply(c, 3.0, out=a)
    np.add(a, b, out=a)
