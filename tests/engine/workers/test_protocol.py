from __future__ import annotations

import socket
import threading

import pytest

from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.domain.errors import Stage, Verification
from gemmetry.domain.record import BuildFacts, Verdict
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.protocol import (
    Answered,
    Channel,
    ChannelClosed,
    Close,
    Closed,
    Compile,
    CompileDone,
    Entered,
    Failure,
    Hello,
    Open,
    Opened,
    Ready,
    Reply,
    Request,
    Sample,
    Sampled,
    Shutdown,
    WireDispatch,
)
from gemmetry.measurement.stopping import Round
from gemmetry.verification.checks import CheckOutcome, CheckResult

WIRE = WireDispatch(7, "matmul_1x1x1_f32t_f32t_f32t", Configuration("x", {"a": 1, "b": True}))
REQUESTS = [
    Hello("null", {"o": [1]}, Target(TargetKind.CUDA, "sm_90", 1), RunSettings(), "g", "f", 2),
    Compile((WIRE,)),
    Open((WIRE, WIRE)),
    Sample(((1, 10), (2, 20))),
    Close((1, 2)),
    Shutdown(),
]  # fmt: skip
REPLIES = [
    Ready(),
    Ready(Failure("UnsupportedError", "no")),
    Entered(7, Stage.VERIFY),
    CompileDone(7, BuildFacts(registers=3), None),
    Opened(7, BuildFacts(), Verdict(status=Verification.PASSED, checks={"a": "b"}), None, "", 9),
    Sampled(7, Round(samples_ns=(1.0, 2.5), method="events", telemetry={"x": 1.0}), None),
    Closed(7, CheckResult("after_timing", CheckOutcome.FAILED, "bad"), None),
    Answered(),
]


@pytest.fixture
def pair():
    a, b = socket.socketpair()
    ends = Channel(a, Reply), Channel(b, Request)
    yield ends
    for end in ends:
        end.close()


@pytest.mark.parametrize("message", [*REQUESTS, *REPLIES], ids=lambda m: type(m).__name__)
def test_messages_arrive_as_they_were_sent(pair, message):
    sender, receiver = pair if message in REQUESTS else reversed(pair)
    sender.send(message)
    assert receiver.receive(1.0) == message


def test_frames_of_any_size_keep_their_order(pair):
    parent, worker = pair
    rounds = [Round(samples_ns=(float(n),) * (n * 20_000), method="x") for n in range(1, 6)]

    def send():
        for number, one in enumerate(rounds):
            worker.send(Sampled(number, one, None))

    thread = threading.Thread(target=send)
    thread.start()
    received = [parent.receive(10.0) for _ in rounds]
    thread.join()
    assert [one.round for one in received] == rounds


def test_a_late_message_still_comes_and_a_closed_end_is_reported(pair):
    parent, worker = pair
    with pytest.raises(TimeoutError):
        parent.receive(0.01)
    worker.send(Answered())
    assert parent.receive(1.0) == Answered()
    parent.send(Shutdown())
    worker.close()  # which has not read the request, so that the connection is reset
    with pytest.raises(ChannelClosed):
        parent.receive(1.0)
    with pytest.raises(ChannelClosed):
        for _ in range(100):
            parent.send(Shutdown())
