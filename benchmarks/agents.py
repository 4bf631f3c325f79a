"""How a run scales over agents: simulated devices, whose launches sleep, on this machine.

    python benchmarks/agents.py [--agents 8] [--dispatches 10000] [--milliseconds 5]
                                [--executor loopback|ray]...

For each executor one agent measures its share of the dispatches, then all agents measure all of
them, so that linear scaling takes as long. Printed are two shares of linear: *at work* compares the
dispatches per second of a device between the end of its first group and that of its last; *whole
run* compares the times from the command to the summary, with the start of agents and workers and
the end, where some devices have no work left. `ray` starts a Ray cluster with two raylets here.

Driver, agents and workers share the processors of this machine, which the first line names, so that
these limit several agents before the driver does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmetry.domain.dispatch import Plan, ProviderRequest, Target, TargetKind
from gemmetry.domain.operation import F32, MatmulShape, Operation, OperationKind, Signature
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import run

PER_OPERATION = 50
"""The dispatches of an operation, which share a group."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run showed."""

    whole_s: float
    """From the call to the summary."""
    per_s: float
    """Dispatches per second of all devices, each between the ends of its first and last group."""
    driver_s: float
    """Processor time of the driver for each dispatch."""


def _plan(
    agents: int, dispatches: int, milliseconds: float, executor: str, options: Mapping[str, str]
) -> Plan:
    count = max(1, dispatches // PER_OPERATION)
    names = [f"slow_{milliseconds + number / 1000:.3f}".rstrip("0").replace(".", "p")
             for number in range(PER_OPERATION)]  # fmt: skip
    names = [name.removesuffix("p") for name in names]
    signature = Signature(OperationKind.MATMUL, F32, F32, F32)
    return Plan(
        name="agents",
        operations=tuple(Operation(signature, MatmulShape(8 + n, 8, 8)) for n in range(count)),
        providers=(
            ProviderRequest(name="null", options={"configurations": names, "devices": agents}),
        ),
        targets=(Target(TargetKind.NULL),),
        settings=RunSettings(
            verify=False, repetitions=1, warmup_iterations=0, cold_cache=False,
            executor=executor, executor_options=options, agents=agents,
        ),
        document={"agents": agents, "dispatches": dispatches},
    )  # fmt: skip


def measure(
    agents: int,
    dispatches: int,
    milliseconds: float,
    executor: str,
    options: Mapping[str, str] | None = None,
) -> Figures:
    """Run `dispatches` on `agents` agents."""
    arrived: dict[int, list[float]] = {}

    def listen(event: object) -> None:
        if type(event).__name__ == "DispatchFinished":  # in the thread that serves the device
            arrived.setdefault(threading.get_ident(), []).append(time.monotonic())

    plan = _plan(agents, dispatches, milliseconds, executor, options or {})
    with tempfile.TemporaryDirectory() as folder:
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        summary = run(plan, Path(folder) / "experiment", listener=listen)
        whole_s = time.monotonic() - begun
        after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if summary.failure:
        raise SystemExit(summary.failure)
    count = sum(map(len, arrived.values()))
    return Figures(whole_s, sum(map(_rate, arrived.values())), spent / count)


def _rate(times: list[float]) -> float:
    """Records per second from the end of a device's first group to that of its last. The records of
    a group arrive together, after what they measure."""
    ends = [one for one, after in zip(times, [*times[1:], float("inf")], strict=True)
            if after - one > 0.1]  # fmt: skip
    if len(ends) < 2:
        return 0.0
    return sum(ends[0] < one <= ends[-1] for one in times) / (ends[-1] - ends[0])


@contextlib.contextmanager
def _ray_cluster(agents: int) -> Iterator[dict[str, str]]:
    """A Ray cluster of a head and two nodes, each with half of the processors that the agents
    request; the options of the executor for it."""
    from ray.cluster_utils import Cluster

    small: dict[str, Any] = {"object_store_memory": 80 << 20}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "num_gpus": 0, "include_dashboard": False, **small},
    )
    try:
        for half in (agents // 2, agents - agents // 2):
            cluster.add_node(num_cpus=half, num_gpus=0, **small)
        yield {"address": cluster.address}
    finally:
        cluster.shutdown()


def report(executor: str, agents: int, dispatches: int, milliseconds: float) -> None:
    """Print what one executor reaches."""
    is_ray = executor == "ray"
    nothing: dict[str, str] = {}
    cluster = _ray_cluster(agents) if is_ray else contextlib.nullcontext(nothing)
    with cluster as options:
        share = max(2 * PER_OPERATION, dispatches // agents)
        one = measure(1, share, milliseconds, executor, options)
        every = measure(agents, dispatches, milliseconds, executor, options)
    print(f"{executor}, 1 agent: {one.per_s:.1f} dispatches/s at work, {one.whole_s:.1f} s")
    print(f"{executor}, {agents} agents: {every.per_s:.1f} dispatches/s at work, "
          f"{every.whole_s:.1f} s")  # fmt: skip
    linear = one.whole_s / every.whole_s * dispatches / (agents * share)
    print(f"{executor}, share of linear: {every.per_s / one.per_s / agents:.2f} at work, "
          f"{linear:.2f} of the whole run")  # fmt: skip
    print(f"{executor}, driver: {1000 * every.driver_s:.2f} ms of processor time for a dispatch",
          flush=True)  # fmt: skip


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--dispatches", type=int, default=10_000)
    parser.add_argument("--milliseconds", type=float, default=5.0)
    parser.add_argument("--executor", action="append", choices=["loopback", "ray"])
    wanted = parser.parse_args()
    load, processors = os.getloadavg()[0], os.cpu_count()
    print(f"{processors} processors, load {load:.1f} before the run", flush=True)
    for executor in wanted.executor or ["loopback"]:
        report(executor, wanted.agents, wanted.dispatches, wanted.milliseconds)


if __name__ == "__main__":
    main()
