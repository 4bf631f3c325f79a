"""What verifying one dispatch costs, in units of one plain product of the same size.

    python benchmarks/verification.py [OPERATION] [--provider NAME] [--runs N] [--each]

Prints, for each level, the median seconds of ``verify`` with the operation's reference and exact
cases cached, as in a sweep over configurations, and their ratio to one launch of the dispatch. The
goals for matmul_1024x1024x1024_f32t_f32t_f32t on torch's CPU are 10 (quick) and 60 (standard). With
``--each`` it prints what each check of standard costs instead, by processor time, which other
programs disturb less, the least of the runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, parse_operation
from gemmetry.domain.settings import VERIFICATION_LEVELS as LEVELS
from gemmetry.engine.bench import CompanionBuilder
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.providers.registry import load_provider
from gemmetry.verification.companions import Companions
from gemmetry.verification.context import Context
from gemmetry.verification.launching import Launcher
from gemmetry.verification.protocol import CHECKS, verify


def median_seconds(call: Callable[[], object], runs: int) -> float:
    """Median duration of `runs` calls after one that is not counted."""
    call()
    durations = []
    for _ in range(runs):
        began = time.perf_counter()
        call()
        durations.append(time.perf_counter() - began)
    return statistics.median(durations)


def cost_of_each(make_context: Callable[[], Context], runs: int) -> dict[str, float]:
    """Check of level standard -> processor time in seconds, the least of `runs`. A check that
    comes first makes what others share."""
    seconds: dict[str, float] = {}
    for _ in range(runs + 1):  # The first run makes exact cases and small shapes.
        context = make_context()
        for check in CHECKS:
            if check.level == LEVELS[-1]:
                continue
            began = time.process_time()
            name = check.run(context).name
            spent = time.process_time() - began
            seconds[name] = min(spent, seconds.get(name, spent))
    return seconds


def main() -> None:
    """Print one line a level."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operation", nargs="?", default="matmul_1024x1024x1024_f32t_f32t_f32t")
    parser.add_argument("--provider", default="torch")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--each", action="store_true", help="what each check of standard costs")
    arguments = parser.parse_args()
    operation = parse_operation(arguments.operation)
    provider = load_provider(arguments.provider)
    target = next(t for t in reversed(provider.targets()) if t.index is not None)
    configuration = next(iter(provider.configurations(operation, target)))
    dispatch = Dispatch(operation, configuration, provider.name, target)
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(generated=Path(folder))
        executable = provider.build(dispatch, workspace)
        device = executable.device
        reference = compute_reference(operation, inputs, matmul=device.float64_matmul())
        pairs = zip(inputs, operation.inputs, strict=True)
        buffers = [device.upload(array, spec) for array, spec in pairs]
        output = device.allocate(operation.output)

        def launch() -> None:
            executable.run(buffers, output)
            device.synchronize()

        if arguments.each:
            builder = CompanionBuilder(provider, workspace)
            companions = builder.companions(dispatch, "standard")

            def context() -> Context:
                launcher = Launcher(executable, operation)
                return Context(launcher, operation, inputs, reference, 42, companions)

            processor_s = []
            for _ in range(20):
                began = time.process_time()
                launch()
                processor_s.append(time.process_time() - began)
            for name, seconds in cost_of_each(context, arguments.runs).items():
                print(f"  {name:20} {seconds / min(processor_s):6.1f} launches")
            return
        unit = median_seconds(launch, 20)
        print(f"{provider.name} on {target.name}, {operation}: one launch {unit * 1e3:.2f} ms")
        for level in LEVELS:
            builder = CompanionBuilder(provider, workspace)
            companions = builder.companions(dispatch, level)

            def once(level: str = level, companions: Companions | None = companions) -> None:
                verdict = verify(
                    executable, operation, inputs, reference, level=level, companions=companions
                )
                if verdict.reason:
                    print(f"  {level}: {verdict.reason}")

            began = time.perf_counter()
            once()
            first = time.perf_counter() - began
            again = median_seconds(once, arguments.runs)
            print(
                f"  {level:9} {again * 1e3:8.1f} ms = {again / unit:6.1f} launches; the first one "
                f"of an operation {first * 1e3:8.1f} ms = {first / unit:6.1f}"
            )


if __name__ == "__main__":
    main()
