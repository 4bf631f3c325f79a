"""Distributes work over as many threads as this process may keep busy, and calls functions in
threads of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Self, TypeVar

from gemmetry.hardware.host import usable_cores, usable_cpus
from gemmetry.numerics import threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """`function` of each item, in order, computed by as many threads as there are items and
    processors."""
    # Counting processors reads files; most results are a single block and do not need the count.
    return threads.in_order(function, items, usable_cores() if len(items) > 1 else 1)


class StandingThreads:
    """Threads that live until the end of the ``with`` block, and run what they are given."""

    def __init__(self, enter: Callable[[], None] = lambda: None) -> None:
        """`enter` is called first in each thread."""
        self._enter = enter
        self._pools: list[ThreadPoolExecutor] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, number: int, call: Callable[[], Result]) -> Result:
        """Run `call` in the thread with this number, wait for it, and return its result or raise
        its exception. A thread starts when it is first used."""
        while len(self._pools) <= number:
            pool = ThreadPoolExecutor(1, thread_name_prefix="gemmetry-launch")
            self._pools.append(self._stack.enter_context(pool))
            pool.submit(self._enter).result()
        return self._pools[number].submit(call).result()


def on_one_processor(call: Callable[[], Result], enter: Callable[[], None]) -> Result:
    """Run `call` in a new thread that is allowed on one processor only, where the system can
    restrict a thread; see :class:`StandingThreads` for `enter`."""

    def restricted() -> Result:
        # Linux restricts only the calling thread, which ends with this call, and what it starts.
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {usable_cpus()[0]})
        return call()

    with StandingThreads(enter) as threads:
        return threads.run(0, restricted)
