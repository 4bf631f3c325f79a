"""Processes for the tests, forked from one that has imported torch and gemmetry already.

Imports are nine tenths of the cost of a worker or a command in the suite. While tests run in this
process, ``python -m gemmetry.engine.worker ...`` is therefore not started as a new process: a
server that has imported what workers import forks, and the copy continues as a new one would, with
its arguments, descriptors, environment, working directory, session and output. The only difference
is what a library reads from the environment when it is loaded, so each such environment has a
separate server. Files of users' kernels are looked into, and submissions judged, in the same way,
and the fixture ``forked`` runs Python programs, mostly commands.

A fork costs what the server's memory costs, and a worker is two of them: with torch 27 ms of a
processor, without it 6 ms. So workers of providers that need no torch have a server without it.

Programs that tests start as processes of their own start their workers as ever, and so does every
worker under the fixture ``fresh_workers``.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "gemmetry.engine.worker"]
"""What a guardian starts, see ``gemmetry.engine.guardian``."""

BEFORE_COMMAND = 3
"""Arguments of a guardian before the command."""

PROBE = [sys.executable, "-m", "gemmetry.providers.user_provider.kernel"]
"""What looks into a file of kernels."""

JUDGED = [sys.executable, "-m", "gemmetry.judge.child"]
"""What runs a submission."""

_M_PERTURB = -6
"""The parameter of mallopt(3) whose initial value is the variable MALLOC_PERTURB_."""

WITH_TORCH = ("torch", "triton", "user")
"""Providers whose workers import torch, or may; all do that trace."""

READ_LATER = ("TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")
"""Variables that are read when they are needed, so that servers need not differ by them."""

MOST_SERVERS = 6
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

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None


class ForkServer:
    """One server process."""

    def __init__(self, kind: str, environment: dict[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = _real_popen(
            [sys.executable, __file__, str(theirs.fileno()), kind],
            pass_fds=(theirs.fileno(),), env=environment, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._socket = ours
        self._lock = threading.Lock()

    def fork(
        self, arguments: list[str], inherited: tuple[int, ...], files: tuple[int, int, int],
        environment: dict[str, str], folder: str,
    ) -> ForkedWorker:  # fmt: skip
        """A guardian with these arguments, or a program where the first one is ``-c`` or ``-m``. It
        has the descriptors `inherited` by their numbers, and `files` as standard input, output and
        error."""
        read, write = os.pipe()
        request = json.dumps([arguments, inherited, environment, folder]).encode()
        sent = array.array("i", [write, *files, *inherited])
        try:
            with self._lock:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)]
                self._socket.sendmsg([request], rights)
                pid = int(self._socket.recv(64))
        finally:
            os.close(write)
        return ForkedWorker(pid, read)

    def end(self) -> None:
        """Let the server end, which it does when no client is left."""
        self._socket.close()
        self._process.wait()


class ForkServers:
    """Servers by environment, in place of ``subprocess.Popen`` for the workers' command."""

    def __init__(self) -> None:
        self._servers: OrderedDict[str, ForkServer] = OrderedDict()
        self._lock = threading.Lock()
        atexit.register(self.end)

    def popen(self, command: Any, *arguments: Any, **options: Any) -> Any:
        """A worker, or any other process as usual."""
        from gemmetry.engine import process as local

        if list(command) == PROBE:
            environment = dict(os.environ)
            files = tuple(options[name].fileno() for name in ("stdin", "stdout", "stderr"))
            return self.server("programs", environment).fork(
                PROBE[1:], (), files, environment, str(Path.cwd())
            )
        if list(command[: len(JUDGED)]) == JUDGED:
            with Path(os.devnull).open() as nothing:
                return self.server("judged", options["env"]).fork(
                    list(command[1:]), tuple(options["pass_fds"]), (nothing.fileno(),) * 3,
                    options["env"], str(options["cwd"]),
                )  # fmt: skip
        given = list(command[1 + len(local.GUARDIAN) :])
        if given[BEFORE_COMMAND:][: len(COMMAND)] != COMMAND:
            return _real_popen(command, *arguments, **options)
        environment = dict(options["env"])
        output = options["stdout"].fileno()
        with Path(os.devnull).open() as nothing:
            return self.server(_kind_for(given, environment), environment).fork(
                given, tuple(options["pass_fds"]), (nothing.fileno(), output, output),
                environment, str(Path.cwd()),
            )  # fmt: skip

    def awaiting(self, real: Callable[..., bool]) -> Callable[[Any, float], bool]:
        """The probe's wait, `real`, which also waits for a copy; that is no child of this
        process."""

        def await_end(process: Any, seconds: float) -> bool:
            if isinstance(process, subprocess.Popen):
                return real(process, seconds)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                return False
            return True

        return await_end

    def run(
        self, program: str, *arguments: str, env: dict[str, str] | None = None,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """The result of a Python program, run as ``python -c`` runs it, in a session of its own."""
        with ForkedPipes(self, ["-c", program, *arguments], env) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(
            [program, *arguments], process.returncode, out.decode(), err.decode()
        )

    def end(self) -> None:
        """End all servers."""
        while self._servers:
            self._servers.popitem()[1].end()

    def server(self, kind: str, environment: dict[str, str]) -> ForkServer:
        """The server of this kind (a key of :data:`IMPORTS`) for this environment."""
        from gemmetry.hardware.detect import _variables

        read = _variables(environment) | {"PYTHONPATH": environment.get("PYTHONPATH", "")}
        for name in READ_LATER:
            read.pop(name, None)
        key = json.dumps([kind, read], sort_keys=True)
        with self._lock:
            if key not in self._servers:
                if len(self._servers) == MOST_SERVERS:
                    self._servers.popitem(last=False)[1].end()
                self._servers[key] = ForkServer(kind, environment)
            self._servers.move_to_end(key)
            return self._servers[key]


def _kind_for(guardian: list[str], environment: dict[str, str]) -> str:
    """The kind of server that has what the worker of these arguments imports; its folder's name
    begins with the provider's."""
    provider = Path(guardian[2]).name.rpartition("-")[0]
    traces = "KINETO_LOG_LEVEL" in environment
    return "torch" if provider in WITH_TORCH or traces else "plain"


class ForkedPipes:
    """A forked program with pipes, with what is used of :class:`subprocess.Popen`."""

    def __init__(
        self, servers: ForkServers, arguments: list[str],
        env: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        environment = dict(os.environ if env is None else env)
        reads, self._input = os.pipe()
        out, writes_out = os.pipe()
        err, writes_err = os.pipe()
        try:
            self._process = servers.server("programs", environment).fork(
                arguments, (), (reads, writes_out, writes_err),
                environment, str(Path.cwd()),
            )  # fmt: skip
        finally:
            for descriptor in (reads, writes_out, writes_err):
                os.close(descriptor)
        self.pid = self._process.pid
        self.returncode = -1
        self._texts = {out: b"", err: b""}
        self._open = {out, err}

    def communicate(self, given: bytes = b"", timeout: float | None = None) -> tuple[bytes, bytes]:
        """Write what is given and read all that it writes; may be called again after a timeout."""
        if self._input >= 0:
            with os.fdopen(self._input, "wb") as file:
                self._input = -1
                file.write(given)
        until = None if timeout is None else time.monotonic() + timeout
        while self._open:
            left = None if until is None else max(0.0, until - time.monotonic())
            ready, _, _ = select.select(self._open, [], [], left)
            if not ready:
                raise subprocess.TimeoutExpired(COMMAND, timeout or 0.0)
            for descriptor in ready:
                read = os.read(descriptor, 1 << 16)
                self._texts[descriptor] += read
                if not read:
                    self._open.remove(descriptor)
                    os.close(descriptor)
        self.returncode = self._process.wait()
        out, err = self._texts.values()
        return out, err

    def __enter__(self) -> ForkedPipes:
        return self

    def __exit__(self, *_error: object) -> None:
        for descriptor in (self._input, *self._open):
            if descriptor >= 0:
                os.close(descriptor)
        self._input, self._open = -1, set()
        self._process.wait()


# In the server.


def serve(connection: socket.socket, kind: str) -> None:
    """Fork the requested processes until no client is left."""
    import fcntl

    IMPORTS[kind]()
    gc.collect()
    gc.freeze()  # keeps these pages shared with copies that collect garbage
    own = fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, _OWN_DESCRIPTORS)
    connection.close()
    connection = socket.socket(fileno=own)
    pipe = os.pipe()
    wakes, wake = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OWN_DESCRIPTORS) for fd in pipe)
    for descriptor in pipe:
        os.close(descriptor)
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
            running[pid] = high[0]
            for descriptor in high[1:]:
                os.close(descriptor)
            connection.send(str(pid).encode())


def _try_write(descriptor: int, status: int) -> None:
    try:
        os.write(descriptor, str(status).encode())
    except BrokenPipeError:
        pass  # no process waits for it any more
    os.close(descriptor)


def _work(
    received: list[int], arguments: list[str], inherited: list[int],
    environment: dict[str, str], folder: str,
) -> None:  # fmt: skip
    """Become the guardian or the program, in the copy; does not return."""
    status = 1
    try:
        os.setsid()
        for source, number in zip(received[1:], (0, 1, 2, *inherited), strict=True):
            os.dup2(source, number)
        os.closerange(_OWN_DESCRIPTORS, os.sysconf("SC_OPEN_MAX"))  # the server's, and received
        os.environ.clear()
        os.environ.update(environment)
        if perturbs := environment.get("MALLOC_PERTURB_"):
            ctypes.CDLL(None).mallopt(_M_PERTURB, int(perturbs))
        tempfile.tempdir = None  # an imported library may have requested it
        os.chdir(folder)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        os._exit(status)
    _end_with(_status_of, arguments)


def _end_with(run: Callable[[list[str]], int], arguments: list[str]) -> None:
    """Ends this process as the interpreter does after `run`, with its status."""
    status = 1
    try:
        status = run(arguments)
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _worker_status(command: list[str]) -> int:
    from gemmetry.engine.worker import main

    sys.argv = ["gemmetry.engine.worker", *command[len(COMMAND) :]]
    return main(sys.argv[1:])


def _status_of(arguments: list[str]) -> int:
    """Runs it as the interpreter does; returns its exit status."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, str(Path.cwd()))
        importlib.import_module(arguments[1]).main()
        return 0
    if arguments[0] != "-c":
        from gemmetry.engine import guardian

        status = guardian.main(arguments, lambda command: _end_with(_worker_status, command))
        return guardian.end_like(status)
    sys.argv = ["-c", *arguments[2:]]
    sys.path.insert(0, "")
    try:
        exec(arguments[1], {"__name__": "__main__"})
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


def _import_plain() -> None:
    """What every worker imports."""
    import gemmetry.engine.bench
    import gemmetry.engine.guardian
    import gemmetry.engine.worker
    import gemmetry.providers.null_provider.provider
    import gemmetry.providers.numpy_provider.provider
    import gemmetry.providers.registry  # noqa: F401
    from gemmetry.hardware.host_device import set_blas_threads

    set_blas_threads(1)  # as in the tests' process, see conftest.py; copies inherit it


def _import_torch() -> None:
    """And what those of torch do."""
    _import_plain()
    try:
        import torch  # noqa: F401

        import gemmetry.providers.torch_provider.provider  # noqa: F401

        if "KINETO_LOG_LEVEL" in os.environ:  # its workers trace
            _import_profiler()
    except ImportError:
        pass  # workers of the other providers do without


def _import_profiler() -> None:
    import torch._inductor
    import torch.profiler  # noqa: F401


def _import_programs() -> None:
    """And what commands import."""
    for folder in ("cli", "dispatches", "documents", "formats", "results", "traces"):
        package = importlib.import_module(f"gemmetry.{folder}")
        for found in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"gemmetry.{folder}.{found.name}")
    for name in ("jinja2", "rich.table", "xlsxwriter"):
        importlib.import_module(name)
    _import_torch()


def _import_judged() -> None:
    """What a submission's process imports."""
    import gemmetry.judge.child
    import gemmetry.judge.sandbox  # noqa: F401

    _import_torch()
    _import_profiler()


IMPORTS: dict[str, Callable[[], None]] = {
    "plain": _import_plain, "torch": _import_torch, "programs": _import_programs,
    "judged": _import_judged,
}  # fmt: skip
"""By kind of server."""


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
