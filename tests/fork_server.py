"""Workers of the engine for the tests, forked from a process that has imported torch already.

Nine tenths of what a worker costs the suite is the import of torch. While tests run in this
process, ``python -m gemmetry.engine.worker ...`` is therefore not started afresh: a server process
that has imported what workers import forks, and the copy goes on as a started one does, with its
arguments, descriptors, environment, working directory, session and output. Nothing else differs
but what a library reads of the environment when it is loaded: each environment that libraries read
has a server of its own.

Programs that tests start as processes of their own start their workers as ever, and so does every
worker under the fixture ``fresh_workers``.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections import OrderedDict
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "gemmetry.engine.worker"]
MOST_SERVERS = 4
_OWN_DESCRIPTORS = 200
"""Descriptors of the server's own are kept from here on, so that a worker may have any below."""

_REQUEST_BYTES = 1 << 20
_real_popen = subprocess.Popen


# In the tests' process.


class ForkedWorker:
    """A forked worker, with what the engine uses of :class:`subprocess.Popen`."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, negative for a signal."""
        with self._lock:
            if self.returncode is None:
                ready, _, _ = select.select([self._status], [], [], timeout)
                if not ready:
                    raise subprocess.TimeoutExpired(COMMAND, timeout or 0.0)
                # Nothing is written if the server died, and its copies with it.
                self.returncode = int(os.read(self._status, 16) or b"-9")
                os.close(self._status)
            return self.returncode

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None


class ForkServer:
    """One server process."""

    def __init__(self, environment: dict[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = _real_popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),), env=environment, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._socket = ours
        self._lock = threading.Lock()

    def fork(
        self, arguments: list[str], inherited: tuple[int, ...], output: int,
        environment: dict[str, str], folder: str,
    ) -> ForkedWorker:  # fmt: skip
        """A worker with these arguments, which has the descriptors `inherited` by their numbers."""
        read, write = os.pipe()
        request = json.dumps([arguments, inherited, environment, folder]).encode()
        sent = array.array("i", [output, write, *inherited])
        try:
            with self._lock:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)]
                self._socket.sendmsg([request], rights)
                pid = int(self._socket.recv(64))
        finally:
            os.close(write)
        return ForkedWorker(pid, read)

    def end(self) -> None:
        """Let the server end; it does when nobody is left to speak to it."""
        self._socket.close()
        self._process.wait()


class ForkServers:
    """Servers by environment, in place of ``subprocess.Popen`` for the workers' command."""

    def __init__(self) -> None:
        self._servers: OrderedDict[str, ForkServer] = OrderedDict()
        self._lock = threading.Lock()
        atexit.register(self.end)

    def popen(self, command: Any, *arguments: Any, **options: Any) -> Any:
        """A worker, or any other process as ever."""
        if list(command[:3]) != COMMAND:
            return _real_popen(command, *arguments, **options)
        environment = dict(options["env"])
        return self._server(environment).fork(
            list(command[3:]), tuple(options["pass_fds"]), options["stdout"].fileno(),
            environment, str(Path.cwd()),
        )  # fmt: skip

    def end(self) -> None:
        """End all servers."""
        while self._servers:
            self._servers.popitem()[1].end()

    def _server(self, environment: dict[str, str]) -> ForkServer:
        from gemmetry.hardware.environment import _variables

        read = _variables(environment) | {"PYTHONPATH": environment.get("PYTHONPATH", "")}
        key = json.dumps(read, sort_keys=True)
        with self._lock:
            if key not in self._servers:
                if len(self._servers) == MOST_SERVERS:
                    self._servers.popitem(last=False)[1].end()
                self._servers[key] = ForkServer(environment)
            self._servers.move_to_end(key)
            return self._servers[key]


# In the server.


def serve(connection: socket.socket) -> None:
    """Fork what is asked for until nobody asks any more."""
    import fcntl

    _import_what_workers_import()
    own = fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, _OWN_DESCRIPTORS)
    connection.close()
    connection = socket.socket(fileno=own)
    wakes, wake = os.pipe()
    wakes = fcntl.fcntl(wakes, fcntl.F_DUPFD_CLOEXEC, _OWN_DESCRIPTORS)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([connection, wakes], [], [])
        if wakes in ready:
            os.read(wakes, 512)
        for pid in list(running):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                status_pipe = running.pop(pid)
                _try_write(status_pipe, os.waitstatus_to_exitcode(status))
        if connection in ready:
            request, rights, _, _ = connection.recvmsg(_REQUEST_BYTES, 4096)
            if not request:
                return
            received = array.array("i")
            for _, _, data in rights:
                received.frombytes(data)
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OWN_DESCRIPTORS) for fd in received]
            for descriptor in received:
                os.close(descriptor)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                connection.close()
                _work(high, *json.loads(request))
            running[pid] = high[1]
            for descriptor in (high[0], *high[2:]):
                os.close(descriptor)
            connection.send(str(pid).encode())


def _try_write(descriptor: int, status: int) -> None:
    try:
        os.write(descriptor, str(status).encode())
    except BrokenPipeError:
        pass  # nobody waits for it any more
    os.close(descriptor)


def _work(
    received: list[int], arguments: list[str], inherited: list[int],
    environment: dict[str, str], folder: str,
) -> None:  # fmt: skip
    """Be a worker, in the copy; does not return."""
    status = 1
    try:
        os.setsid()
        output = received[0]
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, number in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, number)
        for source, number in zip(received[2:], inherited, strict=True):
            os.dup2(source, number)
        for descriptor in received:
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = ["gemmetry.engine.worker", *arguments]
        from gemmetry.engine.worker import main

        status = main(arguments)
        threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _import_what_workers_import() -> None:
    import gemmetry.engine.bench
    import gemmetry.engine.worker
    import gemmetry.providers.registry

    try:
        import torch

        import gemmetry.providers.torch_provider  # noqa: F401

        if "KINETO_LOG_LEVEL" in os.environ:  # its workers trace; the profiler imports these
            import torch._inductor  # noqa: F401
    except ImportError:
        pass  # workers of the other providers do without


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
