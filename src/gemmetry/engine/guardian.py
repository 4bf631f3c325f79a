"""Runs between parent and worker, and ends everything that the worker started when either of them
ends.

Run as a script, ``python -S -P guardian.py CONTROL CHANNEL FOLDER COMMAND...``, before anything of
gemmetry is imported, so that it starts in milliseconds and stays small: it uses only the standard
library. Over the socket CONTROL it reports the worker's process number and, at the end, what else
was running. It ends with the worker's status. FOLDER is removed at the end; it may be empty ("").

A worker's children die with its process group; one in a session of its own (``setsid``,
``subprocess`` with ``start_new_session``) does not. Guardian and worker are therefore subreapers:
on Linux (``prctl(2)``) a process that loses its parent becomes their child, and can be found.
Elsewhere only the group is ended.

Processes that a dispatch leaves running in a session of its own, which a kill of the worker's
process group does not reach.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

POLL_S = 0.02
"""The time between checks of the worker if the system has no descriptors of processes."""

LAST_S = 10.0
"""A process that has not died this long after it was killed is left: it hangs in a driver."""

TERMINATE = b"T"
"""The parent's request to pass SIGTERM to the worker's group."""

MARK = "GEMMETRY_GUARDED"
"""The variable by which the parent recognises what a guardian leaves that was itself killed."""

_LONGEST_NAME = 60

ANY_CHILD = 0x40000000 if sys.platform.startswith("linux") else 0
"""``__WALL`` of ``waitpid(2)``: includes children that ``clone(2)`` created to end without
SIGCHLD."""


@dataclass(frozen=True)
class Process:
    """A descendant of another process."""

    pid: int
    session: int
    name: str
    """Its command line, or the start of it."""
    state: str
    """One letter, see ``proc_pid_stat(5)``."""
    cpu_s: float
    """Its processor time, without that of its dead children."""
    image: str
    """Identifies the executed program; a fork that executes nothing shares it."""

    @property
    def is_alive(self) -> bool:
        """Whether the process had not ended yet."""
        return self.state not in "ZX"

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


def main(arguments: list[str], become: Callable[[list[str]], object] | None = None) -> int:
    """Start COMMAND and wait until it or the parent ends. Returns the worker's status.

    `become` turns a fork of this process into the worker, given COMMAND, and does not return;
    without it COMMAND is executed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(arguments[0]))
    channel, folder, command = int(arguments[1]), arguments[2], arguments[3:]
    become_subreaper()
    # Closed by the worker once it leads a group, which may be signalled as soon as it is reported.
    reader, writer = os.pipe()
    worker = os.fork()
    if worker == 0:
        try:
            os.setsid()
            os.close(reader)
            os.close(writer)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends when the guardian is killed
            control.close()
            (become or _execute)(command)
        finally:
            os._exit(127)
    os.close(channel)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    _report(control, {"worker": worker})
    _wait(control, worker)
    left, status = end_all(worker)
    if folder:
        _remove(folder)
    _report(control, {"left": left})
    return status


def end_like(status: int) -> int:
    """`status` for ``sys.exit``; if the worker was ended by a signal, this process is ended by it
    too."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def become_subreaper() -> bool:
    """Make descendants that lose their parent children of this process; False if the system
    cannot."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def has_children() -> bool:
    """Whether this process has any child, dead ones included; takes a microsecond."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | ANY_CHILD)
    except ChildProcessError:
        return False
    return True


def descendants(
    ancestor: int, without: Collection[int] = (), *, dead: bool = False
) -> list[Process]:
    """The living processes below `ancestor`, and on request the `dead` ones that have not been
    waited for, except for those in `without` and their descendants; none if there is no /proc.

    A process that starts in the meantime may be missing, even if its parent has ended by then.
    """
    children: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for entry in os.scandir("/proc") if Path("/proc/self/stat").exists() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = _read(f"{entry.path}/stat")
                parent = int(_fields(stat)[1])
                children[parent].append((int(entry.name), stat))
    found: list[Process] = []
    waiting = [ancestor]
    while waiting:
        for pid, stat in children.pop(waiting.pop(), []):
            if pid not in without:
                waiting.append(pid)
                with contextlib.suppress(OSError):  # it ended in the meantime
                    found.append(_process(pid, stat))
    return [process for process in found if dead or process.is_alive]


def own_image() -> str:
    """The image of this process; see :class:`Process`."""
    return _process(os.getpid(), _read("/proc/self/stat")).image


def end_marked(mark: str) -> list[str]:
    """Kill the processes in whose environment :data:`MARK` is `mark`, and return their names: those
    below a guardian that was killed have no parent by which they could be found."""
    names: dict[int, str] = {}
    ends = time.monotonic() + LAST_S
    found = True
    while found and time.monotonic() < ends:
        found = False
        for entry in os.scandir("/proc") if Path("/proc/self/stat").exists() else ():
            if entry.name.isdigit() and (pid := int(entry.name)) != os.getpid():
                # The descriptor is of the process that has the mark, or it is of none.
                with contextlib.suppress(OSError), os.fdopen(os.pidfd_open(pid), "rb", 0) as opened:
                    words = _read(f"{entry.path}/environ").split(b"\0")
                    if f"{MARK}={mark}".encode() in words:
                        process = _process(pid, _read(f"{entry.path}/stat"))
                        names.setdefault(pid, str(process))
                        signal.pidfd_send_signal(opened.fileno(), signal.SIGKILL)
                        found = True
        time.sleep(0.001)
    return list(names.values())


def kill(pid: int) -> None:
    """Kill a process that may already have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def collect(pid: int) -> None:
    """Wait for the end of a child; a grandchild is collected when its parent ends."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, ANY_CHILD)


def end_all(worker: int) -> tuple[list[str], int]:
    """Kill everything below this process, the group of `worker` first, until nothing remains.
    Returns the names of processes that were in sessions of their own, and the worker's status;
    that of a kill if its end was not seen.

    The worker has not been waited for yet, so that its number is no other process's.
    """
    names: dict[int, str] = {}
    status = -signal.SIGKILL
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)
    ends = time.monotonic() + LAST_S
    while has_children() and time.monotonic() < ends:
        for process in descendants(os.getpid()):
            if process.session != worker:
                # A process that is ending loses its command line, so the first name counts.
                names.setdefault(process.pid, str(process))
            kill(process.pid)
        time.sleep(0.001)
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG | ANY_CHILD))[0]:
                if found[0] == worker:
                    status = os.waitstatus_to_exitcode(found[1])
    return list(names.values()), status


def _wait(control: socket.socket, worker: int) -> None:
    """Wait for the worker's end, which leaves its number occupied, or for the parent's request or
    end. Meanwhile the parent may send :data:`TERMINATE`."""
    poller = select.poll()
    poller.register(control, select.POLLIN)
    pause_ms: float | None = None
    try:
        poller.register(os.pidfd_open(worker), select.POLLIN)
    except (AttributeError, OSError):
        pause_ms = 1000 * POLL_S
    while True:
        ready = [descriptor for descriptor, _ in poller.poll(pause_ms)]
        if os.waitid(os.P_PID, worker, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        if control.fileno() in ready:
            try:
                if control.recv(len(TERMINATE)) != TERMINATE:
                    return
            except OSError:  # The parent is gone, without having read the report.
                return
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(worker, signal.SIGTERM)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # for hundreds of files at a time
        return file.read()


def _fields(stat: bytes) -> list[bytes]:
    """What follows the number and the name, which may contain anything, in a ``stat`` of /proc."""
    return stat[stat.rindex(b")") + 2 :].split()


def _process(pid: int, stat: bytes) -> Process:
    fields = _fields(stat)
    words = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").strip()
    words = words or stat[stat.index(b"(") + 1 : stat.rindex(b")")]
    name = words.decode(errors="replace")[:_LONGEST_NAME]
    code, stack = int(fields[23]), int(fields[25])
    return Process(
        pid=pid,
        session=int(fields[3]),
        name=name,
        state=fields[0].decode(),
        cpu_s=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        # If addresses are hidden, they are zero (PTRACE_MODE_READ in proc_pid_stat(5)).
        image=f"{code} {stack}" if stack > 0 else name,
    )


def _execute(command: list[str]) -> None:
    os.execv(command[0], command)


def _remove(folder: str) -> None:
    """Remove a folder; neither it nor the one in which it is may be a link."""
    with contextlib.suppress(OSError):
        parent = os.open(Path(folder).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        shutil.rmtree(Path(folder).name, ignore_errors=True, dir_fd=parent)
        os.close(parent)


def _report(control: socket.socket, message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the parent may be gone
        control.sendall(json.dumps(message).encode() + b"\n")


def _prctl(option: int, value: int) -> bool:
    with contextlib.suppress(AttributeError, OSError):
        return int(ctypes.CDLL(None).prctl(option, value, 0, 0, 0)) == 0
    return False


class Strays:
    """The stray processes of one worker. Each belongs to the dispatch after whose launches it was
    first found."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, Process]] = {}
        self._others = {process.pid for process in self._running()}
        """Processes that existed before any dispatch."""

    def find_new(self, dispatch: int) -> tuple[str, ...]:
        """The names of processes that are new since the last call; they belong to `dispatch`."""
        known = self._found.keys() | self._others
        new = [process for process in self._running() if process.pid not in known]
        self._found |= {process.pid: (dispatch, process) for process in new}
        return tuple(map(str, new))

    def end(self, dispatch: int) -> None:
        """End the processes of `dispatch`."""
        mine = [process for owner, process in self._found.values() if owner == dispatch]
        running = {process.pid for process in self._running()} if mine else set()
        for process in mine:
            del self._found[process.pid]
            if process.pid in running:
                kill(process.pid)
                collect(process.pid)

    def _running(self) -> list[Process]:
        if not has_children():
            return []
        session = os.getsid(0)
        return [found for found in descendants(os.getpid()) if found.session != session]


if __name__ == "__main__":
    sys.exit(end_like(main(sys.argv[1:])))
