"""Shares numpy work out to threads; numpy releases the interpreter's lock inside its loops. And
calls a function in a thread that nothing ran in before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gemmetry.hardware.host import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_THREADS = 16
"""The interpreter's lock, held between numpy's loops, leaves more threads little to do."""


def in_order(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """`function` of each item, in order, computed by as many threads as there is work and are
    processors."""
    # Files are read to count processors; most results are one block, and need no count.
    threads = min(len(items), usable_cores(), MAX_THREADS) if len(items) > 1 else 1
    if threads <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="gemmetry-verify") as pool:
        yield from pool.map(function, items)


def in_new_thread(call: Callable[[], Result]) -> Result:
    """What `call` returns, or raises, in a new thread, which has ended then."""
    with ThreadPoolExecutor(1, thread_name_prefix="gemmetry-launch") as pool:
        return pool.submit(call).result()
