"""Agents as actors of Ray: what is requested of the cluster, and a real cluster."""

from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import parse_target
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.engine.agents import ray_actors
from gemmetry.engine.agents.starters import ray as starter
from gemmetry.engine.agents.starting import AgentRequest, load_starter


@pytest.fixture
def make(tmp_path):
    """Makes requests."""
    token = tmp_path / "token"
    token.write_text("secret\n")

    def request(target="cpu", count=1, **options):
        return AgentRequest("node0:4711", token, count, parse_target(target), tmp_path, options)

    return request


def needs(request):
    options = starter.actor_options(request)
    return options["num_gpus"], options["num_cpus"], options["resources"]


def test_an_agent_requests_a_gpu_or_a_processor_or_what_is_given(make):
    assert needs(make("cuda")) == (1, 0, {})
    assert needs(make("cpu")) == needs(make("null")) == (0, 1, {})
    given = make("cpu", num_cpus="8", resources="big:1,fast:0.5")
    assert needs(given) == (0, 8, {"big": 1, "fast": 0.5})


@pytest.mark.parametrize("options", [{"num_gpus": "one"}, {"resources": "big"}, {"restarts": "-1"}])
def test_an_amount_that_is_none_is_named(make, options):
    (name,) = options
    with pytest.raises(RequestError, match=name):
        load_starter("ray").start(make(**options))


def test_an_unknown_option_is_named(make):
    with pytest.raises(UnknownNameError, match="num_gpu"):
        load_starter("ray").start(make(num_gpu="1"))
    with pytest.raises(RequestError, match="devices"):
        load_starter("ray").start(make(devices="cuda:0,cuda:1"))


def test_what_no_single_node_has_is_lacking():
    nodes = [
        {"CPU": 8.0, "GPU": 1.0, "memory": 1e9, "node:10.0.0.1": 1.0},
        {"CPU": 4.0, "memory": 1e9, "node:10.0.0.2": 1.0},
        {"CPU": 4.0, "memory": 1e9, "node:10.0.0.3": 1.0},
    ]

    def lacking(gpus, cpus, **resources):
        wanted = {"num_gpus": gpus, "num_cpus": cpus, "resources": resources}
        return ray_actors.lacking_everywhere(wanted, nodes)

    assert lacking(1, 8) == lacking(0, 0) == ""
    assert lacking(2, 0) == "GPU 2"
    assert lacking(1, 0, big=1) == "GPU 1, big 1"
    assert ray_actors.described(nodes) == "3 nodes (1 × CPU 8, GPU 1; 2 × CPU 4)"


def test_ray_is_an_optional_part(monkeypatch):
    monkeypatch.setattr(starter.importlib.util, "find_spec", lambda name: None)
    assert "gemmetry[ray]" in load_starter("ray").available()
