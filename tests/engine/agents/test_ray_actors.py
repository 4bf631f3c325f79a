from __future__ import annotations

import json

import pytest

from gemmetry.engine.agents.ray_actors import Order, described, encoded, lacking_everywhere

NODES = [{"CPU": 8.0, "GPU": 2.0, "node:10.0.0.1": 1.0, "memory": 1e9}, {"CPU": 64.0, "big": 1.0}]


@pytest.mark.parametrize(
    ("needs", "lacking"),
    [
        ({"num_gpus": 2, "num_cpus": 8, "resources": {}}, ""),
        ({"num_gpus": 0, "num_cpus": 64, "resources": {"big": 1}}, ""),
        ({"num_gpus": 1, "num_cpus": 64, "resources": {}}, "GPU 1, CPU 64"),
        ({"num_gpus": 0, "num_cpus": 0, "resources": {"big": 2}}, "big 2"),
    ],
)
def test_one_node_must_have_all_that_an_actor_requests(needs, lacking):
    assert lacking_everywhere(needs, NODES) == lacking


def test_nodes_are_described_by_what_can_be_requested():
    assert described([NODES[0], NODES[1], NODES[0]]) == (
        "3 nodes (2 × CPU 8, GPU 2; 1 × CPU 64, big 1)"
    )
    assert described([]) == "no node"


def test_an_order_is_one_line_that_reads_back():
    order = Order("auto", {"num_gpus": 1}, 2, "", ("--connect", "a\nb:1"), "dG9rZW4=", 3)
    data = encoded(order)
    assert data.count(b"\n") == 1
    assert Order(**{**json.loads(data), "arguments": order.arguments}) == order
