"""The server that the suite forks workers from, and running the suite as on another machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests import elsewhere

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.process import WorkerContext, WorkerProcess
from gemmetry.engine.schema import Lane


@pytest.fixture
def worker(tmp_path):
    context = WorkerContext(
        settings=RunSettings(threads=1), generated=tmp_path / "generated",
        folder=tmp_path,
    )  # fmt: skip
    lane = Lane(1, "null", {}, Target(TargetKind.NULL))
    found = WorkerProcess(lane, context)
    yield found
    found.kill()


def test_a_worker_is_a_copy_in_a_session_of_its_own_with_its_output(worker, tmp_path):
    assert type(worker._process._guardian).__name__ == "ForkedProcess"
    assert worker.wait_ready() is None
    assert os.getsid(worker.pid) == worker.pid
    folder = Path(f"/proc/{worker.pid}")
    if folder.is_dir():
        assert (folder / "fd/1").resolve().parent == tmp_path / "artifacts" / "logs"
        parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        assert parent != os.getpid()
        assert "libtorch" not in (folder / "maps").read_text(), "a copy of a server without torch"
    assert worker._process._guardian.poll() is None
    worker.stop()
    assert worker._process._guardian.returncode == 0


def test_a_killed_worker_ends_with_its_signal(worker):
    os.kill(worker._process._guardian.pid, signal.SIGTERM)
    assert worker._process._guardian.wait(60) == -signal.SIGTERM


def test_masked_numpy_does_without_its_widest_features():
    wide = elsewhere.wide_numpy_features()
    if not wide:
        pytest.skip("numpy has no code for wider vectors than AVX2 or NEON here")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import elsewhere\n"
        "print(elsewhere.wide_numpy_features())"
    )
    environment = {**os.environ, **elsewhere.masked_environment()}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(Path(__file__).parent)],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


def test_busy_processes_compute_and_end():
    with elsewhere.busy_processes(2) as processes:
        until = time.monotonic() + 300
        while time.monotonic() < until and any(_processor_s(p.pid) < 0.05 for p in processes):
            time.sleep(0.01)
        assert all(process.poll() is None for process in processes)
    assert all(process.returncode == -signal.SIGKILL for process in processes)


def _processor_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("inf")
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")
