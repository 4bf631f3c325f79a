"""Agents that know the token and fail later: their device vanishes, or they send what no agent
sends. The run closes their connection, and other agents do their work."""

from __future__ import annotations

import socket
import struct
from functools import partial

import pytest

from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Message
from gemmetry.engine.agents import fleet
from gemmetry.engine.agents.agent import _described, _welcomed
from gemmetry.engine.agents.link import Link
from gemmetry.engine.agents.messages import FRAME_BYTES, StartWorker, ToAgent, Welcome
from gemmetry.engine.workers import protocol
from gemmetry.engine.workers.protocol import ChannelClosed

PATIENCE_S = 60


def test_the_work_of_an_agent_whose_device_vanishes_goes_to_others(
    make_plan, run_plan, thread_starter
):
    starter = thread_starter(["null:0", "null:1", "null:2"])
    plan = make_plan(
        ("device_lost", "wrong"), sizes=(8,), options={"devices": 3}, executor="agents", agents=3
    )
    ran = run_plan(plan)
    assert ran.summary.failure == ""
    assert {record.configuration: record.outcome for record in ran.records} == {
        "default": Outcome.OK, "fast": Outcome.OK, "wrong": Outcome.WRONG,
        "device_lost": Outcome.CRASH,
    }  # fmt: skip
    assert "device lost twice" in ran["device_lost"].reason
    warned = [event.text for event in ran.of(Message) if "is gone" in event.text]
    assert len(warned) == 2 and warned[0].startswith("agent-")
    # Their hosts see a failure, with a status of its own.
    assert [error.exit_status for error in starter.errors] == [3, 3]
    assert all("the simulated device null is gone" in str(error) for error in starter.errors)
    assert sum("the driver ended this agent" in text for text in starter.reports) == 1


@pytest.fixture
def run_with_bad_agent(make_plan, run_plan, thread_starter, monkeypatch, tmp_path):
    """Runs a plan over an agent that misbehaves once it is to start a worker, and one that
    joins only then; the run, and how the connection of the first one ended."""

    def go(misbehave):
        starter = thread_starter([])
        ends = []

        def bad(options):
            link = Link(socket.create_connection((options.host, options.port)), ToAgent)
            welcome = _welcomed(link, options)
            link.trust()
            link.send(_described(welcome, options.device, tmp_path))
            while not isinstance(link.receive(PATIENCE_S), StartWorker):
                pass
            starter._run = original
            starter.add("good", "null:1")
            try:
                misbehave(link)
                while True:
                    link.receive(PATIENCE_S)
            except (ChannelClosed, TimeoutError) as error:
                ends.append(type(error))
            finally:
                link.close()

        original, starter._run = starter._run, bad
        start = starter.start

        def start_bad(request):
            start(request)
            starter.add("bad", "null:0")
            return starter

        monkeypatch.setattr(starter, "start", start_bad)
        ran = run_plan(make_plan(sizes=(8, 16), options={"devices": 2}, executor="agents"))
        return ran, ends

    return go


HALF = struct.pack("<I", 100) + b"half"


def _send(data, link):
    link._socket.sendall(data)


def _send_half_and_leave(link):
    link._socket.sendall(HALF)
    link.close()


@pytest.mark.parametrize(
    ("misbehave", "reason"),
    [
        (partial(_send, HALF), "it sent what no agent sends: 8 bytes of an incomplete frame"),
        # It ended, or broke where the driver was about to send something.
        (_send_half_and_leave, "its connection "),
        (
            partial(_send, struct.pack("<I", FRAME_BYTES + 1)),
            f"it sent what no agent sends: a frame of {FRAME_BYTES + 1} bytes",
        ),
        (partial(_send, struct.pack("<I", 4) + b"junk"), "it sent what no agent sends: a frame"),
    ],
    ids=["half a frame, then silence", "half a frame, then the end", "too long", "no message"],
)
def test_an_agent_that_sends_nonsense_is_left_and_others_do_its_work(
    run_with_bad_agent, monkeypatch, misbehave, reason
):
    monkeypatch.setattr(protocol, "FRAME_PAUSE_S", 2.0)
    monkeypatch.setattr(fleet, "Welcome", partial(Welcome, beat_s=0.2))
    ran, ends = run_with_bad_agent(misbehave)
    assert ran.summary.outcomes == {Outcome.OK: 4}
    assert {record.device for record in ran.records} == {"null:1"}
    texts = [event.text for event in ran.of(Message)]
    (lost,) = [text for text in texts if "the agent bad is lost" in text]
    assert reason in lost
    assert ends == [ChannelClosed], "the driver closes the connection"
