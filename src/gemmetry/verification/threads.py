"""Distributes numpy work over threads, as numpy releases the GIL inside its loops, and calls a
function in a new thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gemmetry.hardware.host import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_THREADS = 16
"""Most threads: the GIL, held between numpy's loops, leaves further threads little to do."""


def in_order(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """`function` of each item, in order, computed by as many threads as there are items and
    processors."""
    # Counting processors reads files; most results are a single block and do not need the count.
    threads = min(len(items), usable_cores(), MAX_THREADS) if len(items) > 1 else 1
    if threads <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="gemmetry-verify") as pool:
        yield from pool.map(function, items)


def in_new_thread(call: Callable[[], Result]) -> Result:
    """Run `call` in a new thread, wait for the thread to end, and return the result or raise the
    exception of `call`."""
    with ThreadPoolExecutor(1, thread_name_prefix="gemmetry-launch") as pool:
        return pool.submit(call).result()
