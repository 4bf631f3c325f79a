from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

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

HELLO = Hello("fake", {}, Target(TargetKind.NULL), RunSettings(), "g", "r", "f", 1, False)


class Fake:
    """A provider whose compile method yields what the test specifies and then may raise."""

    def __init__(self, results, error=None):
        self.results = results
        self.error = error

    def compile(self, dispatches, workspace):
        by_name = {dispatch.configuration.name: dispatch for dispatch in dispatches}
        for name, error in self.results.items():
            yield Compiled(
                dispatch=by_name[name], facts=BuildFacts(registers=len(name)), error=error
            )
        if self.error is not None:
            raise self.error


def compile_with(provider, *names, rows=None):
    a, b = socket.socketpair()
    parent, child = Channel(a, Reply), Channel(b, Request)
    wires = tuple(
        WireDispatch(i, f"matmul_{m}x1x1_f32t_f32t_f32t", Configuration(name))
        for i, (name, m) in enumerate(zip(names, rows or [1] * len(names), strict=True))
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
    first, second = compile_with(Fake({"bb": None, "a": CompileError("bad tile")}), "a", "bb")
    assert first == CompileDone(1, BuildFacts(registers=2), None)
    assert (second.id, second.failure.kind, second.failure.message) == (
        0, "CompileError", "bad tile"
    )  # fmt: skip


def test_equal_configurations_of_several_operations_are_distinguished():
    class Backwards:
        def compile(self, dispatches, workspace):
            for dispatch in reversed(dispatches):
                m = dispatch.operation.matmul_shape[0]
                yield Compiled(dispatch=dispatch, facts=BuildFacts(registers=m))

    found = compile_with(Backwards(), "default", "default", rows=(3, 5))
    assert [(one.id, one.facts.registers) for one in found] == [(1, 5), (0, 3)]


def test_an_exception_leaves_the_rest_of_a_batch_without_an_answer():
    (only,) = compile_with(Fake({"a": None}, ValueError("broken")), "a", "b", "c")
    assert only.id == 0


def test_an_exception_about_a_single_dispatch_is_its_answer():
    (only,) = compile_with(Fake({}, ValueError("broken")), "a")
    assert (only.id, only.failure.kind) == (0, "ValueError")
    assert "test_main.py" in only.failure.trace


def test_a_worker_whose_parent_has_already_ended_ends():
    ours, theirs = socket.socketpair()
    ours.close()
    done = subprocess.run(
        [sys.executable, "-m", "gemmetry.engine.worker", str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        timeout=120,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 0
    theirs.close()


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
    done = subprocess.run(
        [sys.executable, "-c", code, str(theirs.fileno())], pass_fds=(theirs.fileno(),),
        capture_output=True, text=True,
    )  # fmt: skip
    theirs.close()
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert parent.receive(1.0) == Answered()
    with pytest.raises(ChannelClosed):
        parent.receive(1.0)
    parent.close()


def test_a_worker_imports_no_heavy_library():
    code = (
        "import sys, gemmetry.engine.worker, gemmetry.engine.bench;"
        "print([m for m in ('torch', 'triton', 'iree', 'polars', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
