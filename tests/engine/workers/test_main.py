from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmetry.domain.contracts import Compiled, Workspace
from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.domain.errors import CompileError
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import worker
from gemmetry.engine.protocol import (
    Answered,
    Channel,
    ChannelClosed,
    Compile,
    CompileDone,
    Hello,
    Reply,
    Request,
    WireDispatch,
)

HELLO = Hello("fake", {}, Target(TargetKind.NULL), RunSettings(), "g", "f", 1)


def compiling(results, error=None):
    """A provider that yields results of dispatches, by the place of each, and then may raise."""

    def compile(dispatches, workspace):
        for place, failure in results.items():
            facts = BuildFacts(registers=dispatches[place].operation.matmul_shape[0])
            yield Compiled(dispatch=dispatches[place], facts=facts, error=failure)
        if error is not None:
            raise error

    return SimpleNamespace(compile=compile)


def compile_with(provider, *names):
    """What a worker answers to a request for dispatches of these names, of 1, 2, … rows."""
    a, b = socket.socketpair()
    parent, child = Channel(a, Reply), Channel(b, Request)
    wires = tuple(
        WireDispatch(place, f"matmul_{place + 1}x1x1_f32t_f32t_f32t", Configuration(name))
        for place, name in enumerate(names)
    )
    worker._compile(child, provider, HELLO, Workspace(generated=Path()), Compile(wires))
    child.close()
    found = []
    with pytest.raises(ChannelClosed):
        while True:
            found.append(parent.receive(1.0))
    parent.close()
    return found


def test_results_are_reported_as_they_come_in_any_order():
    """Equal configurations of several operations are distinguished."""
    first, second = compile_with(compiling({1: None, 0: CompileError("bad tile")}), "a", "a")
    assert first == CompileDone(1, BuildFacts(registers=2), None)
    assert (second.id, second.failure.kind) == (0, "CompileError")
    assert second.failure.message == "bad tile"


def test_an_exception_is_the_answer_about_a_single_dispatch_and_no_answer_about_several():
    broken = ValueError("broken")
    (only,) = compile_with(compiling({0: None}, broken), "a", "b", "c")
    assert (only.id, only.failure) == (0, None)
    (only,) = compile_with(compiling({}, broken), "a")
    assert (only.id, only.failure.kind) == (0, "ValueError")
    assert "test_main.py" in only.failure.trace


def test_a_worker_whose_parent_has_already_ended_ends():
    ours, theirs = socket.socketpair()
    ours.close()
    command = [sys.executable, "-m", "gemmetry.engine.worker", str(theirs.fileno())]
    with theirs:
        done = subprocess.run(
            command, pass_fds=(theirs.fileno(),), timeout=120, start_new_session=True
        )
    assert done.returncode == 0


@pytest.mark.parametrize("fork", ["os.fork()", "ctypes.CDLL(None).fork()"])
def test_a_copy_of_a_worker_cannot_speak(fork):
    """Neither one that Python forked, whose socket is closed, nor one of native code."""
    code = f"""
import ctypes, os, socket, sys
from gemmetry.engine import worker
from gemmetry.engine.protocol import Answered, Entered
def serve(channel, hello):
    if {fork}:
        os.wait()
        channel.send(Answered())
    else:
        channel.send(Entered(1, "build"))
        print("the copy continues")
worker._serve = serve
sys.exit(worker.main(sys.argv[1:]))
"""
    ours, theirs = socket.socketpair()
    parent = Channel(ours, Reply)
    parent.send(HELLO)
    command = [sys.executable, "-c", code, str(theirs.fileno())]
    with ours:
        with theirs:
            done = subprocess.run(
                command, pass_fds=(theirs.fileno(),), capture_output=True, text=True
            )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert parent.receive(1.0) == Answered()
        with pytest.raises(ChannelClosed):
            parent.receive(1.0)


def test_a_worker_imports_no_heavy_library():
    code = (
        "import sys, gemmetry.engine.worker, gemmetry.engine.bench;"
        "print([m for m in ('torch', 'triton', 'iree', 'polars', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
