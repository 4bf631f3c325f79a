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


def test_right_replies_have_no_flaw():
    settings = RunSettings()
    assert flaw_of(opened(), WIRE, job_of(settings)) == ""
    failed = opened(verdict=None, failure=Failure("LaunchError", "no"))
    assert flaw_of(failed, WIRE, job_of(settings)) == ""
    assert flaw_of(opened(verdict=None, skip_reason="slow"), WIRE, job_of(settings)) == ""
    verified = msgspec.structs.replace(WIRE, verify=False)
    assert flaw_of(opened(verdict=None), verified, job_of(settings)) == ""
    tracing = RunSettings(trace=TraceSchedule())
    assert flaw_of(opened(trace=TRACE), WIRE, job_of(tracing)) == ""
    wrong = Verdict(status=Verification.FAILED, evidence_path="artifacts/failures/x")
    assert flaw_of(opened(verdict=wrong), WIRE, job_of(tracing)) == ""
    assert flaw_of(Sampled(7, ROUND, None), WIRE, JOB) == ""
    assert flaw_of(Sampled(7, None, Failure("LaunchError", "no")), WIRE, JOB) == ""
    check = CheckResult("after_timing", CheckOutcome.PASSED)
    assert flaw_of(Closed(7, check, None), WIRE, job_of(settings)) == ""
    nothing = Closed(7, None, None)
    assert flaw_of(nothing, WIRE, job_of(RunSettings(verify=False))) == ""
    assert flaw_of(nothing, WIRE, job_of(RunSettings(measure=False))) == ""
    assert flaw_of(Closed(7, None, Failure("LaunchError", "no")), WIRE, job_of(settings)) == ""


@pytest.mark.parametrize(
    ("reply", "settings"),
    [
        (opened(verdict=None), RunSettings()),
        (opened(), RunSettings(trace=TraceSchedule())),
        (
            opened(trace=dataclasses.replace(TRACE, folder="/etc")),
            RunSettings(trace=TraceSchedule()),
        ),
        (opened(verdict=dataclasses.replace(PASSED, evidence_path="/etc/x")), RunSettings()),
        (opened(verdict=dataclasses.replace(PASSED, evidence_path="a/../../x")), RunSettings()),
        (opened(verdict=dataclasses.replace(PASSED, evidence_path="a\0b")), RunSettings()),
        (opened(sample_s=-1.0), RunSettings()),
        (opened(sample_s=math.nan), RunSettings()),
    ],
)
def test_flaws_of_opening(reply, settings):
    assert flaw_of(reply, WIRE, job_of(settings)) != ""


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


def test_a_stage_that_is_not_of_opening_is_a_flaw():
    assert flaw_of(Entered(7, Stage.MEASURE), WIRE, JOB) == ""
    assert flaw_of(Entered(7, Stage.COMPILE), WIRE, JOB) == "the unexpected stage compile"


def test_flaws_of_what_is_both_or_neither():
    assert flaw_of(Sampled(7, None, None), WIRE, JOB) != ""
    assert flaw_of(Sampled(7, ROUND, Failure("x", "y")), WIRE, JOB) != ""
    check = CheckResult("after_timing", CheckOutcome.PASSED)
    assert "outside" in flaw_of(Closed(7, check, None, "../x"), WIRE, job_of(RunSettings()))


@pytest.mark.parametrize("joules", [-1.0, math.nan, math.inf])
def test_an_energy_has_to_be_a_number(joules):
    check = CheckResult("after_timing", CheckOutcome.PASSED)
    for taken in (
        EnergyTaken((EnergyWindow(joules, 2.0, 100, 0.01),)),
        EnergyTaken((EnergyWindow(1.0, 2.0, 100, 0.01),), idle_power_w=joules),
    ):
        closed = Closed(7, check, None, energy=taken)
        assert flaw_of(closed, WIRE, job_of(RunSettings())) == "an invalid energy"
    right = EnergyTaken((EnergyWindow(1.0, 2.0, 100, 0.01),), 90.0)
    assert flaw_of(Closed(7, check, None, energy=right), WIRE, job_of(RunSettings())) == ""


@pytest.mark.parametrize("check", [None, CheckResult("values", CheckOutcome.PASSED)])
def test_outputs_after_timing_have_to_be_judged(check):
    assert "after_timing" in flaw_of(Closed(7, check, None), WIRE, job_of(RunSettings()))


def verdict_of(checks):
    return opened(verdict=Verdict(status=Verification.PASSED, checks=checks))


def test_a_verdict_has_every_check_of_its_level():
    quick = RunSettings(verification_level="quick")
    right = dict.fromkeys(QUICK, "passed")
    assert flaw_of(verdict_of(right), WIRE, job_of(quick)) == ""
    assert "second_launch and" in flaw_of(verdict_of(right), WIRE, job_of(RunSettings()))
    assert flaw_of(verdict_of(STANDARD), WIRE, job_of(RunSettings())) == ""
    assert flaw_of(verdict_of({}), WIRE, job_of(quick)) == (
        "a verdict without a result of the check form and 4 others"
    )
    for name in QUICK:
        rest = {other: text for other, text in right.items() if other != name}
        assert f"the check {name}" in flaw_of(verdict_of(rest), WIRE, job_of(quick))
        for text in ("", "fine", "not applicable", "not applicable: ", "failed: it is wrong"):
            bad = verdict_of({**right, name: text})
            assert f"the check {name}" in flaw_of(bad, WIRE, job_of(quick)), text
        for text in ("passed: all but one", "warned: odd", "not applicable: no reference"):
            assert flaw_of(verdict_of({**right, name: text}), WIRE, job_of(quick)) == ""
    sums = {"freivalds" if name == "values" else name: "passed" for name in QUICK}
    assert flaw_of(verdict_of(sums), WIRE, job_of(quick)) == ""
    failed = Verdict(status=Verification.FAILED, checks={"form": "failed: no array"})
    assert flaw_of(opened(verdict=failed), WIRE, job_of(quick)) == ""


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


def test_an_incomplete_frame_is_reported(pair, monkeypatch):
    channel, theirs = pair
    theirs.sendall(frame(b"x" * 100)[:50])
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
    monkeypatch.setattr(protocol, "FRAME_PAUSE_S", 0.0)
    with pytest.raises(BadFrame, match="50 bytes of an incomplete frame"):
        channel.receive(0.01)


def test_a_frame_cut_short_by_the_end_is_the_end(pair):
    channel, theirs = pair
    theirs.sendall(frame(b"x" * 100)[:50])
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
