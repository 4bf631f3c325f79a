"""Kernels that fork and return twice: the copy of the worker ends where it comes back, before it
forks again, and the dispatch is refused.

A copy that comes back marks shared memory, whatever it comes back to. One that has not come back
yet when the launch returns may be late on a busy machine, may hang (a lock that another thread of
the worker held is never released in a copy), or may be about to end in the kernel, as it should.
So a look waits for every copy that is still there, and refuses the kernel if it stays.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

from gemmetry.domain.contracts import Buffer, Executable
from gemmetry.domain.errors import LaunchError
from gemmetry.engine.workers.guardian import (
    Process,
    collect,
    descendants,
    has_children,
    kill,
    own_image,
)

LOOK_S = 0.01
"""Between two looks at a copy."""

MOST_IDLE_LOOKS = 50
"""A copy that is found asleep so often (half a second) will not end soon. Looks at one that waits
for a processor are not counted, so that a busy machine decides nothing."""

MOST_CPU_S = 2.0
"""A copy that has computed for so long will not end soon."""

_IDLE_STATES = "STt"
"""Asleep, stopped, traced (``proc_pid_stat(5)``); one that waits for a disk (D) goes on soon."""


class Copies:
    """Whether a kernel has made a copy of this process that does not end in the kernel.

    Copies are found by mark everywhere, those that stay in /proc, so on Linux alone; in another
    process group or session too, because a worker is the subreaper of what it starts. Processes of
    :mod:`multiprocessing` never come back, and may stay.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._seen = mmap.mmap(-1, 1)  # shared with copies
        self._below: set[int] = set()
        """What the last look found below this process, dead or alive."""
        self._others: set[int] = set()
        self._others = {process.pid for process in self._running()}

    def forget(self) -> None:
        """Another kernel's turn; what the last one made ends."""
        self._end_all()
        self._seen[0] = 0

    def end_copy(self) -> None:
        """End this process if it is a copy."""
        if os.getpid() != self._owner:
            self._seen[0] = 1
            os._exit(0)

    def check(self) -> None:
        """End this process if it is a copy; refuse a kernel of which a copy came back already.

        Raises:
            LaunchError: a copy came back.
        """
        self.end_copy()
        if self._seen[0]:
            raise self._refusal("forks and returns twice, once from the copy of the process")

    def look(self) -> None:
        """As :meth:`check`, after waiting for the copies that are there. Costs microseconds where
        this process has no children.

        Raises:
            LaunchError: a copy came back, or stays.
        """
        self.end_copy()
        idle: Counter[int] = Counter()
        while running := self._running():
            self.check()
            idle.update(process.pid for process in running if process.state in _IDLE_STATES)
            if any(
                idle[process.pid] >= MOST_IDLE_LOOKS or process.cpu_s >= MOST_CPU_S
                for process in running
            ):
                raise self._refusal(
                    "forks and leaves a copy of the process that neither ends nor executes "
                    "another program"
                )
            time.sleep(LOOK_S)
        self.check()

    def _running(self) -> list[Process]:
        """The copies that live, but for those that were there before any kernel."""
        while has_children():
            # Where nothing of it was imported, it has no processes.
            module = sys.modules.get("multiprocessing")
            known = {child.pid for child in module.active_children()} if module else set()
            found = descendants(self._owner, without=self._others | known, dead=True)
            image = own_image() if found else ""
            running = [process for process in found if process.is_alive and process.image == image]
            before, self._below = self._below, {process.pid for process in found}
            # A copy that ended during the look may have made another one, too late to be seen.
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
        """End all copies; the exception to raise of a kernel that does `what`."""
        self._end_all()
        return LaunchError(
            f"the kernel {what}", hint="End the copy in the kernel, with os._exit or exec."
        )


class ReturnsOnce:
    """An executable whose launches are checked for copies; for launches that are not timed.

    After the first launch it waits for copies, so that a kernel which always makes one is refused
    before it has made many.
    """

    def __init__(self, executable: Executable, copies: Copies) -> None:
        self._executable = executable
        self._copies = copies
        self._is_new = True
        self.device = executable.device
        self.facts = executable.facts
        self.writes_output = executable.writes_output

    def close(self) -> None:
        """Close the executable."""
        self._executable.close()

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        """As the executable's own.

        Raises:
            LaunchError: the kernel has forked and returned twice.
        """
        try:
            result = self._executable.run(inputs, output)
        finally:
            self._copies.end_copy()
        if self._is_new:
            self._is_new = False
            self._copies.look()
        else:
            self._copies.check()
        return result
