"""How a run scales over tasks of a Ray cluster: simulated devices, whose launches sleep, on this
machine.

    python benchmarks/cluster.py [--places 8] [--dispatches 10000] [--milliseconds 5]

One place measures its share of the dispatches, then all places measure all of them, so that linear
scaling takes as long. Printed are two shares of linear: *at work* compares dispatches per second
from the end of the first task of every place to the last; *whole run* compares the times from the
command to the summary, with the start of tasks and workers, and the end, where some places have no
work left. A Ray cluster with two raylets is started here.

Driver, tasks and workers share the processors of this machine, which the first line names, so that
these limit several places before the driver does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmetry.domain.dispatch import Plan, ProviderRequest, Target, TargetKind
from gemmetry.domain.operation import F32, MatmulShape, Operation, OperationKind, Signature
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import run

PER_OPERATION = 50
"""The dispatches of an operation, which share a task."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run showed."""

    whole_s: float
    """From the call to the summary."""
    per_s: float
    """Dispatches per second from the end of the first task of every place to the last."""
    driver_s: float
    """Processor time of the driver for each dispatch."""


def _plan(dispatches: int, milliseconds: float, address: str) -> Plan:
    count = max(1, dispatches // PER_OPERATION)
    names = [f"slow_{milliseconds + number / 1000:.3f}".rstrip("0").replace(".", "p")
             for number in range(PER_OPERATION)]  # fmt: skip
    names = [name.removesuffix("p") for name in names]
    signature = Signature(OperationKind.MATMUL, F32, F32, F32)
    return Plan(
        name="cluster",
        operations=tuple(Operation(signature, MatmulShape(8 + n, 8, 8)) for n in range(count)),
        providers=(ProviderRequest(name="null", options={"configurations": names}),),
        targets=(Target(TargetKind.NULL),),
        settings=RunSettings(
            verify=False, repetitions=1, warmup_iterations=0, cold_cache=False,
            executor="ray", executor_options={"address": address},
        ),
        document={"dispatches": dispatches},
    )  # fmt: skip


def measure(places: int, dispatches: int, milliseconds: float) -> Figures:
    """Run `dispatches` on a cluster with `places` places for tasks."""
    ends: list[float] = []

    def listen(event: object) -> None:
        if type(event).__name__ == "DispatchFinished":
            ends.append(time.monotonic())

    with _ray_cluster(places) as address, tempfile.TemporaryDirectory() as folder:
        plan = _plan(dispatches, milliseconds, address)
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        summary = run(plan, Path(folder) / "experiment", listener=listen)
        whole_s = time.monotonic() - begun
        after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if summary.failure:
        raise SystemExit(summary.failure)
    return Figures(whole_s, _rate(ends, places), spent / len(ends))


def _rate(ends: list[float], places: int) -> float:
    """Records per second after the first task of every place. The records of a task arrive
    together."""
    batches = [one for one, after in zip(ends, [*ends[1:], float("inf")], strict=True)
               if after - one > 0.1]  # fmt: skip
    if len(batches) <= places:
        return 0.0
    begun = batches[places - 1]
    return sum(one > begun for one in ends) / (batches[-1] - begun)


@contextlib.contextmanager
def _ray_cluster(places: int) -> Iterator[str]:
    """A Ray cluster of a head and up to two nodes, which share `places` processors; its address."""
    import ray
    from ray.cluster_utils import Cluster

    small: dict[str, Any] = {"object_store_memory": 80 << 20}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "num_gpus": 0, "include_dashboard": False, **small},
    )
    try:
        for half in filter(None, (places // 2, places - places // 2)):
            cluster.add_node(num_cpus=half, num_gpus=0, **small)
        yield str(cluster.address)
    finally:
        ray.shutdown()
        cluster.shutdown()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--places", type=int, default=8)
    parser.add_argument("--dispatches", type=int, default=10_000)
    parser.add_argument("--milliseconds", type=float, default=5.0)
    wanted = parser.parse_args()
    places, dispatches = wanted.places, wanted.dispatches
    load, processors = os.getloadavg()[0], os.cpu_count()
    print(f"{processors} processors, load {load:.1f} before the run", flush=True)
    share = max(2 * PER_OPERATION, dispatches // places)
    one = measure(1, share, wanted.milliseconds)
    every = measure(places, dispatches, wanted.milliseconds)
    for count, figures in ((1, one), (places, every)):
        print(f"{count} places: {figures.per_s:.1f} dispatches/s at work, {figures.whole_s:.1f} s")
    linear = one.whole_s / every.whole_s * dispatches / (places * share)
    at_work = every.per_s / one.per_s / places if one.per_s else 0.0
    print(f"share of linear: {at_work:.2f} at work, {linear:.2f} of the whole run")
    print(f"driver: {1000 * every.driver_s:.2f} ms of processor time for a dispatch", flush=True)


if __name__ == "__main__":
    main()
