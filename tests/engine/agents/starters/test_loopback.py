from __future__ import annotations

import signal
import sys
import time

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import UnknownNameError
from gemmetry.engine.agents.starters import loopback
from gemmetry.engine.agents.starters.loopback import AgentProcess, AgentProcesses, _device
from gemmetry.engine.agents.starting import AgentRequest

PATIENCE_S = 30


def test_devices_count_from_that_of_the_plan(tmp_path):
    def devices(target):
        request = AgentRequest("a:1", tmp_path / "token", 2, target, tmp_path, {})
        return [_device(request, number) for number in range(2)]

    assert devices(Target(TargetKind.CUDA, "sm_90", 2)) == ["cuda:2", "cuda:3"]
    assert devices(Target(TargetKind.CPU)) == ["cpu", "cpu"]


def test_an_unknown_option_is_refused():
    with pytest.raises(UnknownNameError, match="option of the executor loopback"):
        loopback.STARTER.check({"devcies": "cuda:0"}, 1)


def test_agents_that_fail_are_reported_once_with_the_end_of_their_log(tmp_path):
    codes = ("import sys; print('no such device'); sys.exit(2)", "pass")
    started = [
        AgentProcess(name, [sys.executable, "-c", code], tmp_path / f"{name}.log")
        for name, code in zip(("bad", "good"), codes, strict=True)
    ]
    for one in started:
        one.process.wait(PATIENCE_S)
    agents = AgentProcesses(started)
    assert agents.problems() == ["the agent bad ended with status 2: no such device"]
    assert (agents.problems(), agents.running()) == ([], 0)


def test_an_agent_that_does_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(loopback, "END_S", 0.1)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True)"
    log = tmp_path / "log"
    agent = AgentProcess("a", [sys.executable, "-c", f"{code}; time.sleep(1000)"], log)
    ends = time.monotonic() + PATIENCE_S
    while not log.stat().st_size:
        assert time.monotonic() < ends
        time.sleep(0.01)
    agent.end()
    assert agent.process.returncode == -signal.SIGKILL
