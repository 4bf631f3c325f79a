"""Executors decide where workers run: an executor starts a worker and yields a channel to it and a
handle on its process. The engine itself starts no process, so that workers may run elsewhere than
on this machine, for instance under a cluster's scheduler.

Workers as processes of this machine, each with a guardian of its own.

Environment variables of workers.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gemmetry.engine.workers import guardian
from gemmetry.engine.workers.protocol import Channel, Frame, Reply
from gemmetry.hardware.host import free_memory_bytes, oom_kills, resident_bytes, total_memory_bytes


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


GUARDIAN = ("-S", "-P", guardian.__file__)
"""The arguments with which Python runs a guardian."""

GUARDIAN_S = 10.0
"""A guardian starts its worker in about ten milliseconds."""

MIN_FREE_SHARE = 0.04
"""A share of the usable memory: if less is left while a worker works, the worker is ended before
the kernel chooses another process."""

LARGE_SHARE = 0.25
"""A share of the usable memory: only a worker that holds this much is considered the cause."""


class LocalExecutor:
    """Starts workers with this interpreter, in sessions of their own."""

    def start(self, worker: WorkerStart) -> tuple[Channel, LocalProcess]:
        """See :class:`gemmetry.engine.workers.local.Executor`."""
        ours, process = self.open(worker)
        return Channel(ours, Reply), process

    def open(self, worker: WorkerStart) -> tuple[socket.socket, LocalProcess]:
        """Start a worker, and return its socket as it is.

        Raises:
            OSError: it cannot be started.
        """
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "gemmetry.engine.workers.main", str(theirs.fileno())]
        try:
            process = start_guarded(
                command,
                channel=theirs.fileno(),
                temporary=str(worker.temporary),
                log=worker.log,
                environment=_environment(worker),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours, process


def start_guarded(
    command: Sequence[str],
    *,
    channel: int,
    temporary: str,
    log: Path,
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> LocalProcess:
    """Start `command`, whose program is given by its path, with a guardian.

    Args:
        channel: a descriptor that the command inherits and the guardian closes.
        temporary: a folder that is removed at the end; "" for none.
        log: the file to which standard output and standard error are appended.
        folder: the working folder; None for this process's.

    Raises:
        OSError: it cannot be started.
    """
    control, inherited = socket.socketpair()
    mark = os.urandom(16).hex()
    kills_before = oom_kills()
    descriptors = (inherited.fileno(), channel)
    watched = [sys.executable, *GUARDIAN, *map(str, descriptors), temporary]
    options: dict[str, Any] = {} if folder is None else {"cwd": folder}
    try:
        # Not through a link: workers' output stays where it belongs.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(log, flags, 0o644), "ab") as output:
            process = subprocess.Popen(
                [*watched, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=descriptors,
                start_new_session=True,
                env={**environment, guardian.MARK: mark},
                **options,
            )
    except BaseException:
        control.close()
        raise
    finally:
        inherited.close()
    return LocalProcess(process, control, kills_before, mark)


class LocalProcess:
    """A worker of this machine, controlled through its guardian.

    See :class:`gemmetry.engine.workers.local.ProcessHandle`.
    """

    def __init__(
        self,
        guardian_process: subprocess.Popen[bytes],
        control: socket.socket,
        kills_before: int,
        mark: str,
    ) -> None:
        """`guardian_process` ends with its worker's status; it reports over the socket `control`;
        `kills_before` is the number of processes that the system had killed for lack of memory
        before; `mark` is in the environment of all."""
        self._mark = mark
        self._guardian = guardian_process
        self._control = control
        self._kills_before = kills_before
        self._unread = b""
        self._report: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        """The number of the worker once its guardian has started it, else the guardian's."""
        return int(self._wait_for_report("worker", GUARDIAN_S).get("worker", self._guardian.pid))

    def wait(self, seconds: float) -> int | None:
        """The exit status of the worker, which its guardian repeats."""
        if seconds <= 0:
            return self._guardian.poll()
        try:
            return self._guardian.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Send SIGTERM to the worker's group."""
        with contextlib.suppress(OSError):
            self._control.sendall(guardian.TERMINATE)

    def end(self) -> None:
        """Have the guardian end everything; kill it if it does not."""
        if self._control.fileno() >= 0:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)  # the guardian then ends everything
            self._wait_for_report("left", 2 * guardian.LAST_S)
            self._control.close()
        if self._guardian.poll() is None:  # its number belongs to no other process yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._guardian.pid, signal.SIGKILL)
            self._guardian.wait()
        if "left" not in self._report:  # The guardian was killed, or hung.
            self._report["left"] = guardian.end_marked(self._mark)

    def left_running(self) -> Sequence[str]:
        """The processes that the guardian found and ended."""
        found: list[str] = self._report.get("left", [])
        return found

    def memory_shortage(self) -> str:
        """It compares the worker's resident memory with what this process may use."""
        held = resident_bytes(self.pid)
        if not _memory_is_short(held):
            return ""
        return f"the machine's memory ran out; the worker held {held / 1e9:.1f} GB"

    def was_killed_for_memory(self) -> bool:
        """As counted by the kernel."""
        return oom_kills() > self._kills_before

    def _wait_for_report(self, key: str, seconds: float) -> dict[str, Any]:
        """What the guardian has reported once it reports `key`, or after `seconds`."""
        ends = time.monotonic() + seconds
        while key not in self._report and (left := ends - time.monotonic()) > 0:
            self._control.settimeout(left)
            try:
                data = self._control.recv(1 << 16)
            except OSError:
                break
            if not data:
                break
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._report |= json.loads(line)
        return self._report


def _environment(worker: WorkerStart) -> dict[str, str]:
    return {**worker.defaults, **os.environ, **worker.variables}


def _memory_is_short(held_bytes: int) -> bool:
    """Whether almost none of the memory that this process may use is left because of a worker that
    holds `held_bytes`."""
    total = total_memory_bytes()
    return held_bytes > LARGE_SHARE * total and free_memory_bytes() < MIN_FREE_SHARE * total


_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

_QUIET_WHEN_IDLE = {
    "KMP_BLOCKTIME": "1",
    "GOMP_SPINCOUNT": "10000",
    "OPENBLAS_THREAD_TIMEOUT": "20",
}
"""Threads of a worker whose turn is over must not spin on the processors on which the next worker
is measured, nor must a thread spin while it waits for one that another program has preempted.
Intel's OpenMP spins for 200 ms (its manual's KMP_BLOCKTIME), OpenBLAS for 2²⁶ cycles
(driver/others/blas_server.c), GNU's for 300,000 turns (libgomp manual, GOMP_SPINCOUNT). Here it is
1 ms, 2²⁰ cycles and 10,000 turns, which does not affect torch's products on an idle machine. The
user's own settings have precedence."""


def thread_variables(threads: int) -> dict[str, str]:
    """Variables that limit CPU libraries to `threads` threads."""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads))


def default_variables() -> dict[str, str]:
    """Variables that every worker gets unless the user has set them."""
    return {**_QUIET_WHEN_IDLE, **_lasting_caches()}


def _lasting_caches() -> dict[str, str]:
    """torch.compile keeps compiled code below the folder for temporary files, where other runs find
    it (torch/_inductor/runtime/cache_dir_utils.py), so it is to stay there."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        name = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        return {
            "TORCHINDUCTOR_CACHE_DIR": str(Path(tempfile.gettempdir(), f"torchinductor_{name}"))
        }
    return {}
