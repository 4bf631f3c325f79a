"""Executors decide where workers run: an executor starts a worker and yields a channel to it and a
handle on its process. The engine itself starts no process, so that workers may run elsewhere than
on this machine, for instance under a cluster's scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gemmetry.engine.workers.protocol import Frame


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """What an executor needs to start a worker."""

    log: Path
    """The file to which the worker's standard output and standard error are appended."""
    temporary: Path
    """The folder of the worker's temporary files; it exists."""
    defaults: Mapping[str, str]
    """Environment variables that are set unless the user has set them."""
    variables: Mapping[str, str]
    """Environment variables that are always set."""


class MessageChannel(Protocol):
    """The parent's end of a conversation with a worker."""

    def send(self, message: Frame) -> None:
        """Send one message.

        Raises:
            ChannelClosed: the worker is gone.
        """

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next message.

        Raises:
            ChannelClosed: the worker is gone. TimeoutError: nothing arrived in time.
            BadFrame: what arrived is not a message.
        """

    def is_idle(self) -> bool:
        """Whether every message that has arrived was received."""

    def close(self) -> None:
        """Close this end."""


class ProcessHandle(Protocol):
    """A worker's process as its parent can observe and end it."""

    @property
    def pid(self) -> int:
        """The number of the process on the machine where it runs."""

    def wait(self, seconds: float) -> int | None:
        """The exit status, negative for a signal, once the process has ended; None if it still runs
        after `seconds`."""

    def end(self) -> None:
        """End the process and everything that it started; harmless if it is dead."""

    def left_running(self) -> Sequence[str]:
        """The names of processes outside the worker's session that :meth:`end` found and ended."""

    def memory_shortage(self) -> str:
        """Why the worker must be ended before its machine runs out of memory; "" if it need not
        be."""

    def was_killed_for_memory(self) -> bool:
        """Whether the system has killed processes for lack of memory since the worker started."""


class Executor(Protocol):
    """Starts workers."""

    def start(self, worker: WorkerStart) -> tuple[MessageChannel, ProcessHandle]:
        """Start a worker that waits for its first request.

        Raises:
            OSError: it cannot be started.
        """
