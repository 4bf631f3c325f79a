"""Detects kernels that fork and return twice: the copy of the worker is ended as soon as it returns
from the launch, before it forks again, and the dispatch is rejected.

A copy that returns sets a mark in shared memory. A copy that has not returned when the launch
itself returns may be late on a busy machine, may hang (a lock that another thread of the worker
held is never released in a copy), or may be about to end in the kernel, as it should. A check
therefore waits for every copy that still exists, and rejects the kernel if one remains.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from gemmetry.domain.contracts import Buffer, Executable
from gemmetry.domain.errors import LaunchError
from gemmetry.engine.dispatches.launch_budget import HangWatch
from gemmetry.engine.workers.guardian import (
    Process,
    collect,
    descendants,
    has_children,
    kill,
    own_image,
)

CHECK_S = 0.01
"""The time between two checks of a copy, in seconds."""

MOST_IDLE_CHECKS = 50
"""A copy that is found asleep this often (half a second) will not end soon. Checks that find it
waiting for a processor do not count, so that a busy machine decides nothing."""

MOST_CPU_S = 2.0
"""A copy that has used this much processor time will not end soon."""

_IDLE_STATES = "STt"
"""Asleep, stopped, traced (``proc_pid_stat(5)``); a process that waits for a disk (D) continues
soon."""


class Copies:
    """Whether a kernel has made a copy of this process that does not end in the kernel.

    Copies that return are found by their mark on every system. Copies that remain are found in
    /proc, so only on Linux, even in another process group or session, because a worker is the
    subreaper of what it starts. Processes of :mod:`multiprocessing` never return from a launch, and
    may remain.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._seen = mmap.mmap(-1, 1)  # shared with copies
        self._below: set[int] = set()
        """The processes below this one at the last check, dead or alive."""
        self._others: set[int] = set()
        self._others = {process.pid for process in self._running()}

    def forget(self) -> None:
        """Prepare for another kernel; the copies of the last one are ended."""
        self._end_all()
        self._seen[0] = 0

    def end_copy(self) -> None:
        """End this process if it is a copy."""
        if os.getpid() != self._owner:
            self._seen[0] = 1
            os._exit(0)

    def check(self) -> None:
        """End this process if it is a copy; reject a kernel of which a copy has already returned.

        Raises:
            LaunchError: a copy has returned.
        """
        self.end_copy()
        if self._seen[0]:
            raise self._refusal("forks and returns twice, once from the copy of the process")

    def wait_and_check(self) -> None:
        """Like :meth:`check`, after waiting for existing copies. It takes microseconds if this
        process has no children.

        Raises:
            LaunchError: a copy has returned, or remains.
        """
        self.end_copy()
        idle: Counter[int] = Counter()
        while running := self._running():
            self.check()
            idle.update(process.pid for process in running if process.state in _IDLE_STATES)
            if any(
                idle[process.pid] >= MOST_IDLE_CHECKS or process.cpu_s >= MOST_CPU_S
                for process in running
            ):
                raise self._refusal(
                    "forks and leaves a copy of the process that neither ends nor executes "
                    "another program"
                )
            time.sleep(CHECK_S)
        self.check()

    def _running(self) -> list[Process]:
        """The copies that are alive, except for processes that existed before any kernel."""
        while has_children():
            # If nothing of it was imported, it has no processes.
            module = sys.modules.get("multiprocessing")
            known = {child.pid for child in module.active_children()} if module else set()
            found = descendants(self._owner, without=self._others | known, dead=True)
            image = own_image() if found else ""
            running = [process for process in found if process.is_alive and process.image == image]
            before, self._below = self._below, {process.pid for process in found}
            # A copy that ended during the check may have created another one too late to be seen.
            if running or self._below == before:
                return running
        return []

    def _end_all(self) -> None:
        while running := self._running():
            for process in running:
                kill(process.pid)
            for process in running:
                collect(process.pid)

    def _refusal(self, what: str) -> LaunchError:
        """End all copies. Returns the exception to raise for a kernel that does `what`."""
        self._end_all()
        return LaunchError(
            f"the kernel {what}", hint="End the copy in the kernel, with os._exit or exec."
        )


class ReturnsOnce:
    """An executable whose untimed launches are checked for copies.

    After the first launch it waits for copies, so that a kernel that always creates one is rejected
    before it has created many.
    """

    def __init__(
        self, executable: Executable, copies: Copies, watch: HangWatch | None = None
    ) -> None:
        self._executable = executable
        self._copies = copies
        self._watch = watch
        self._is_new = True
        self.device = executable.device
        self.facts = executable.facts
        self.writes_output = executable.writes_output

    def watching(self, launches: int) -> AbstractContextManager[None]:
        """A context within which so many launches run and end."""
        return nullcontext() if self._watch is None else self._watch.watching(launches)

    def close(self) -> None:
        """Close the executable."""
        self._executable.close()

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        """Like the executable's own method.

        Raises:
            LaunchError: the kernel has forked and returned twice.
        """
        try:
            result = self._executable.run(inputs, output)
        finally:
            self._copies.end_copy()
        if self._is_new:
            self._is_new = False
            self._copies.wait_and_check()
        else:
            self._copies.check()
        return result
