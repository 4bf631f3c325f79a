"""The worker process: one provider on one target, separate from everything that must survive it.

A guardian (:mod:`gemmetry.engine.guardian`) starts ``python -m gemmetry.engine.worker
SOCKET`` in a session of its own, with the descriptor of its socket. It ends this process and all
that it started, whatever happens to the parent.
"""

from __future__ import annotations

import array
import atexit
import faulthandler
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from gemmetry.domain.contracts import Provider, Workspace
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.record import BuildFacts
from gemmetry.engine.guardian import become_subreaper, end_like
from gemmetry.engine.guardian import main as guard
from gemmetry.engine.protocol import (
    Answered,
    Channel,
    ChannelClosed,
    Close,
    Compile,
    CompileDone,
    Hello,
    Open,
    Ready,
    Request,
    Sample,
    Shutdown,
    describe,
)
from gemmetry.providers.registry import load_provider


def main(arguments: list[str]) -> int:
    """Serve until the parent sends Shutdown or is gone."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A timer ends a launch that hangs (bench.py); the log then shows where it was.
    faulthandler.register(signal.SIGALRM, chain=True)
    connection = socket.socket(fileno=int(arguments[0]))
    # Processes that a kernel forks take no part in the conversation. A copy that native code
    # creates keeps its descriptor, and the channel rejects it.
    os.register_at_fork(after_in_child=connection.close)
    channel = Channel(connection, Request)
    worker = os.getpid()
    try:
        become_subreaper()
        hello = channel.receive()
        if isinstance(hello, Hello):
            _serve(channel, hello)
    except ChannelClosed:
        if os.getpid() != worker:
            os._exit(0)  # a copy must do nothing more, least of all what the worker does last
    return 0


def _serve(channel: Channel, hello: Hello) -> None:
    try:
        provider = load_provider(hello.provider, hello.options)
        if (reason := provider.available()) is not None:
            raise UnsupportedError(reason)
    except Exception as error:  # noqa: BLE001  # the isolation boundary
        channel.send(Ready(describe(error)))
        return
    channel.send(Ready())
    force = hello.settings.force_compile
    workspace = hello.workspace(force=force)
    bench = None
    while True:
        request = channel.receive()
        match request:
            case Shutdown():
                return
            case Compile():
                _compile(channel, provider, hello, workspace, request)
            case Open() | Sample() | Close():
                if bench is None:
                    # Compile workers need neither numpy nor inputs nor verification.
                    from gemmetry.engine.bench import Bench

                    bench = Bench(channel, provider, hello, workspace, may_end=True)
                bench.handle(request)
        channel.send(Answered())


def _compile(
    channel: Channel, provider: Provider, hello: Hello, workspace: Workspace, request: Compile
) -> None:
    dispatches = list(map(hello.dispatch, request.dispatches))
    pairs = zip(dispatches, request.dispatches, strict=True)
    ids = {dispatch.name: wire.id for dispatch, wire in pairs}
    try:
        for compiled in provider.compile(dispatches, workspace):
            failure = None if compiled.error is None else describe(compiled.error)
            channel.send(CompileDone(ids.pop(compiled.dispatch.name), compiled.facts, failure))
    except ChannelClosed:
        raise
    except Exception as error:  # noqa: BLE001  # the isolation boundary
        # Those without a result are halved and tried again until the culprit is isolated.
        if len(ids) == 1:
            (left,) = ids.values()
            channel.send(CompileDone(left, BuildFacts(), describe(error)))


# -- Forks, see gemmetry.engine.process.ForkServer ------------------------------------------------

IMPORTED_AHEAD = ("gemmetry.engine.bench", "torch", "torch.profiler", "triton")
"""What a server imports before it forks, as far as it is installed. No GPU may be opened by that: a
fork cannot use it."""

_OWN_DESCRIPTORS = 200
"""A server's own descriptors are kept from here on, so that a fork may have any below."""

_REQUEST_BYTES = 1 << 20


def fork_all(connection: socket.socket, run: Callable[[list[str]], int]) -> None:
    """Fork for each request until no client is left; the fork calls `run` with its arguments, with
    the descriptors, variables and folder that are given, in a session of its own."""
    gc.collect()
    gc.freeze()  # keeps these pages shared with forks that collect garbage
    requests = socket.socket(fileno=_high(connection.detach()))
    wakes, wake = map(_high, os.pipe())
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests.fileno(), wakes], [], [])
        if wakes in ready:
            os.read(wakes, 512)
        for pid in list(running):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                _report_status(running.pop(pid), os.waitstatus_to_exitcode(status))
        if requests.fileno() in ready:
            request, rights, _, _ = requests.recvmsg(_REQUEST_BYTES, 4096)
            if not request:
                return
            received = array.array("i")
            for _, _, data in rights:
                received.frombytes(data)
            high = list(map(_high, received))
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                requests.close()
                end_with(partial(_forked, run, high[1:]), json.loads(request))
            running[pid] = high[0]
            for descriptor in high[1:]:
                os.close(descriptor)
            requests.send(str(pid).encode())


def _high(descriptor: int) -> int:
    found = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OWN_DESCRIPTORS)
    os.close(descriptor)
    return found


def _report_status(pipe: int, status: int) -> None:
    with suppress(BrokenPipeError):  # no process waits for it any more
        os.write(pipe, str(status).encode())
    os.close(pipe)


def _forked(run: Callable[[list[str]], int], received: list[int], request: list[Any]) -> int:
    arguments, inherited, environment, folder = request
    os.setsid()
    for source, number in zip(received, (0, 1, 2, *inherited), strict=True):
        os.dup2(source, number)
    os.closerange(_OWN_DESCRIPTORS, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # an imported library may have requested it
    os.chdir(folder)
    return run(arguments)


def _guarded(arguments: list[str]) -> int:
    """Be a guardian whose worker is a fork of it."""

    def become(command: list[str]) -> None:
        sys.argv = command[2:]
        end_with(main, command[3:])

    return end_like(guard(arguments, become))


def end_with(run: Callable[[Any], int], arguments: Any) -> NoReturn:
    """End this process after `run`, with its status, as the interpreter does; but libraries are not
    unloaded, which takes half a second."""
    status = 1
    try:
        status = run(arguments)
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _serve_forks(arguments: list[str]) -> int:
    for name in IMPORTED_AHEAD:
        with suppress(ImportError):
            importlib.import_module(name)
    fork_all(socket.socket(fileno=int(arguments[1])), _guarded)
    return 0


if __name__ == "__main__":
    end_with(_serve_forks if sys.argv[1] == "--forks" else main, sys.argv[1:])
