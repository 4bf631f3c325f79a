"""How a run scales over agents: simulated devices, whose launches sleep, on this machine.

    python benchmarks/agents.py [--agents 8] [--dispatches 10000] [--milliseconds 5]

It prints the throughput of one agent and of several, its share of linear, and the processor time
that the driver takes for a dispatch. All agents and their workers run on this machine, so that its
processors, which the first line names, limit several agents before the driver does.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

from gemmetry.domain.dispatch import Plan, ProviderRequest
from gemmetry.domain.dtypes import F32
from gemmetry.domain.operation import MatmulShape, Operation, OperationKind, Signature
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target, TargetKind
from gemmetry.engine import run

PER_OPERATION = 50
"""The dispatches of an operation, which share a group."""


def _plan(agents: int, dispatches: int, milliseconds: float, executor: str) -> Plan:
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
            executor=executor, agents=agents,
        ),
        document={"agents": agents, "dispatches": dispatches},
    )  # fmt: skip


def measure(
    agents: int, dispatches: int, milliseconds: float, executor: str
) -> tuple[float, float]:
    """Dispatches per second while records arrive, and the driver's seconds for each."""
    arrived: list[float] = []

    def listen(event: object) -> None:
        if type(event).__name__ == "DispatchFinished":
            arrived.append(time.monotonic())

    plan = _plan(agents, dispatches, milliseconds, executor)
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_SELF)
        summary = run(plan, Path(folder) / "experiment", listener=listen)
        after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if summary.failure:
        raise SystemExit(summary.failure)
    skipped = len(arrived) // 5  # while agents and workers start
    rate = (len(arrived) - skipped) / (arrived[-1] - arrived[skipped - 1])
    return rate, spent / len(arrived)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--dispatches", type=int, default=10_000)
    parser.add_argument("--milliseconds", type=float, default=5.0)
    parser.add_argument("--executor", default="loopback")
    wanted = parser.parse_args()
    load, processors = os.getloadavg()[0], os.cpu_count()
    print(f"{processors} processors, load {load:.1f} before the run")
    share = max(2 * PER_OPERATION, wanted.dispatches // wanted.agents)
    one, _ = measure(1, share, wanted.milliseconds, wanted.executor)
    every, driver_s = measure(
        wanted.agents, wanted.dispatches, wanted.milliseconds, wanted.executor
    )
    print(f"1 agent: {one:.1f} dispatches/s")
    print(f"{wanted.agents} agents: {every:.1f} dispatches/s, "
          f"{every / one / wanted.agents:.2f} of linear")  # fmt: skip
    print(f"driver: {1000 * driver_s:.2f} ms of processor time for a dispatch")


if __name__ == "__main__":
    main()
