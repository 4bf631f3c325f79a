"""The worker process: one provider on one target, separate from everything that must survive it.

A guardian (:mod:`gemmetry.engine.guardian`) starts ``python -m gemmetry.engine.worker
SOCKET`` in a session of its own, with the descriptor of its socket. It ends this process and all
that it started, whatever happens to the parent.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import socket
import sys
from pathlib import Path

from gemmetry.domain.contracts import Provider, Workspace
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.record import BuildFacts
from gemmetry.engine.guardian import become_subreaper
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
    workspace = Workspace(generated=Path(hello.generated), jobs=hello.jobs, force=force)
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


if __name__ == "__main__":
    status = main(sys.argv[1:])
    # Unloading large libraries takes half a second, for nothing.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
