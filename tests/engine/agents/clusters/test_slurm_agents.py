"""Agents on a Slurm cluster of two nodes that run on this host."""

from __future__ import annotations

import os
import signal

import pytest

from gemmetry.domain.dispatch import parse_target
from gemmetry.domain.errors import EnvironmentFailure
from gemmetry.engine.agents.starting import AgentRequest, load_starter

pytestmark = pytest.mark.cluster


@pytest.fixture
def request_for(tmp_path, stub):
    """Requests whose folder has a name that both shells and Slurm read in their own way."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    folder = tmp_path / "50% of 'it'"
    folder.mkdir()

    def make(target="null", count=2, **options):
        options = {"python": stub.path, **options}
        return AgentRequest("node0:4711", token, count, parse_target(target), folder, options)

    return make


def test_agents_wait_run_are_lost_and_end(slurm, request_for, stub, wait_for, is_running):
    request = request_for(count=3)
    agents = load_starter("slurm").start(request)
    try:
        started = wait_for(lambda: len(stub.started()) == 2 and stub.started())
        assert agents.running() == 3  # Both nodes are taken.
        assert {token for _, token in started.values()} == {"secret"}
        first, second = (int(pid) for pid, _ in started.values())
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: agents.running() == 2)
        (lost,) = agents.problems()
        assert next(iter(started)) in lost.replace("agent 0 of job ", "slurm-")
        assert "output of" in lost
        third = wait_for(lambda: len(stub.started()) == 3 and stub.started())
        pids = [int(pid) for pid, _ in third.values()]
    finally:
        agents.close()
    wait_for(lambda: not any(map(is_running, pids)))
    assert second in pids


def test_what_sbatch_refuses(slurm, request_for):
    for options in ({"partition": "none"}, {"licenses": "gpu:4"}, {"no-such-option": "1"}):
        with pytest.raises(EnvironmentFailure, match="sbatch refused"):
            load_starter("slurm").start(request_for(**options))
    with pytest.raises(EnvironmentFailure, match="sbatch refused"):
        load_starter("slurm").start(request_for("cuda"))  # This cluster has no GPUs.
    agents = load_starter("slurm").start(request_for("cuda", licenses="gpu:1"))
    agents.close()
