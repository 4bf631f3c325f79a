"""Costs of the engine itself: ``python benchmarks/engine.py`` prints one line a figure.

The null provider computes tiny products and simulates their time, so what is measured is the
engine: plan, workers, journal with durable commits. The limits are the project's own.
"""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gemmetry.domain.dispatch import Plan, ProviderRequest, Target, TargetKind
from gemmetry.domain.operation import F32, MatmulShape, Operation, OperationKind, Signature
from gemmetry.domain.record import Environment
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import run
from gemmetry.engine.candidates import RecordMaker
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.planning import enumerate_plan, make_lanes
from gemmetry.hardware.host import usable_cores
from gemmetry.providers.registry import load_provider

SIGNATURE = Signature(OperationKind.MATMUL, F32, F32, F32)


@dataclass(frozen=True)
class Shapes:
    """Matmuls of every M, N, K below `sides`, created when they are needed."""

    m: int
    n: int
    k: int

    def __iter__(self) -> Iterator[Operation]:
        for m in range(1, self.m + 1):
            for n in range(1, self.n + 1):
                for k in range(1, self.k + 1):
                    yield Operation(SIGNATURE, MatmulShape(m, n, k))


def null_plan(shapes: Shapes, *, verify: bool = True, only_default: bool = False) -> Plan:
    """The plan of `shapes` with the null provider's two usual configurations."""
    return Plan(
        name="benchmark",
        operations=shapes,
        providers=(ProviderRequest(name="null"),),
        targets=(Target(TargetKind.NULL),),
        settings=RunSettings(verify=verify),
        default_configurations_only=only_default,
        document={"shapes": [shapes.m, shapes.n, shapes.k], "verify": verify},
    )


def million_enumerated() -> float:
    """Seconds to enumerate 1,000,000 null dispatches (500,000 operations × 2)."""
    plan = null_plan(Shapes(100, 100, 50))
    lanes = make_lanes(plan, load_provider)
    records = RecordMaker(plan.settings, "", Path())
    began = time.perf_counter()
    count = sum(len(batch.dispatches) for batch in enumerate_plan(plan, lanes, records.refused))
    seconds = time.perf_counter() - began
    assert count == 1_000_000, count
    return seconds


def million_persisted() -> float:
    """Seconds to enumerate and store 1,000,000 null dispatches, on the disk when it returns."""
    plan = null_plan(Shapes(100, 100, 50))
    lanes = make_lanes(plan, load_provider)
    records = RecordMaker(plan.settings, "", Path())
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        experiment = Experiment.create_or_open(
            Path(folder) / "experiment",
            plan,
            environment=Environment(),
            enumerate_plan=lambda: (
                [item.lane for item in lanes],
                enumerate_plan(plan, lanes, records.refused),
            ),
        )
        seconds = time.perf_counter() - began
        assert experiment.total() == 1_000_000
        experiment.close()
    return seconds


def million_memory() -> float:
    """Most memory (bytes) of a process that enumerates and stores 1,000,000 dispatches."""
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); import engine;"
        "engine.million_persisted();"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    folder = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def thousand_dispatches(*, verify: bool) -> tuple[float, float]:
    """Wall and processor seconds of a whole run of 1,000 null dispatches (500 operations × 2),
    start and workers included."""
    with tempfile.TemporaryDirectory() as folder:
        began, used = time.perf_counter(), processor_seconds()
        summary = run(null_plan(Shapes(5, 10, 10), verify=verify), Path(folder) / "experiment")
        seconds = time.perf_counter() - began, processor_seconds() - used
        assert summary.exit_status == 0 and summary.finished == 1000, summary
    return seconds


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def overhead_per_dispatch() -> float:
    """Seconds per null dispatch in a healthy worker: how much 2,000 take longer than 200."""
    times = []
    for shapes in (Shapes(1, 10, 10), Shapes(10, 10, 10)):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            run(null_plan(shapes, verify=False), Path(folder) / "experiment")
            times.append(time.perf_counter() - began)
    return (times[1] - times[0]) / 1800


def main() -> None:
    """Print the table."""
    verified, unverified = (thousand_dispatches(verify=verify) for verify in (True, False))
    rows = [
        ("1,000,000 dispatches enumerated", million_enumerated(), 3.0, "s"),
        ("1,000,000 dispatches enumerated and stored", million_persisted(), 7.0, "s"),
        ("memory of that", million_memory() / 1e6, 500.0, "MB"),
        ("1,000 null dispatches, verified", verified[0], 5.0, "s"),
        ("processor time of that", verified[1], 8.0, "s"),
        ("1,000 null dispatches, not verified", unverified[0], 5.0, "s"),
        ("engine overhead per dispatch", overhead_per_dispatch() * 1e3, 2.0, "ms"),
    ]
    print(f"{platform.processor() or platform.machine()}, {usable_cores()} processors")
    print(f"{'what':<44} {'measured':>12} {'limit':>10}")
    for name, value, limit, unit in rows:
        print(f"{name:<44} {value:>9.2f} {unit:<2} {limit:>7g} {unit}")


if __name__ == "__main__":
    main()
