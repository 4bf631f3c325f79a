from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gemmetry.engine import guardian
from gemmetry.engine.external import start_command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="subreapers are Linux's")

PATIENCE_S = 60.0

LEAVES = """
import os, subprocess, time
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
own = subprocess.Popen(["sleep", "1001"], start_new_session=True, **quiet)
same = subprocess.Popen(["sleep", "1002"], **quiet)
lost = subprocess.run(["sh", "-c", "setsid sleep 1003 >/dev/null 2>&1 & echo $!"],
                      stdout=subprocess.PIPE, text=True).stdout
for pid in (own.pid, same.pid, int(lost)):
    while b"sleep" not in open(f"/proc/{pid}/cmdline", "rb").read()[:5]:
        time.sleep(0.001)
print(os.getpid(), own.pid, same.pid, int(lost), flush=True)
"""
"""A worker that starts a process in a session of its own, one in its group and an orphan in a
session of its own, and names them."""


@pytest.fixture
def start(tmp_path):
    """Starts a guardian with a worker that runs Python code; (guardian, our end of its control)."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    with contextlib.ExitStack() as stack:

        def go(code):
            ours, control = socket.socketpair()
            channel, other = socket.socketpair()
            arguments = [control.fileno(), channel.fileno(), folder, sys.executable, "-S", "-c"]
            with control, channel, other:
                process = subprocess.Popen(
                    [sys.executable, "-S", "-P", guardian.__file__, *map(str, arguments), code],
                    pass_fds=(control.fileno(), channel.fileno()), stdout=subprocess.PIPE,
                    text=True, start_new_session=True,
                )  # fmt: skip
            for one in (process, ours):
                stack.enter_context(one)
            stack.callback(process.kill)
            return process, ours

        yield go


def report_of(control):
    """Everything that a guardian reported by its end."""
    control.settimeout(PATIENCE_S)
    with control.makefile("rb") as stream:
        return {key: value for line in stream for key, value in json.loads(line).items()}


@pytest.fixture
def wait_for_end(wait_until, is_running):
    return lambda pids: wait_until(lambda: not any(map(is_running, pids)))


@pytest.mark.parametrize(("code", "status"), [
    ("", 0),
    ("raise SystemExit(3)", 3),
    ("import os; os.kill(os.getpid(), 9)", -9),
    ("import os; os.abort()", -6),
])  # fmt: skip
def test_the_workers_status_is_reported(start, code, status):
    code = f"import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); {code}"
    process, control = start(code)
    assert report_of(control)["left"] == []
    assert process.wait(PATIENCE_S) == status


@pytest.mark.parametrize("end", ["the parent is gone", "the parent asks", "the worker ends"])
def test_all_that_a_worker_started_ends_with_it_or_the_parent(start, tmp_path, wait_for_end, end):
    last = "" if end == "the worker ends" else "time.sleep(1000)"
    (tmp_path / "temporary" / "cc1.s").write_text("left by a compiler")
    process, control = start(LEAVES + last)
    pids = [int(text) for text in process.stdout.readline().split()]
    if end == "the parent asks":
        control.shutdown(socket.SHUT_WR)
    if end == "the parent is gone":
        control.close()
    else:
        report = report_of(control)
        assert report["worker"] == pids[0]
        names = [f"sleep {n} (process {pid})" for n, pid in ((1001, pids[1]), (1003, pids[3]))]
        assert sorted(report["left"]) == names
    process.wait(PATIENCE_S)
    wait_for_end(pids)
    assert not (tmp_path / "temporary").exists()


def test_a_worker_ends_with_its_guardian(start, wait_for_end):
    process, _ = start("import os, time; print(os.getpid(), flush=True); time.sleep(1000)")
    pid = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    wait_for_end([pid])


def test_where_the_system_has_no_descriptors_of_processes(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    ours, control = socket.socketpair()
    with subprocess.Popen(["sh", "-c", "exit 3"]) as worker:
        guardian._wait(control, worker.pid)
        # Its number belongs to no other process yet.
        ended = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        assert ended is not None and ended.si_status == 3
    with subprocess.Popen(["sleep", "1005"]) as worker:
        ours.close()
        guardian._wait(control, worker.pid)
        assert worker.poll() is None
        worker.kill()
    control.close()


def test_a_process_is_reported_by_its_name_before_it_was_killed(monkeypatch):
    """The kernel drops the command line of a killed process before the process has ended."""
    fields = {"pid": 3, "session": 3, "state": "S", "cpu_s": 0.0, "image": ""}
    looks = [[guardian.Process(name=name, **fields)] for name in ("sleep 4321", "sleep")]
    monkeypatch.setattr(guardian, "has_children", lambda: bool(looks))
    monkeypatch.setattr(guardian, "descendants", lambda _ancestor: looks.pop(0))
    monkeypatch.setattr(guardian, "kill", lambda _pid: None)
    monkeypatch.setattr(guardian.os, "killpg", lambda _group, _signal: None)
    monkeypatch.setattr(guardian.os, "waitpid", lambda _pid, _options: (0, 0))
    assert guardian.end_all(2)[0] == ["sleep 4321 (process 3)"]


def test_what_a_killed_guardian_leaves_is_ended_by_the_parent(tmp_path, wait_until, wait_for_end):
    """The worker dies with its guardian, but not what it started, in whatever session."""
    code, log = LEAVES + "time.sleep(1000)", tmp_path / "log"
    job = start_command([sys.executable, "-S", "-c", code], {}, tmp_path, log)
    wait_until(lambda: log.read_text().endswith("\n"))
    pids = [int(word) for word in log.read_text().split()]
    assert len(pids) == 4
    parent = Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(parent), signal.SIGKILL)
    job.end()
    wait_for_end(pids)
    assert sum("sleep" in name for name in job.left_running()) == 3
