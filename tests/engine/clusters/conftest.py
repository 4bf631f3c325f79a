"""A Slurm cluster and a Ray cluster of two nodes each, on this host."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def slurm() -> Iterator[Any]:
    """Two nodes, n1 and n2; commands of Slurm in this process and its children speak to them."""
    module = _load("slurm_cluster")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/usr/sbin", prepend=os.pathsep)
        missing = module.missing()
        if missing:
            pytest.skip(f"needs Slurm: {', '.join(missing)} are not installed")
        cluster = module.SlurmCluster()
        patch.setenv("SLURM_CONF", str(cluster.conf))
        try:
            yield cluster
        finally:
            cluster.close()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A head without GPUs, to which :func:`ray_nodes` adds nodes."""
    utils = pytest.importorskip("ray.cluster_utils", reason="needs Ray: pip install gemmetry[ray]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # Else other tests leave tasks no time.
        cluster = utils.Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0, "num_gpus": 0, **_SMALL, "include_dashboard": False,
                # A lost node is noticed after 2.5 s instead of 15 s.
                "_system_config": {"health_check_period_ms": 500},
            },
        )  # fmt: skip
        try:
            yield cluster
        finally:
            cluster.shutdown()


_SMALL = {"object_store_memory": 80 * 2**20}


@pytest.fixture
def ray_nodes(ray_cluster: Any) -> Iterator[Any]:
    """Adds nodes with resources to the cluster, and kills their raylets."""
    added = []

    def add(**resources: Any) -> Any:
        added.append(ray_cluster.add_node(**_SMALL, **resources))
        return added[-1]

    def kill(node: Any) -> None:
        (raylet,) = node.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGKILL)

    yield SimpleNamespace(address=ray_cluster.address, add=add, kill=kill)
    for node in added:
        ray_cluster.remove_node(node, allow_graceful=False)
    # Until the cluster has noticed, it would start actors of the next test on nodes of this one.
    ray_cluster.wait_for_nodes()
