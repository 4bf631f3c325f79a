from __future__ import annotations

import socket
import struct
import threading
import time

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.engine.agents import agent, server
from gemmetry.engine.agents.agent import AgentOptions, run_agent
from gemmetry.engine.agents.messages import Welcome
from gemmetry.engine.agents.server import AgentServer, address_of

TOKEN = b"0123456789abcdef0123456789abcdef"
PATIENCE_S = 30


@pytest.fixture
def listening(monkeypatch):
    """A listener for agents of the null provider's device, and what it warns of."""
    warned = []
    welcome = Welcome(b"", "", Target(TargetKind.NULL), (("null", {}),))
    listener = AgentServer("127.0.0.1", 0, TOKEN, welcome, warned.append)
    listener.warned = warned
    yield listener
    listener.close("the test is over")


def _options(listener, token=TOKEN, **more):
    return AgentOptions("127.0.0.1", listener.address.port, token, name="a", connect_s=0, **more)


def _wait_for(condition):
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_an_agent_with_the_token_is_taken_and_ends_when_it_is_no_longer_needed(listening):
    reports = []
    thread = threading.Thread(target=run_agent, args=(_options(listening), reports.append))
    thread.start()
    found = []
    _wait_for(lambda: found.extend(listening.arrived()) or found)
    assert found[0].described.target.device == "null:0"
    found[0].close("nothing is left to do")
    thread.join(PATIENCE_S)
    assert reports[-1].endswith("nothing is left to do")
    assert listening.warned == []


def test_a_wrong_token_is_refused_and_reported_once(listening):
    for _ in range(2):
        with pytest.raises(RequestError, match="does not know the token"):
            run_agent(_options(listening, b"f" * 32), print)
    _wait_for(lambda: listening.warned)
    assert len(listening.warned) == 1
    assert listening.arrived() == []


def test_a_driver_without_the_token_is_not_served(listening, monkeypatch):
    monkeypatch.setattr(server, "is_proof", lambda _found, _expected: True)
    with pytest.raises(RequestError, match="does not know the token, so that this agent"):
        run_agent(_options(listening, b"f" * 32), print)


def test_another_version_is_refused_by_both_with_both_versions(listening, monkeypatch):
    monkeypatch.setattr(agent, "own_version", lambda: "0.0.1")
    with pytest.raises(RequestError, match=r"0\.0\.1"):
        run_agent(_options(listening), print)
    _wait_for(lambda: listening.warned)
    assert "it runs gemmetry 0.0.1 and the driver" in listening.warned[0]


def test_an_agent_without_the_device_is_refused_with_what_it_has(listening):
    with pytest.raises(RequestError, match="no device null:5"):
        run_agent(_options(listening, device="null:5"), print)
    _wait_for(lambda: listening.warned)
    assert "devices there: null:0" in listening.warned[0]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100, "sent what no agent sends"),
        (struct.pack("<I", 1 << 30), "sent what no agent sends"),
        (struct.pack("<I", 100) + b"half", "left before"),
    ],
)
def test_what_is_no_agent_is_refused_before_it_can_cost_anything(listening, sent, reason):
    with socket.create_connection(("127.0.0.1", listening.address.port)) as connection:
        connection.sendall(sent)
        if "left" not in reason:
            connection.settimeout(PATIENCE_S)
            while connection.recv(1 << 16):
                pass
    _wait_for(lambda: listening.warned)
    assert reason in listening.warned[0]


def test_a_silent_connection_is_closed_in_time(listening, monkeypatch):
    monkeypatch.setattr(server, "HANDSHAKE_S", 0.05)
    with socket.create_connection(("127.0.0.1", listening.address.port)):
        _wait_for(lambda: listening.warned)
    assert "did not prove knowledge of the token in time" in listening.warned[0]


def test_a_driver_that_is_not_there_is_named():
    with pytest.raises(EnvironmentFailure, match="no driver listens"):
        run_agent(AgentOptions("127.0.0.1", 9, TOKEN, connect_s=0), print)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("node1", ("node1", 0)), ("node1:77", ("node1", 77)), ("[::1]:77", ("::1", 77)),
     ("::1", ("::1", 0))],
)  # fmt: skip
def test_addresses(text, expected):
    assert address_of(text) == expected


@pytest.mark.parametrize("text", ["node1:x", "node1:70000", ":77"])
def test_addresses_that_are_none(text):
    with pytest.raises(RequestError, match="cannot read the address"):
        address_of(text)
