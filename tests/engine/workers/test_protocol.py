"""Messages between parent and worker: how they travel, what is no message, which ones lie."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import socket
import struct
import threading

import msgspec
import pytest

from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.domain.errors import Stage, Verification
from gemmetry.domain.record import BuildFacts, TraceFacts, Verdict
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.engine import protocol
from gemmetry.engine.candidates import job_of
from gemmetry.engine.protocol import (
    MAX_FRAME_BYTES,
    Answered,
    BadFrame,
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
    flaw_of,
)
from gemmetry.measurement.energy import EnergyTaken, EnergyWindow
from gemmetry.measurement.stopping import Round
from gemmetry.verification.checks import CheckOutcome, CheckResult
from gemmetry.verification.protocol import CHECKS

X = Configuration("x", {"a": 1, "b": True})
WIRE = WireDispatch(7, "matmul_1x1x1_f32t_f32t_f32t", X, trace_folder="/e/t")
JOB = job_of(RunSettings())
ROUND = Round(samples_ns=(1.0, 2.5), method="events", telemetry={"power_w": 1.0})
QUICK = ("form", "written", "inputs_unchanged", "red_zones", "values")
STANDARD = dict.fromkeys(("form", *(check.name for check in CHECKS)), "passed")
PASSED = Verdict(status=Verification.PASSED, checks=STANDARD)
TRACE = TraceFacts(
    folder="/e/t", files=(), operators=1, kernels=0, input_sha256={}, output_sha256=""
)
CHECK = CheckResult("after_timing", CheckOutcome.PASSED)
REFUSED = Failure("LaunchError", "no")
TRACING = {"trace": TraceSchedule()}


def opened(verdict=PASSED, failure=None, skip_reason="", **more):
    return Opened(7, BuildFacts(), verdict, failure, skip_reason, 9, **more)


def evidence_in(path):
    return opened(dataclasses.replace(PASSED, evidence_path=path))


def energy(joules, idle_power_w=None):
    window = EnergyWindow(joules, 2.0, 100, 0.01)
    return Closed(7, CHECK, None, energy=EnergyTaken((window,), idle_power_w=idle_power_w))


RIGHT = [
    (opened(), {}),
    (opened(None, REFUSED), {}),
    (opened(None, skip_reason="slow"), {}),
    (opened(trace=TRACE), TRACING),
    (opened(Verdict(status=Verification.FAILED, evidence_path="a/b")), TRACING),
    (Sampled(7, ROUND, None), {}),
    (Sampled(7, None, REFUSED), {}),
    (Closed(7, CHECK, None), {}),
    (Closed(7, None, None), {"verify": False}),
    (Closed(7, None, None), {"measure": False}),
    (Closed(7, None, REFUSED), {}),
    (Entered(7, Stage.MEASURE), {}),
    (energy(1.0, 90.0), {}),
]
REPLIES = [
    *(reply for reply, _ in RIGHT), Ready(), Ready(REFUSED), Answered(),
    CompileDone(7, BuildFacts(registers=3), None),
]  # fmt: skip
REQUESTS = [
    Hello("null", {"o": [1]}, Target(TargetKind.CUDA, "sm_90", 1), RunSettings(), "g", "f", 2),
    Compile((WIRE,)),
    Open((WIRE, WIRE)),
    Sample(((1, 10), (2, 20))),
    Close((1, 2)),
    Shutdown(),
]


@pytest.fixture
def sockets():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def parent(sockets):
    return Channel(sockets[0], Reply)


@pytest.fixture
def worker(sockets):
    return Channel(sockets[1], Request)


def test_messages_arrive_as_they_were_sent(parent, worker):
    for message in REQUESTS:
        parent.send(message)
        assert worker.receive(1.0) == message
    for message in REPLIES:
        worker.send(message)
        assert parent.receive(1.0) == message


def test_frames_of_any_size_keep_their_order(parent, worker):
    rounds = [Round(samples_ns=(float(n),) * (n * 20_000), method="x") for n in range(1, 6)]
    messages = [Sampled(number, one, None) for number, one in enumerate(rounds)]
    thread = threading.Thread(target=lambda: [worker.send(message) for message in messages])
    thread.start()
    assert [parent.receive(10.0) for _ in messages] == messages
    thread.join()


def test_a_late_message_still_comes_and_a_closed_end_is_reported(parent, worker):
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


def test_right_replies_have_no_flaw():
    for reply, settings in RIGHT:
        assert flaw_of(reply, WIRE, job_of(RunSettings(**settings))) == "", reply
    verified = msgspec.structs.replace(WIRE, verify=False)
    assert flaw_of(opened(None), verified, JOB) == ""


@pytest.mark.parametrize(("reply", "settings", "words"), [
    (opened(None), {}, ""),
    (opened(), TRACING, ""),
    (opened(trace=dataclasses.replace(TRACE, folder="/etc")), TRACING, ""),
    (evidence_in("/etc/x"), {}, ""),
    (evidence_in("a/../../x"), {}, ""),
    (evidence_in("a\0b"), {}, ""),
    (opened(sample_s=-1.0), {}, ""),
    (opened(sample_s=math.nan), {}, ""),
    (Entered(7, Stage.COMPILE), {}, "compile"),
    (Sampled(7, None, None), {}, ""),
    (Sampled(7, ROUND, REFUSED), {}, ""),
    (Closed(7, CHECK, None, "../x"), {}, "outside"),
    (Closed(7, None, None), {}, "after_timing"),
    (Closed(7, CheckResult("values", CheckOutcome.PASSED), None), {}, "after_timing"),
    *((energy(joules), {}, "energy") for joules in (-1.0, math.nan, math.inf)),
    (energy(1.0, math.nan), {}, "energy"),
])  # fmt: skip
def test_flaws_of_replies(reply, settings, words):
    found = flaw_of(reply, WIRE, job_of(RunSettings(**settings)))
    assert found
    assert words in found


@pytest.mark.parametrize(("field", "value"), [
    *(("samples_ns", bad) for bad in ((), (1.0, math.nan), (1.0, math.inf), (-1.0,), (1e300,))),
    ("seconds", math.nan), ("seconds", -1.0), ("renewal_s", -1.0),
    ("first_launch_ns", math.inf), ("launches_per_sample", 0), ("input_sets", -3),
    ("bytes_per_set", 2**63), ("telemetry", {"power_w": math.nan}),
])  # fmt: skip
def test_flaws_of_samples(field, value):
    taken = dataclasses.replace(ROUND, **{field: value})
    assert flaw_of(Sampled(7, taken, None), WIRE, JOB) != ""


def test_a_verdict_has_every_check_of_its_level():
    right = dict.fromkeys(QUICK, "passed")

    def flaw(checks, level="quick"):
        reply = opened(Verdict(status=Verification.PASSED, checks=checks))
        return flaw_of(reply, WIRE, job_of(RunSettings(verification_level=level)))

    assert flaw(right) == ""
    assert "second_launch and" in flaw(right, "standard")
    assert "form and 4 others" in flaw({})
    for name in QUICK:
        rest = {other: text for other, text in right.items() if other != name}
        assert f"the check {name}" in flaw(rest)
        for text in ("", "fine", "not applicable", "not applicable: ", "failed: it is wrong"):
            assert f"the check {name}" in flaw({**right, name: text}), text
        for text in ("passed: all but one", "warned: odd", "not applicable: no reference"):
            assert flaw({**right, name: text}) == ""
    assert flaw({"freivalds" if name == "values" else name: "passed" for name in QUICK}) == ""
    failed = Verdict(status=Verification.FAILED, checks={"form": "failed: no array"})
    assert flaw_of(opened(failed), WIRE, JOB) == ""


# -- what is no frame --------------------------------------------------------------------------


def frame(payload: bytes) -> bytes:
    return struct.pack("<I", len(payload)) + payload


@pytest.mark.parametrize("sent", [
    b"hello, this is the kernel speaking",
    struct.pack("<I", MAX_FRAME_BYTES + 1),
    frame(b""),
    frame(b"\xff\xfe\xfd"),
    frame(msgspec.msgpack.encode(["Entered", 7])),
    frame(msgspec.msgpack.encode(["Entered", "seven", "build"])),
    frame(msgspec.msgpack.encode(["Entered", 7, "no such stage"])),
    frame(msgspec.msgpack.encode(["NoSuchFrame", 7])),
    frame(msgspec.msgpack.encode(["Answered"])[:-1]),
    frame(b"\x91" * 100_000),
    frame(b"\x92\xa8Answered\xdd\xff\xff\xff\xff"),
    frame(b"\x94\xa7Entered\xa2\xff\xff\x00"),
])  # fmt: skip
def test_bytes_that_are_not_a_frame_are_reported(parent, sockets, sent):
    sockets[1].sendall(sent)
    with pytest.raises(BadFrame):
        parent.receive(1.0)


def test_an_incomplete_frame_is_reported_and_a_cut_one_is_the_end(parent, sockets, monkeypatch):
    sockets[1].sendall(frame(b"x" * 100)[:50])
    with pytest.raises(TimeoutError):
        parent.receive(0.01)
    with monkeypatch.context() as patch, pytest.raises(BadFrame, match="50 bytes"):
        patch.setattr(protocol, "FRAME_PAUSE_S", 0.0)
        parent.receive(0.01)
    sockets[1].shutdown(socket.SHUT_RDWR)
    with pytest.raises(ChannelClosed):
        parent.receive(1.0)


def test_random_bytes_and_spoiled_frames_are_messages_or_errors(some_replies):
    """Whatever comes, reading ends in a message or in one of three exceptions."""
    chance = random.Random(1)
    replies = itertools.islice(some_replies(random.Random(2)), 60)
    right = [msgspec.msgpack.encode(reply) for reply in replies]
    ends = dict.fromkeys(("message", "bad", "closed"), 0)
    for _ in range(1500):
        payload = bytearray(chance.choice(right))
        match chance.randrange(4):
            case 0:
                payload = bytearray(chance.randbytes(chance.randrange(60)))
            case 1:
                for _ in range(chance.randint(1, 6)):
                    payload[chance.randrange(len(payload))] = chance.randrange(256)
            case 2:
                del payload[chance.randrange(len(payload)) :]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(frame(payload) if chance.random() < 0.8 else payload)
            theirs.close()
            channel = Channel(ours, Reply)
            try:
                while True:
                    assert isinstance(channel.receive(5.0), protocol.Frame)
                    ends["message"] += 1
            except BadFrame:
                ends["bad"] += 1
            except ChannelClosed:
                ends["closed"] += 1
    assert min(ends.values()) > 100, ends
