"""Stress for launches on the host: memory from malloc is filled with NaN, and processors are
busy."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from gemmetry.hardware.host import usable_cores

SPOILED = 0xFF
"""NaN in every float format, -1 in integers."""

_M_PERTURB = -6
"""From malloc.h of the GNU C library."""
_FILL_WITH_FF = 0x100
"""mallopt(3), M_PERTURB: unless the value is 0, allocated memory is filled with the complement of
its lowest byte, freed memory with the byte itself."""

_PROBE_BYTES = 8192
"""More than what numpy and malloc cache for small arrays, whose content they do not overwrite."""
_BLOCKS = 3

_SMALLEST_COPY_BYTES, _LARGEST_COPY_BYTES = 4 * 2**20, 256 * 2**20
_MOST_THREADS = 16

Empty = Callable[[int], Any]
"""Allocates uninitialised memory of a given number of bytes, as an array or tensor of uint8."""


@contextmanager
def spoiled_heap(size_bytes: int, empty: Empty) -> Iterator[None]:
    """Within the context, allocations above about 1 KiB are filled with the byte :data:`SPOILED`,
    in every thread; calloc still returns zeros.

    The GNU C library does that itself. With other libraries, a few blocks of `size_bytes` are
    filled and freed, and most allocators return them again.
    """
    perturb = _perturb()
    perturb(_FILL_WITH_FF)
    try:
        if not bool((empty(_PROBE_BYTES) == SPOILED).all()):
            _fill_and_free(size_bytes, empty)
        yield
    finally:
        perturb(0)


def _fill_and_free(size_bytes: int, empty: Empty) -> None:
    blocks = [empty(size_bytes) for _ in range(_BLOCKS)]
    for block in blocks:
        block[...] = SPOILED


@cache
def _perturb() -> Callable[[int], object]:
    """Sets M_PERTURB; does nothing where the C library does not have it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # TypeError: Windows requires a name
        return lambda value: None
    return lambda value: mallopt(_M_PERTURB, value)


@contextmanager
def busy_processors(cache_bytes: int) -> Iterator[None]:
    """Within the context, half of the processors that this process may use, at least one and at
    most 16, copy memory back and forth, which takes processors, caches and bandwidth from others.

    Args:
        cache_bytes: size of the last-level cache; twice that is copied, up to 512 MiB.
    """
    size = min(max(cache_bytes, _SMALLEST_COPY_BYTES), _LARGEST_COPY_BYTES)
    count = max(1, min(_MOST_THREADS, usable_cores() // 2))
    halves = (np.ones(size, np.uint8), np.ones(size, np.uint8))
    parts = zip(*(np.array_split(half, count) for half in halves), strict=True)
    copied, ended = threading.Semaphore(0), threading.Event()

    def copy(source: Any, target: Any) -> None:
        while not ended.is_set():
            np.copyto(target, source)  # releases the GIL
            copied.release()

    threads = [threading.Thread(target=copy, args=pair, daemon=True) for pair in parts]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            copied.acquire()
        yield
    finally:
        ended.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
