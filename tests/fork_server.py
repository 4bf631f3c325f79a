"""Processes for the tests, forked from one that has imported torch and gemmetry already.

Imports are nine tenths of the cost of a worker or a command in the suite. While tests run in this
process, ``python -m gemmetry.engine.worker ...`` is therefore not started as a new process: a
server that has imported what workers import forks. The copy continues as a new process would, with
its arguments, descriptors, environment, working directory, session and output. The only difference
is what a library reads from the environment when it is loaded. Each such environment therefore has
a separate server. Files of users' kernels are looked into, and submissions judged, in the same way.
The fixture ``forked`` runs Python programs, mostly commands.

A fork costs what the server's memory costs, and a worker is two of them: with torch 27 ms of a
processor, without it 6 ms. So workers of providers that need no torch have a server without it.

Programs that tests start as processes of their own start their workers as new processes. So does
every test with the fixture ``fresh_workers``.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmetry.engine.process import WORKER, ForkServer
from gemmetry.engine.worker import end_with, fork_all

COMMAND = [sys.executable, *WORKER]
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
_real_popen = subprocess.Popen


# In the tests' process.


class ForkServers:
    """Servers by environment, in place of ``subprocess.Popen`` for the workers' command."""

    def __init__(self) -> None:
        self._servers: OrderedDict[str, ForkServer] = OrderedDict()
        self._lock = threading.Lock()
        atexit.register(self.end)

    def popen(self, command: Any, *arguments: Any, **options: Any) -> Any:
        """A worker, or any other process as usual."""
        from gemmetry.engine import process as local

        command = list(command)
        environment = dict(options.get("env") or os.environ)
        if command == PROBE:
            files = tuple(options[name].fileno() for name in ("stdin", "stdout", "stderr"))
            return self.server("programs", environment).fork(PROBE[1:], (), files, environment)
        given = command[1 + len(local.GUARDIAN) :]
        is_worker = given[BEFORE_COMMAND:][: len(COMMAND)] == COMMAND
        if not is_worker and command[: len(JUDGED)] != JUDGED:
            return _real_popen(command, *arguments, **options)
        kind = _kind_for(given, environment) if is_worker else "judged"
        with Path(os.devnull).open() as nothing:
            output = (options["stdout"] if is_worker else nothing).fileno()
            return self.server(kind, environment).fork(
                given if is_worker else command[1:], tuple(options["pass_fds"]),
                (nothing.fileno(), output, output), environment, options.get("cwd"),
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
        environment = dict(os.environ if env is None else env)
        pipes = [os.pipe(), os.pipe()]
        writes = [write for _, write in pipes]
        with Path(os.devnull).open() as nothing:
            process = self.server("programs", environment).fork(
                ["-c", program, *arguments], (), (nothing.fileno(), *writes), environment
            )
        for write in writes:
            os.close(write)
        printed, until = {read: b"" for read, _ in pipes}, time.monotonic() + timeout
        reading = list(printed)
        while reading:
            ready, _, _ = select.select(reading, [], [], max(0.0, until - time.monotonic()))
            if not ready:
                os.killpg(process.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(COMMAND, timeout)
            for read in ready:
                part = os.read(read, 1 << 16)
                printed[read] += part
                if not part:
                    reading.remove(read)
                    os.close(read)
        out, err = (text.decode() for text in printed.values())
        return subprocess.CompletedProcess([program, *arguments], process.wait(), out, err)

    def end(self) -> None:
        """End all servers."""
        while self._servers:
            self._servers.popitem()[1].close()

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
                    self._servers.popitem(last=False)[1].close()
                self._servers[key] = ForkServer(environment, [sys.executable, __file__, kind])
            self._servers.move_to_end(key)
            return self._servers[key]


def _kind_for(guardian: list[str], environment: dict[str, str]) -> str:
    """The kind of server that has what the worker of these arguments imports; its folder's name
    begins with the provider's."""
    provider = Path(guardian[2]).name.rpartition("-")[0]
    traces = "KINETO_LOG_LEVEL" in environment
    return "torch" if provider in WITH_TORCH or traces else "plain"


# In the server.


def serve(kind: str, connection: int) -> int:
    """Fork the requested processes until no client is left."""
    IMPORTS[kind]()
    fork_all(socket.socket(fileno=connection), _run)
    return 0


def _run(arguments: list[str]) -> int:
    """Run a guardian or a program as the interpreter does. Returns its exit status."""
    if perturbs := os.environ.get("MALLOC_PERTURB_"):
        ctypes.CDLL(None).mallopt(_M_PERTURB, int(perturbs))
    status = _status_of(arguments)
    threading._shutdown()
    return status


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

        status = guardian.main(arguments, lambda command: end_with(_worker_status, command))
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
    serve(sys.argv[1], int(sys.argv[2]))
