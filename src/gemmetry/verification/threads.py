"""Distributes work over as many threads as this process may keep busy, and calls a function in a
new thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gemmetry.hardware.host import usable_cores
from gemmetry.numerics import threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """`function` of each item, in order, computed by as many threads as there are items and
    processors."""
    # Counting processors reads files; most results are a single block and do not need the count.
    return threads.in_order(function, items, usable_cores() if len(items) > 1 else 1)


def in_new_thread(call: Callable[[], Result]) -> Result:
    """Run `call` in a new thread, wait for the thread to end, and return the result or raise the
    exception of `call`."""
    with ThreadPoolExecutor(1, thread_name_prefix="gemmetry-launch") as pool:
        return pool.submit(call).result()
