"""Distributes numpy work over threads, as numpy releases the GIL inside its loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_THREADS = 16
"""Most threads: the GIL, held between numpy's loops, leaves further threads little to do."""


def in_order(
    function: Callable[[Item], Result], items: Sequence[Item], processors: int = MAX_THREADS
) -> Iterator[Result]:
    """`function` of each item, in order, computed by as many threads as there are items and
    `processors`."""
    threads = min(len(items), processors, MAX_THREADS)
    if threads <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="gemmetry-numerics") as pool:
        yield from pool.map(function, items)
