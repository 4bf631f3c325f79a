from __future__ import annotations

import socket
import threading
import time

import pytest

from gemmetry.engine.agents import link as module
from gemmetry.engine.agents.link import Link
from gemmetry.engine.agents.messages import FIRST_FRAME_BYTES, Beat, Passed, ToDriver
from gemmetry.engine.workers.protocol import BadFrame, ChannelClosed

PATIENCE_S = 30


@pytest.fixture
def links():
    """Both ends of a connection."""
    ends = [Link(one, ToDriver) for one in socket.socketpair()]
    yield ends
    for one in ends:
        one.close()


def test_long_frames_are_read_only_from_a_side_that_is_trusted(links):
    sender, receiver = links
    long = Passed(1, b"x" * FIRST_FRAME_BYTES)
    sender.send(long)
    with pytest.raises(BadFrame, match=f"more than {FIRST_FRAME_BYTES}"):
        receiver.receive(PATIENCE_S)
    receiver.trust()
    assert receiver.receive(PATIENCE_S) == long


def test_frames_of_several_threads_do_not_mix(links):
    sender, receiver = links
    receiver.trust()
    frames = [Passed(number, bytes([number]) * (3 << 20)) for number in range(4)]
    threads = [threading.Thread(target=sender.send, args=(one,)) for one in frames]
    for thread in threads:
        thread.start()
    received = [receiver.receive(PATIENCE_S) for _ in frames]
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(received, key=lambda one: one.worker) == frames


def test_a_side_that_takes_nothing_is_lost(links, monkeypatch):
    monkeypatch.setattr(module, "SEND_S", 0.05)
    sender, _ = links
    with pytest.raises(ChannelClosed):
        sender.send(Passed(1, b"x" * (16 << 20)))


def test_closing_ends_the_wait_of_another_thread(links):
    receiver = links[0]
    ended = []

    def receive():
        try:
            receiver.receive(PATIENCE_S)
        except ChannelClosed as error:
            ended.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    time.sleep(0.05)
    receiver.close()
    thread.join(PATIENCE_S)
    assert ended


def test_a_beat_is_sent_only_after_silence(links):
    sender, receiver = links
    sender.send(Passed(1, b""))
    sender.send_if_silent(Beat(), 60.0)
    sender.send_if_silent(Beat(), 0.0)
    assert isinstance(receiver.receive(PATIENCE_S), Passed)
    assert isinstance(receiver.receive(PATIENCE_S), Beat)
    with pytest.raises(TimeoutError):
        receiver.receive(0)
