from __future__ import annotations

import struct
import threading

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.engine.agents.agent import AgentOptions, _served, run_agent
from gemmetry.engine.agents.messages import FRAME_BYTES, Welcome
from gemmetry.engine.agents.server import AgentServer

TOKEN = b"0123456789abcdef0123456789abcdef"
PATIENCE_S = 30


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack("<I", FRAME_BYTES + 1), f"a frame of {FRAME_BYTES + 1} bytes"),
        (struct.pack("<I", 4) + b"junk", "a frame of 4 bytes that is not a message"),
        (b"", "was lost"),
    ],
    ids=["too long", "no message", "the end"],
)
def test_a_driver_that_sends_nonsense_or_vanishes_is_left(sent, reason):
    welcome = Welcome(b"", "", Target(TargetKind.NULL), (("null", {}),))
    listener = AgentServer("127.0.0.1", 0, TOKEN, welcome, print)
    errors = []

    def serve():
        options = AgentOptions("127.0.0.1", listener.address.port, TOKEN, name="a", connect_s=0)
        try:
            run_agent(options, print)
        except EnvironmentFailure as error:
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    found = []
    try:
        while not found:
            assert thread.is_alive()
            found = listener.arrived()
        link = found[0]._link
        if sent:
            link._socket.sendall(sent)
        else:
            link.close()
        thread.join(PATIENCE_S)
    finally:
        for one in found:
            one.close("the test is over")
        listener.close("the test is over")
    (error,) = errors
    assert "the connection to the driver 127.0.0.1" in error.message and reason in error.message
    assert "start an agent again" in error.hint


def _gpu(index):
    return Target(TargetKind.CUDA, "sm_90", index)


def test_an_agent_serves_the_device_that_is_named_or_the_first_of_the_kind():
    offered = [_gpu(None), _gpu(1), _gpu(0), Target(TargetKind.NULL, "", 0)]
    assert _served(_gpu(3), "", offered) == _gpu(0)
    assert _served(_gpu(0), "cuda:1", offered) == _gpu(1)
    assert _served(Target(TargetKind.CPU), "", offered) == Target(TargetKind.CPU)
    with pytest.raises(RequestError, match=r"no device cuda:2 .*: cuda:0, cuda:1, null:0$"):
        _served(_gpu(0), "cuda:2", offered)
    with pytest.raises(RequestError, match=r"no hip device .* devices there: none$"):
        _served(Target(TargetKind.HIP, "gfx942", 0), "", [Target(TargetKind.HIP, "gfx942", None)])
