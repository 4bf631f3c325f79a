"""An agent runs commands for a driver, whose end of the connection the test holds."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import threading

import pytest

from gemmetry.domain.errors import EnvironmentFailure
from gemmetry.engine.agents import serving
from gemmetry.engine.agents.link import Link
from gemmetry.engine.agents.messages import (
    Challenge,
    Ended,
    EndWorker,
    Exited,
    Fetch,
    Leave,
    Part,
    Printed,
    StartCommand,
    Started,
    ToAgent,
    ToDriver,
)
from gemmetry.engine.agents.serving import WorkerHost
from gemmetry.engine.workers.protocol import BadFrame, ChannelClosed

PATIENCE_S = 30


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """The driver's end; `ended` has why the host ended, and `folder` is the agent's."""
    monkeypatch.setattr(serving, "POLL_S", 0.02)
    mine, agents = socket.socketpair()
    theirs, link = Link(agents, ToAgent), Link(mine, ToDriver)
    theirs.trust()
    link.trust()
    link.folder = tmp_path / "agent"
    link.folder.mkdir()
    link.ended = []

    def work():
        try:
            link.ended.append(WorkerHost(theirs, link.folder, 60.0).work())
        except (BadFrame, ChannelClosed, EnvironmentFailure) as error:
            link.ended.append(error)

    link.thread = threading.Thread(target=work)
    link.thread.start()
    yield link
    link.close()
    link.thread.join(PATIENCE_S)
    theirs.close()


def _command(driver, code, folder, number=1):
    driver.send(StartCommand(number, (sys.executable, "-c", code), {"KEY": "value"}, str(folder)))
    return driver.receive(PATIENCE_S)


def _until(driver, kind):
    """The messages up to the first of `kind`."""
    found = [driver.receive(PATIENCE_S)]
    while not isinstance(found[-1], kind):
        found.append(driver.receive(PATIENCE_S))
    return found


def test_a_command_reports_its_output_before_its_status(driver, tmp_path):
    code = "import os, sys; print(os.environ['KEY'], os.getcwd()); sys.exit(3)"
    assert _command(driver, code, tmp_path).pid > 0
    *printed, exited = _until(driver, Exited)
    assert exited == Exited(1, 3)
    assert all(isinstance(one, Printed) for one in printed)
    assert b"".join(one.data for one in printed).decode() == f"value {tmp_path}\n"


def test_a_command_that_cannot_start_is_a_failure_and_the_agent_continues(driver, tmp_path):
    failed = _command(driver, "pass", tmp_path / "missing")
    assert failed.pid == 0 and "missing" in failed.failure
    assert _command(driver, "pass", tmp_path, number=2).failure == ""
    assert _until(driver, Exited)[-1] == Exited(2, 0)


def test_a_command_that_is_ended_is_gone_when_that_is_reported(driver, tmp_path):
    code = "import time; print('runs', flush=True); time.sleep(1000)"
    started = _command(driver, code, tmp_path)
    assert isinstance(started, Started)
    _until(driver, Printed)
    driver.send(EndWorker(1, grace_s=PATIENCE_S))
    assert _until(driver, Ended)[-1].status == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(started.pid, 0)


def test_files_come_in_parts_and_only_from_the_agents_folder(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "CHUNK_BYTES", 4)
    (driver.folder / "file").write_bytes(b"0123456789")
    (tmp_path / "secret").write_text("secret")
    (driver.folder / "link").symlink_to(tmp_path / "secret")
    driver.send(Fetch(1, "file", 10))
    assert [driver.receive(PATIENCE_S) for _ in range(3)] == [
        Part(1, b"0123"), Part(1, b"4567"), Part(1, b"89", is_last=True),
    ]  # fmt: skip
    for path, limit, problem in (
        ("file", 9, "more than 9 bytes"), ("none", 9, os.strerror(errno.ENOENT)),
        ("../secret", 99, "not in the agent's folder"), ("link", 99, "not in the agent's folder"),
    ):  # fmt: skip
        driver.send(Fetch(2, path, limit))
        part = driver.receive(PATIENCE_S)
        assert part.is_last and part.data == b"" and problem in part.failure


def test_it_ends_when_the_driver_needs_it_no_longer_and_ends_what_it_runs(driver, tmp_path):
    started = _command(driver, "import time; time.sleep(1000)", tmp_path)
    driver.send(Leave("nothing is left to do"))
    driver.thread.join(PATIENCE_S)
    assert driver.ended == ["nothing is left to do"]
    with pytest.raises(ProcessLookupError):
        os.kill(started.pid, 0)


def test_it_fails_when_its_device_is_why_the_driver_ends_it(driver):
    driver.send(Leave("the device cuda:0 is gone", True))
    driver.thread.join(PATIENCE_S)
    (error,) = driver.ended
    assert isinstance(error, EnvironmentFailure) and "the device cuda:0 is gone" in str(error)


def test_a_message_that_has_no_place_there_ends_it(driver):
    driver.send(Challenge(b"again"))
    driver.thread.join(PATIENCE_S)
    (error,) = driver.ended
    assert isinstance(error, BadFrame) and "the unexpected message Challenge" in str(error)
