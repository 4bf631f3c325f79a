"""By how much do the medians of rounds differ at a GPU's power limit, and what does it depend on?

    python benchmarks/round_spread.py [MxNxK ...]

Two of torch's configurations of one bf16 product take turns in rounds, as the engine has them do,
after leads of different durations. A line gives both medians, the standard deviation of the rounds'
medians, that of the ratio within a turn, that within rounds, and what a round takes by the wall
clock.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.names import parse_operation
from gemmetry.domain.settings import RunSettings
from gemmetry.measurement import load
from gemmetry.measurement.sampler import Sampler
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.registry import load_provider

PRODUCTS = ("4096x4096x4096", "2048x4096x14336", "8192x8192x8192")
ROUNDS = 24
LENGTH_NS = 10e6
LEADS_MS = (5, 15, 30, 50, 100)


def spread(values: list[float]) -> float:
    """Standard deviation of the values' logarithms."""
    return float(np.std(np.log(values), ddof=1))


def rounds_of(samplers: list[Sampler]) -> str:
    """Take the rounds and describe them."""
    medians: list[list[float]] = [[] for _ in samplers]
    within: list[float] = []
    began = time.perf_counter()
    for number in range(ROUNDS):
        order = list(range(len(samplers)))
        random.Random(number).shuffle(order)
        for place in order:
            count = max(2, round(LENGTH_NS / 1e9 / samplers[place].sample_s))
            samples = samplers[place].sample_round(count).samples_ns
            medians[place].append(float(np.median(samples)))
            within.append(spread(list(samples)))
    wall_ms = (time.perf_counter() - began) / ROUNDS / len(samplers) * 1e3
    ratios = [first / second for first, second in zip(*medians, strict=True)]
    middles = " ".join(f"{np.median(values) / 1e3:.1f}" for values in medians)
    spreads = " ".join(f"{spread(values):.2%}" for values in medians)
    return f"{middles} | {spreads} | {spread(ratios):.2%} | {np.mean(within):.2%} | {wall_ms:.0f}"


def main() -> None:
    """Print the table."""
    provider = load_provider("torch")
    target = next(target for target in provider.targets() if target.is_gpu)
    load._MOST_LEADING = 10**6
    print("| product | lead ms | median µs | rounds differ by | ratios by | samples by | wall ms |")
    print("|---|---|---|---|---|---|---|")
    for product in sys.argv[1:] or PRODUCTS:
        operation = parse_operation(f"matmul_{product}_bf16t_bf16n_bf16t")
        settings = RunSettings()
        inputs = make_inputs(operation, distribution=settings.distribution, seed=settings.seed)
        samplers = []
        with tempfile.TemporaryDirectory() as folder:
            for configuration in list(provider.configurations(operation, target))[:2]:
                dispatch = Dispatch(operation, configuration, provider.name, target)
                executable = provider.build(dispatch, Workspace(generated=Path(folder)))
                samplers.append(Sampler(executable, operation, inputs, settings))
                samplers[-1].prepare()
            for lead_ms in LEADS_MS:
                load.LIMITED_LEAD_NS = lead_ms * 1e6
                for sampler in samplers:
                    sampler.sample_round(2)
                print(f"| {product} | {lead_ms} | {rounds_of(samplers)} |", flush=True)
            for sampler in samplers:
                sampler.close()


if __name__ == "__main__":
    main()
