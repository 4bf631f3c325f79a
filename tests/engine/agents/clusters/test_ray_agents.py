"""Agents on a Ray cluster whose nodes run on this host."""

from __future__ import annotations

import os
import signal

import pytest

from gemmetry.domain.dispatch import parse_target
from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.engine.agents.starters import ray as starter
from gemmetry.engine.agents.starting import AgentRequest, load_starter

pytestmark = pytest.mark.cluster


@pytest.fixture
def request_for(tmp_path, stub, ray_nodes):
    """Requests to the cluster."""
    token = tmp_path / "token"
    token.write_text("secret\n")

    def make(target="cuda", count=2, **options):
        options = {"address": ray_nodes.address, "python": stub.path, **options}
        return AgentRequest("node0:4711", token, count, parse_target(target), tmp_path, options)

    return make


def test_agents_run_are_lost_and_end(ray_nodes, request_for, stub, wait_for, is_running):
    """Three declared GPUs, of which two belong to the node that is lost."""
    ray_nodes.add(num_cpus=1, num_gpus=1)
    doomed = ray_nodes.add(num_cpus=1, num_gpus=2)
    agents = load_starter("ray").start(request_for(count=3))
    try:
        started = wait_for(lambda: len(stub.started()) == 3 and stub.started())
        assert {token for _, token, _ in started.values()} == {"secret"}
        # Each actor sees one GPU: the only one of its node, or one of the two.
        assert sorted(device for _, _, device in started.values()) == ["0", "0", "1"]
        pids = {name: int(pid) for name, (pid, _, _) in started.items()}
        (killed,) = [name for name, (_, _, device) in started.items() if device == "1"]
        os.kill(pids[killed], signal.SIGKILL)
        (lost,) = wait_for(agents.problems)
        assert killed in lost and f"output of {killed}" in lost and "signal 9" in lost
        again = wait_for(lambda: (now := stub.started())[killed][0] != str(pids[killed]) and now)
        assert agents.running() == 3
        ray_nodes.kill(doomed)
        found = []
        wait_for(lambda: found.extend(agents.problems()) or len(found) >= 2)
        assert all("its actor was lost" in text and "started again" in text for text in found)
        assert agents.running() == 3  # Two of them wait for another node.
    finally:
        agents.close()
        agents.close()
    wait_for(lambda: not any(is_running(int(pid)) for pid, _, _ in again.values()))


def test_an_agent_that_ends_by_itself_is_not_started_again(ray_nodes, request_for, wait_for):
    ray_nodes.add(num_cpus=2)
    agents = load_starter("ray").start(request_for("null", count=1, python="false"))
    try:
        found = []
        wait_for(lambda: found.extend(agents.problems()) or agents.running() == 0)
        # A busy host may lose an actor before the agent has ended; then it is started again.
        *lost, ended = found
        assert all("its actor was lost" in text for text in lost)
        assert "ray-0" in ended and "status 1" in ended and "again" not in ended
    finally:
        agents.close()


def test_a_cluster_without_gpus(ray_nodes, request_for):
    ray_nodes.add(num_cpus=2, resources={"big": 1})
    with pytest.raises(RequestError, match="GPU 1") as lacking:
        load_starter("ray").start(request_for())
    assert "CPU 2, big 1" in lacking.value.hint


def test_no_cluster(request_for, monkeypatch, tmp_path):
    monkeypatch.setattr(starter, "CONNECTING_S", 3.0)
    with pytest.raises(EnvironmentFailure, match="cannot connect to the Ray cluster"):
        load_starter("ray").start(request_for(address="127.0.0.1:1"))
