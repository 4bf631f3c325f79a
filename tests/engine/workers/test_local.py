from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.engine import process as local
from gemmetry.engine.guardian import Strays
from gemmetry.engine.protocol import ChannelClosed, Shutdown

VARIABLES = {name: os.environ[name] for name in os.environ if name != "PYTEST_CURRENT_TEST"}


@pytest.fixture(scope="module")
def forks():
    """A server that forks workers, as those of a GPU are."""
    with contextlib.closing(local.ForkServer(VARIABLES)) as server:
        yield server


@pytest.fixture(params=["started", "forked"])
def worker(request, tmp_path):
    """A worker that was sent nothing yet: its channel and its process."""
    starter = request.getfixturevalue("forks") if request.param == "forked" else local
    variables = {**VARIABLES, "TMPDIR": str(tmp_path)}
    channel, process = starter.start_worker(tmp_path / "log", tmp_path, variables)
    yield channel, process
    process.end()
    channel.close()


def test_a_worker_ends_on_request(worker):
    channel, process = worker
    assert process.wait(0) is None
    channel.send(Shutdown())
    assert process.wait(60) == 0
    assert process.left_running() == []
    assert not process.was_killed_for_memory()
    with pytest.raises(ChannelClosed):
        channel.receive(1)


def test_a_worker_that_is_ended_reports_the_signal_and_may_be_ended_again(worker):
    channel, process = worker
    assert process.pid > 0
    process.end()
    process.end()
    assert process.wait(0) == -signal.SIGKILL
    with pytest.raises(ChannelClosed):
        channel.receive(1)


@pytest.fixture
def start_by(tmp_path, fresh_workers):
    """Starts a worker by a server, ends it on request, and returns its kind."""

    def go(server, variables):
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        channel, process = server.start_worker(
            tmp_path / "log", temporary, VARIABLES | {"TMPDIR": str(temporary)} | variables
        )
        assert Path(f"/proc/{process.pid}/cwd").resolve() == Path.cwd()
        channel.send(Shutdown())
        assert process.wait(60) == 0
        process.end()
        channel.close()
        assert not temporary.exists()
        return type(process._guardian).__name__

    return go


def test_only_workers_with_the_variables_of_a_server_are_forked(start_by, forks):
    assert start_by(forks, {}) == "ForkedProcess"
    assert start_by(forks, {"OMP_NUM_THREADS": "7"}) == "Popen"


def test_workers_are_started_where_their_server_is_gone(start_by):
    server = local.ForkServer(VARIABLES, [sys.executable, "-c", ""])
    assert [start_by(server, {}) for _ in range(2)] == ["Popen", "Popen"]
    assert not server.is_for(VARIABLES)


def test_a_server_is_kept_for_runs_with_the_same_variables(monkeypatch):
    monkeypatch.setattr(local, "_kept", [])
    first = local.fork_server({"A": "1"})
    assert local.fork_server({"A": "1", "TMPDIR": "elsewhere"}) is first
    other = local.fork_server({"A": "2"})
    assert (first.is_for({"A": "1"}), other.is_for({"A": "2"})) == (False, True)
    assert local.fork_server(None) is None
    assert not other.is_for({"A": "2"}), "importing disturbs measurements on a CPU"


def test_workers_of_a_gpu_alone_keep_a_share_of_memory(monkeypatch, make_context):
    monkeypatch.setattr(local, "total_memory_bytes", lambda: 64 << 30)
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    kinds = (TargetKind.CUDA, TargetKind.CPU)
    of_gpu, of_cpu = (make_context().environment(Target(kind)) for kind in kinds)
    assert of_gpu["MALLOC_TRIM_THRESHOLD_"] == str(2 << 30)
    assert "MALLOC_TRIM_THRESHOLD_" not in of_cpu


@pytest.mark.parametrize("nodes", [["/dev/nvidia0"], ["/dev/kfd"], []])
def test_what_a_run_with_usual_settings_imports_is_imported_early(monkeypatch, make_context, nodes):
    monkeypatch.setattr(local, "_kept", [])
    monkeypatch.setattr(
        local.glob, "glob", lambda pattern: [n for n in nodes if pattern.startswith(n[:-1])]
    )
    local.import_early()
    variables = make_context().environment(Target(TargetKind.CUDA))
    assert [server.is_for(variables) for server in local._kept] == [True] * len(nodes)
    assert local.fork_server(None) is None


def test_memory_is_short_within_what_the_control_group_grants(monkeypatch, worker):
    _, process = worker
    monkeypatch.setattr(local, "total_memory_bytes", lambda: 1000)
    for held, free, is_short in ((300, 39, True), (300, 41, False), (249, 1, False)):
        monkeypatch.setattr(local, "resident_bytes", lambda _pid, held=held: held)
        monkeypatch.setattr(local, "free_memory_bytes", lambda free=free: free)
        assert bool(process.memory_shortage()) is is_short


def test_a_worker_that_cannot_be_started_leaves_no_descriptor_open(tmp_path):
    gc.collect()
    before = len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(OSError) as caught:
        local.start_worker(tmp_path / "missing" / "log", tmp_path, {})
    assert len(list(Path("/dev/fd").iterdir())) == before, f"while {caught} keeps its frames"


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


@pytest.fixture
def started():
    """Starts a process, in a session of its own on request."""
    with contextlib.ExitStack() as stack:

        def go(seconds, *, own):
            command = ["sleep", str(seconds)]
            process = stack.enter_context(subprocess.Popen(command, start_new_session=own))
            stack.callback(process.kill)
            while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"sleep"):
                time.sleep(0.001)  # it is running, but its arguments are not in place yet
            return process

        yield go


def test_each_dispatch_is_blamed_for_the_processes_it_left(started, is_running):
    before = started(2000, own=True)
    strays = Strays()
    assert strays.find_new(1) == ()
    first = started(2001, own=True)
    mine = started(2002, own=False)
    assert strays.find_new(1) == (f"sleep 2001 (process {first.pid})",)
    second = started(2003, own=True)
    assert strays.find_new(2) == (f"sleep 2003 (process {second.pid})",)
    strays.end(3)
    strays.end(1)
    assert not is_running(first.pid)
    assert is_running(mine.pid), "what a kill of the group reaches is left alone"
    assert is_running(second.pid)
    strays.end(2)
    assert not is_running(second.pid)
    assert strays.find_new(2) == ()
    assert is_running(before.pid), "it is no dispatch's"


def test_processes_that_have_already_ended_do_no_harm(started):
    strays = Strays()
    process = started(2004, own=True)
    assert len(strays.find_new(1)) == 1
    process.kill()
    process.wait()
    strays.end(1)
    assert strays.find_new(2) == ()
