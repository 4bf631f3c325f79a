"""By how much do the medians of rounds differ at a GPU's power limit, and what does it depend on?

    python benchmarks/round_spread.py [MxNxK ...] [--leads 5,15,30,50,100] [--tails 10]

Two of torch's configurations of one bf16 product take turns in rounds, as the engine has them do,
after leads and before tails of different durations in ms (:mod:`gemmetry.measurement.energy`). A
line gives both medians, the standard deviation of the rounds' medians, that of the ratio within a
turn, that within rounds, what a round takes by the wall clock, and about how long both candidates
together would take to the usual ±0.5 % (:func:`seconds_needed`)."""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
from itertools import product as product_of
from pathlib import Path

import numpy as np

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, parse_operation
from gemmetry.domain.settings import RunSettings
from gemmetry.measurement import energy as load
from gemmetry.measurement.sampler import Sampler
from gemmetry.measurement.stopping import GPU_INTERVAL_WIDTH, MIN_ROUNDS
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.registry import load_provider

PRODUCTS = ("4096x4096x4096", "2048x4096x14336", "8192x8192x8192")
ROUNDS = 24
LENGTH_NS = 10e6


def spread(values: list[float]) -> float:
    """Standard deviation of the values' logarithms."""
    return float(np.std(np.log(values), ddof=1))


def seconds_needed(spreads: list[float], round_s: float) -> float:
    """What candidates whose rounds differ by `spreads` and last `round_s` need together: the
    standard error of the median of n normal values is sqrt(π/2)·σ/√n (Kendall & Stuart, *The
    Advanced Theory of Statistics*, volume 1, section 10.9), half of a 95 % interval 1.96 of it."""
    half_widths = (1.96 * math.sqrt(math.pi / 2) * one for one in spreads)
    rounds = (max(MIN_ROUNDS, (one / GPU_INTERVAL_WIDTH) ** 2) for one in half_widths)
    return math.fsum(rounds) * round_s


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
    spreads = [spread(values) for values in medians]
    return " | ".join((
        middles, " ".join(f"{one:.2%}" for one in spreads), f"{spread(ratios):.2%}",
        f"{np.mean(within):.2%}", f"{wall_ms:.0f}",
        f"{seconds_needed(spreads, wall_ms / 1e3):.1f}",
    ))  # fmt: skip


def milliseconds(text: str) -> list[float]:
    """Numbers with commas between them."""
    return [float(one) for one in text.split(",")]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("products", nargs="*", default=PRODUCTS, metavar="MxNxK")
    parser.add_argument("--leads", type=milliseconds, default=[5, 15, 30, 50, 100])
    parser.add_argument("--tails", type=milliseconds, default=[10])
    options = parser.parse_args()
    provider = load_provider("torch")
    target = next(target for target in provider.targets() if target.is_gpu)
    load._MOST_LEADING = 10**6
    print("| product | lead, tail ms | medians µs | rounds differ by | their ratio by "
          "| samples of a round by | a round takes ms | ±0.5 % takes s |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for product in options.products:
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
            for lead_ms, tail_ms in product_of(options.leads, options.tails):
                load.LIMITED_LEAD_NS, load.TAIL_NS = lead_ms * 1e6, tail_ms * 1e6
                for sampler in samplers:
                    sampler.sample_round(2)
                around = f"{lead_ms:g}, {tail_ms:g}"
                print(f"| {product} | {around} | {rounds_of(samplers)} |", flush=True)
            for sampler in samplers:
                sampler.close()


if __name__ == "__main__":
    main()
