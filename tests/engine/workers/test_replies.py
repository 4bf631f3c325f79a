from __future__ import annotations

import dataclasses
import math
import random
import socket
import struct

import msgspec
import pytest

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.errors import Stage, Verification
from gemmetry.domain.record import BuildFacts, TraceFacts, Verdict
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.engine import protocol
from gemmetry.engine.candidates import job_of
from gemmetry.engine.protocol import (
    MAX_FRAME_BYTES,
    BadFrame,
    Channel,
    ChannelClosed,
    Closed,
    Entered,
    Failure,
    Opened,
    Reply,
    Sampled,
    WireDispatch,
    flaw_of,
)
from gemmetry.measurement.energy import EnergyTaken, EnergyWindow
from gemmetry.measurement.stopping import Round
from gemmetry.verification.checks import CheckOutcome, CheckResult
from gemmetry.verification.protocol import CHECKS

WIRE = WireDispatch(7, "matmul_1x1x1_f32t_f32t_f32t", Configuration("x"), trace_folder="/e/t")
JOB = job_of(RunSettings())
ROUND = Round(samples_ns=(1.0, 2.5), method="events", telemetry={"power_w": 1.0})
QUICK = ("form", "written", "inputs_unchanged", "red_zones", "values")
STANDARD = dict.fromkeys(("form", *(check.name for check in CHECKS)), "passed")
PASSED = Verdict(status=Verification.PASSED, checks=STANDARD)
TRACE = TraceFacts(
    folder="/e/t", files=(), operators=1, kernels=0, input_sha256={}, output_sha256=""
)


def opened(**changes):
    values = {
        "id": 7, "facts": BuildFacts(), "verdict": PASSED, "failure": None, "skip_reason": "",
        "free_memory_bytes": 9,
    }  # fmt: skip
    return Opened(**{**values, **changes})


CHECK = CheckResult("after_timing", CheckOutcome.PASSED)
REFUSED = Failure("LaunchError", "no")
TRACING = {"trace": TraceSchedule()}


def evidence_in(path):
    return opened(verdict=dataclasses.replace(PASSED, evidence_path=path))


def energy(joules, idle_power_w=None):
    window = EnergyWindow(joules, 2.0, 100, 0.01)
    return Closed(7, CHECK, None, energy=EnergyTaken((window,), idle_power_w=idle_power_w))


@pytest.mark.parametrize(
    ("reply", "settings"),
    [
        (opened(), {}),
        (opened(verdict=None, failure=REFUSED), {}),
        (opened(verdict=None, skip_reason="slow"), {}),
        (opened(trace=TRACE), TRACING),
        (opened(verdict=Verdict(status=Verification.FAILED, evidence_path="a/b")), TRACING),
        (Sampled(7, ROUND, None), {}),
        (Sampled(7, None, REFUSED), {}),
        (Closed(7, CHECK, None), {}),
        (Closed(7, None, None), {"verify": False}),
        (Closed(7, None, None), {"measure": False}),
        (Closed(7, None, REFUSED), {}),
        (Entered(7, Stage.MEASURE), {}),
        (energy(1.0, 90.0), {}),
    ],
)
def test_right_replies_have_no_flaw(reply, settings):
    assert flaw_of(reply, WIRE, job_of(RunSettings(**settings))) == ""
    verified = msgspec.structs.replace(WIRE, verify=False)
    assert flaw_of(opened(verdict=None), verified, JOB) == ""


@pytest.mark.parametrize(
    ("reply", "settings", "words"),
    [
        (opened(verdict=None), {}, ""),
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
    ],
)
def test_flaws_of_replies(reply, settings, words):
    found = flaw_of(reply, WIRE, job_of(RunSettings(**settings)))
    assert found
    assert words in found


@pytest.mark.parametrize(
    "changes",
    [
        {"samples_ns": ()},
        {"samples_ns": (1.0, math.nan)},
        {"samples_ns": (1.0, math.inf)},
        {"samples_ns": (-1.0,)},
        {"samples_ns": (1e300,)},
        {"seconds": math.nan},
        {"seconds": -1.0},
        {"renewal_s": -1.0},
        {"first_launch_ns": math.inf},
        {"launches_per_sample": 0},
        {"input_sets": -3},
        {"bytes_per_set": 2**63},
        {"telemetry": {"power_w": math.nan}},
    ],
)
def test_flaws_of_samples(changes):
    assert flaw_of(Sampled(7, dataclasses.replace(ROUND, **changes), None), WIRE, JOB) != ""


def verdict_of(checks):
    return opened(verdict=Verdict(status=Verification.PASSED, checks=checks))


def test_a_verdict_has_every_check_of_its_level():
    quick = job_of(RunSettings(verification_level="quick"))
    right = dict.fromkeys(QUICK, "passed")
    assert flaw_of(verdict_of(right), WIRE, quick) == ""
    assert "second_launch and" in flaw_of(verdict_of(right), WIRE, JOB)
    assert "form and 4 others" in flaw_of(verdict_of({}), WIRE, quick)
    for name in QUICK:
        rest = {other: text for other, text in right.items() if other != name}
        assert f"the check {name}" in flaw_of(verdict_of(rest), WIRE, quick)
        for text in ("", "fine", "not applicable", "not applicable: ", "failed: it is wrong"):
            bad = verdict_of({**right, name: text})
            assert f"the check {name}" in flaw_of(bad, WIRE, quick), text
        for text in ("passed: all but one", "warned: odd", "not applicable: no reference"):
            assert flaw_of(verdict_of({**right, name: text}), WIRE, quick) == ""
    sums = {"freivalds" if name == "values" else name: "passed" for name in QUICK}
    assert flaw_of(verdict_of(sums), WIRE, quick) == ""
    failed = Verdict(status=Verification.FAILED, checks={"form": "failed: no array"})
    assert flaw_of(opened(verdict=failed), WIRE, quick) == ""


# -- what is no frame --------------------------------------------------------------------------


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    channel = Channel(ours, Reply)
    yield channel, theirs
    channel.close()
    theirs.close()


def frame(payload: bytes) -> bytes:
    return struct.pack("<I", len(payload)) + payload


@pytest.mark.parametrize(
    "sent",
    [
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
    ],
)
def test_bytes_that_are_not_a_frame_are_reported(pair, sent):
    channel, theirs = pair
    theirs.sendall(sent)
    with pytest.raises(BadFrame):
        channel.receive(1.0)


def test_an_incomplete_frame_is_reported_and_is_the_end_where_it_is_cut_short(pair, monkeypatch):
    channel, theirs = pair
    theirs.sendall(frame(b"x" * 100)[:50])
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
    with monkeypatch.context() as patch, pytest.raises(BadFrame, match="50 bytes"):
        patch.setattr(protocol, "FRAME_PAUSE_S", 0.0)
        channel.receive(0.01)
    theirs.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ChannelClosed):
        channel.receive(1.0)


def test_random_bytes_and_spoiled_frames_are_messages_or_errors(some_replies):
    """Whatever comes, reading ends in a message or in one of three exceptions."""
    chance = random.Random(1)
    right = [msgspec.msgpack.encode(reply) for reply in some_replies(random.Random(2), 60)]
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
        sent = frame(bytes(payload)) if chance.random() < 0.8 else bytes(payload)
        ours, theirs = socket.socketpair()
        channel = Channel(ours, Reply)
        theirs.sendall(sent)
        theirs.close()
        try:
            while True:
                assert isinstance(channel.receive(5.0), protocol.Frame)
                ends["message"] += 1
        except BadFrame:
            ends["bad"] += 1
        except ChannelClosed:
            ends["closed"] += 1
        channel.close()
    assert min(ends.values()) > 100, ends
