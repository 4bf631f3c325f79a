"""Kernels that fork and return twice: the copy of the worker ends where it comes back, before it
forks again, and the dispatch is refused."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from gemmetry.domain.contracts import Buffer, Executable
from gemmetry.domain.errors import LaunchError


class Copies:
    """Whether a copy of this process came back from a launch."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._seen = mmap.mmap(-1, 1)  # shared with copies

    def forget(self) -> None:
        """Another kernel's turn."""
        self._seen[0] = 0

    def check(self) -> None:
        """End this process if it is a copy; refuse a kernel that has made one.

        Raises:
            LaunchError: a copy came back.
        """
        if os.getpid() != self._owner:
            self._seen[0] = 1
            os._exit(0)
        if self._seen[0]:
            raise LaunchError(
                "the kernel forks and returns twice, from the copy of the process as well",
                hint="End the copy in the kernel, with os._exit or exec.",
            )


class ReturnsOnce:
    """An executable whose launches are checked for copies; for launches that are not timed."""

    def __init__(self, executable: Executable, copies: Copies) -> None:
        self._executable = executable
        self._copies = copies
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
        result = self._executable.run(inputs, output)
        self._copies.check()
        return result
