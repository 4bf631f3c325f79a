"""The driver's side of one agent, whose other end the test holds."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from gemmetry.engine.agents import remote
from gemmetry.engine.agents.executor import RemoteExecutor
from gemmetry.engine.agents.link import Link
from gemmetry.engine.agents.messages import (
    Described,
    EndWorker,
    Fetch,
    Leave,
    Part,
    Passed,
    Printed,
    Started,
    StartWorker,
    ToAgent,
    ToDriver,
)
from gemmetry.engine.agents.remote import AgentLostError, RemoteAgent
from gemmetry.engine.workers.local import WorkerStart
from gemmetry.engine.workers.protocol import BadFrame, Closed

PATIENCE_S = 30


@pytest.fixture
def other_end():
    """What the agent would hold, and the agent for the driver."""
    mine, drivers = socket.socketpair()
    theirs = Link(drivers, ToDriver)
    theirs.trust()
    link = Link(mine, ToAgent)
    link.trust()
    link.agent = RemoteAgent(theirs, "a", Described(folder="/there"), beat_s=60.0, lost_s=60.0)
    yield link
    link.agent.close("the test is over")
    link.close()


@pytest.fixture
def start(other_end, tmp_path):
    """Has the driver start a worker: its channel and its process."""

    def go():
        executor = RemoteExecutor(other_end.agent, tmp_path / "generated", tmp_path / "failures")
        started = executor.start(WorkerStart(tmp_path / "log", tmp_path, {}, {}))
        assert isinstance(other_end.receive(PATIENCE_S), StartWorker)
        return started

    return go


def test_a_worker_whose_frame_is_too_long_does_not_cost_its_agent(other_end, start):
    channel, process = start()
    other_end.send(Started(1, 77))
    other_end.send(Passed(1, struct.pack("<I", 1 << 30)))
    with pytest.raises(BadFrame, match="a frame of 1073741824 bytes"):
        channel.receive(PATIENCE_S)
    assert (process.pid, other_end.agent.lost) == (77, "")


def test_a_worker_that_floods_its_channel_is_cut_off(other_end, start, monkeypatch):
    monkeypatch.setattr(remote, "MOST_UNREAD_BYTES", 100)
    channel, _ = start()
    for _ in range(2):
        other_end.send(Passed(1, b"x" * 60))
    other_end.send(Passed(1, b"never read"))
    worker = channel._worker
    assert other_end.agent.wait_for(lambda: worker.has_closed, PATIENCE_S)
    read = [other_end.agent.read(worker, PATIENCE_S) for _ in range(3)]
    assert [len(one) for one in read] == [60, 60, 0]


def test_what_a_worker_prints_is_in_its_log(other_end, start, tmp_path):
    start()
    other_end.send(Printed(1, b"first\n"))
    other_end.send(Printed(1, b"second\n"))
    other_end.send(Started(1, 1))
    other_end.agent.wait_for(lambda: other_end.agent._workers[1].pid, PATIENCE_S)
    assert (tmp_path / "log").read_bytes() == b"first\nsecond\n"


def test_a_worker_that_cannot_be_started_is_the_loss_of_the_agent(other_end, start):
    _, process = start()
    other_end.send(Started(1, 0, "no space left"))
    with pytest.raises(AgentLostError, match="the agent a cannot start a worker: no space left"):
        process.wait(PATIENCE_S)


def test_the_loss_of_the_connection_ends_every_wait(other_end, start):
    channel, process = start()
    other_end.close()
    for wait in (channel.receive, process.wait):
        with pytest.raises(AgentLostError, match="the agent a is lost: its connection ended"):
            wait(PATIENCE_S)
    process.end()  # nothing remains to be ended


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([Part(1, b"", is_last=True, failure="x cannot be read: gone")], "cannot be read: gone"),
        ([Part(1, b"12345"), Part(1, b"678901")], "more than 10 bytes"),
    ],
)
def test_a_file_that_fails_or_is_longer_than_agreed_is_refused(other_end, parts, problem):
    found = other_end.agent.fetch("x", 10)

    def answer():
        assert isinstance(other_end.receive(PATIENCE_S), Fetch)
        for part in parts:
            other_end.send(part)

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(OSError, match=problem):
        list(found)
    thread.join(PATIENCE_S)


def test_evidence_outside_of_its_folder_is_not_fetched(other_end, start):
    channel, _ = start()
    data = channel._framed(Closed(1, None, None, "failures/../../secret"))
    other_end.send(Passed(1, data))
    assert channel.receive(PATIENCE_S).evidence_path == "failures/../../secret"
    other_end.agent.send(EndWorker(1))
    assert isinstance(other_end.receive(PATIENCE_S), EndWorker), "no Fetch before it"


def test_an_agent_that_is_closed_learns_why(other_end):
    other_end.agent.close("nothing is left to do")
    assert other_end.receive(PATIENCE_S) == Leave("nothing is left to do")


def test_an_agent_that_is_closed_because_of_its_device_learns_that(other_end):
    other_end.agent.close("its device is gone", is_fault=True)
    assert other_end.receive(PATIENCE_S) == Leave("its device is gone", is_fault=True)
