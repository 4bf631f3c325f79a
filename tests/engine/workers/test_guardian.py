from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gemmetry.engine import guardian
from gemmetry.engine.external import start_command

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="subreapers and /proc are Linux's"
)

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
    started = []

    def go(code, folder=tmp_path / "temporary"):
        folder.mkdir(exist_ok=True)
        ours, control = socket.socketpair()
        kept, _ = pair = socket.socketpair()
        process = subprocess.Popen(
            [
                sys.executable, "-S", "-P", guardian.__file__, str(control.fileno()),
                str(kept.fileno()), str(folder), sys.executable, "-S", "-c", code,
            ],
            pass_fds=(control.fileno(), kept.fileno()), stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        control.close()
        for one in pair:
            one.close()
        started.append((process, ours))
        return process, ours

    yield go
    for process, ours in started:
        process.kill()
        process.wait()
        process.stdout.close()
        ours.close()


def report_of(control):
    """Everything that a guardian reported by its end."""
    control.settimeout(PATIENCE_S)
    text = b""
    while data := control.recv(1 << 16):
        text += data
    lines = [json.loads(line) for line in text.splitlines()]
    return {key: value for line in lines for key, value in line.items()}


def wait_for_end(pids):
    ends = time.monotonic() + PATIENCE_S
    while any(map(is_running, pids)) and time.monotonic() < ends:
        time.sleep(0.01)
    assert not any(map(is_running, pids))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.abort()", -6),
    ],
)
def test_the_workers_status_is_reported(start, code, status):
    code = f"import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); {code}"
    process, control = start(code)
    assert report_of(control)["left"] == []
    assert process.wait(PATIENCE_S) == status


@pytest.mark.parametrize("end", ["the parent is gone", "the parent asks", "the worker ends"])
def test_all_that_a_worker_started_ends_with_it_or_the_parent(start, tmp_path, end):
    last = "" if end == "the worker ends" else "time.sleep(1000)"
    (tmp_path / "temporary").mkdir()
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


def test_a_worker_ends_with_its_guardian(start):
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
    looks = [[_process("sleep 4321")], [_process("sleep")]]
    monkeypatch.setattr(guardian, "has_children", lambda: bool(looks))
    monkeypatch.setattr(guardian, "descendants", lambda _ancestor: looks.pop(0))
    monkeypatch.setattr(guardian, "kill", lambda _pid: None)
    monkeypatch.setattr(guardian.os, "killpg", lambda _group, _signal: None)
    monkeypatch.setattr(guardian.os, "waitpid", lambda _pid, _options: (0, 0))
    assert guardian.end_all(2)[0] == ["sleep 4321 (process 3)"]


def _process(name: str) -> guardian.Process:
    return guardian.Process(pid=3, session=3, name=name, state="S", cpu_s=0.0, image="")


def test_what_a_killed_guardian_leaves_is_ended_by_the_parent(tmp_path):
    """The worker dies with its guardian, but not what it started, in whatever session."""
    code = LEAVES + "time.sleep(1000)"
    job = start_command([sys.executable, "-S", "-c", code], {}, tmp_path, tmp_path / "log")
    ends = time.monotonic() + PATIENCE_S
    while not (words := (tmp_path / "log").read_text().split()) and time.monotonic() < ends:
        time.sleep(0.01)
    pids = [int(word) for word in words]
    assert len(pids) == 4
    os.kill(parent_of(job.pid), signal.SIGKILL)
    job.end()
    wait_for_end(pids)
    assert sum("sleep" in name for name in job.left_running()) == 3


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
