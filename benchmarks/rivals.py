"""The A/A test and the planted slowdown for ``triton.testing.do_bench`` (GPU),
``torch.utils.benchmark``, ``gemmetry.testing.do_bench`` and the verdicts of ``gemmetry.compare``,
alongside those of experiments (``aa_test.py``, ``planted_slowdown.py``).

    python benchmarks/planted_slowdown.py --device cuda:0 --json planted.json
    python benchmarks/rivals.py --device cuda:0 --planted planted.json

Each is used as its documentation shows, with its own defaults: ``do_bench(fn, return_mode="all")``
and ``Timer("fn()").blocked_autorange()``, on a CPU with all of torch's threads. Both sides get the
same tensors, one side is measured after the other; only ``compare`` takes both sides, and has a
verdict. The others have none, so four rules that people read off their numbers are counted:

* *medians apart*: the medians differ by more than half of the planted slowdown, the best threshold
  for someone who knows what to look for;
* *spread apart*: the bands that the tool shows do not overlap: the quantiles 0.2 and 0.8 for
  do_bench, as in Triton's tutorials, the interquartile range for torch;
* *printed figures*: the medians differ in the digits that torch's ``Compare`` prints with
  ``trim_significant_figures()`` (torch only);
* *bootstrap*: the interval of the ratio of medians excludes 1, both samples resampled as if they
  were independent, at the nominal level of 2 %.

For power a rule has to say that the slowed side is the slower one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import timing_proof as proof
import torch
from slowed_product import product
from torch.utils.benchmark import Timer
from torch.utils.benchmark.utils.common import trim_sigfig

import gemmetry
import gemmetry.testing

RESAMPLES = 1000

FORMATS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

Kernel = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """What a tool returned: seconds of each of its samples, and what it would print."""

    samples: tuple[float, ...]
    low: float
    high: float
    """Ends of the band that the tool shows around the median."""
    printed: float | None = None
    """The median in the digits that the tool prints."""

    @property
    def median(self) -> float:
        return float(np.median(self.samples))


def triton_do_bench(kernel: Kernel) -> Timing:
    """``triton.testing.do_bench`` with its defaults (25 ms of warm-up, 100 ms of launches)."""
    from triton.testing import do_bench

    times = tuple(ms / 1e3 for ms in do_bench(kernel, return_mode="all"))
    low, high = np.quantile(times, [0.2, 0.8])
    return Timing(times, float(low), float(high))


def own_do_bench(kernel: Kernel) -> Timing:
    """``gemmetry.testing.do_bench`` with its defaults."""
    times = tuple(ms / 1e3 for ms in gemmetry.testing.do_bench(kernel, return_mode="all"))
    low, high = np.quantile(times, [0.2, 0.8])
    return Timing(times, float(low), float(high))


def contests(options: argparse.Namespace, first: Kernel, second: Kernel, pairs: int) -> proof.Rate:
    """How often ``gemmetry.compare`` calls the second slower, or, where both are the same, one of
    them faster or slower."""
    began, verdicts = time.perf_counter(), []
    for _ in range(pairs):
        found = gemmetry.compare({"first": first, "second": second}, device=options.device)
        verdicts.append(found.pair("second", "first").verdict)
    wanted = ("faster", "slower") if first is second else ("slower",)
    seconds = (time.perf_counter() - began) / (2 * pairs)
    counted = sum(verdict in wanted for verdict in verdicts)
    return proof.Rate("gemmetry.compare", "verdict", "both sides", counted, pairs, seconds)


def torch_benchmark(kernel: Kernel) -> Timing:
    """``torch.utils.benchmark.Timer.blocked_autorange`` with its defaults (0.2 s)."""
    timer = Timer("kernel()", globals={"kernel": kernel}, num_threads=torch.get_num_threads())
    found = timer.blocked_autorange()
    low, high = np.quantile(found.times, [0.25, 0.75])
    printed = trim_sigfig(found.median, found.significant_figures)
    return Timing(tuple(found.times), float(low), float(high), printed)


def by_threshold(first: Timing, second: Timing, threshold: float) -> int:
    """1: the second is slower, -1: faster, 0: neither, as for every rule."""
    ratio = second.median / first.median
    return int(ratio > 1 + threshold) - int(ratio < 1 / (1 + threshold))


def by_spread(first: Timing, second: Timing) -> int:
    return int(second.low > first.high) - int(second.high < first.low)


def by_printed(first: Timing, second: Timing) -> int:
    assert first.printed is not None and second.printed is not None
    return int(second.printed > first.printed) - int(second.printed < first.printed)


def by_bootstrap(first: Timing, second: Timing) -> int:
    rng = np.random.default_rng(0)
    medians = [
        np.median(rng.choice(np.array(one.samples), (RESAMPLES, len(one.samples))), axis=1)
        for one in (second, first)
    ]
    low, high = np.quantile(medians[0] / medians[1], [proof.NOMINAL / 2, 1 - proof.NOMINAL / 2])
    return int(low > 1) - int(high < 1)


def rules(first: Timing, threshold: float) -> dict[str, Callable[[Timing, Timing], int]]:
    """The rules that apply to what a tool returned."""
    found: dict[str, Callable[[Timing, Timing], int]] = {
        f"medians {threshold:.3g} apart": partial(by_threshold, threshold=threshold),
        "spreads apart": by_spread,
        "bootstrap": by_bootstrap,
    }
    if first.printed is not None:
        found["printed figures differ"] = by_printed
    return found


class Kernels:
    """The plain and the slowed kernel on one set of tensors."""

    def __init__(self, options: argparse.Namespace, extra: Mapping[str, int]) -> None:
        m, n, k = (int(side) for side in options.shape.split("x"))
        kind, where = FORMATS[proof.dtype(options)], torch.device(options.device)
        torch.manual_seed(0)
        a, b = ((torch.rand(size, device=where) + 0.1).to(kind) for size in ((m, k), (k, n)))
        out = torch.empty((m, n), dtype=kind, device=where)
        self.plain: Kernel = partial(product, a, b, out)
        self.slowed: Kernel = partial(product, a, b, out, **extra)


def measure(
    tool: Callable[[Kernel], Timing], first: Kernel, second: Kernel, pairs: int
) -> tuple[list[tuple[Timing, Timing]], float]:
    """`pairs` measurements of both, one after the other; and the seconds that one took."""
    tool(first)  # what is done once: loading, choosing algorithms
    began = time.perf_counter()
    found = [(tool(first), tool(second)) for _ in range(pairs)]
    return found, (time.perf_counter() - began) / (2 * pairs)


def judge(
    name: str, what: str, found: list[tuple[Timing, Timing]], seconds: float, threshold: float
) -> dict[str, proof.Rate]:
    """One rate a rule; of false alarms where `what` has no slowdown."""
    is_alarm = "+" not in what
    rates = {}
    for rule, decide in rules(found[0][0], threshold).items():
        decided = [decide(first, second) for first, second in found]
        counted = sum(one != 0 for one in decided) if is_alarm else sum(one > 0 for one in decided)
        rates[rule] = proof.Rate(name, rule, what, counted, len(found), seconds)
    return rates


def run(options: argparse.Namespace) -> dict[str, object]:
    """Measure both tools and print the two tables."""
    planted = json.loads(options.planted.read_text(encoding="utf-8"))
    slowdown = planted["truth"]["ratio"] - 1
    kernels = Kernels(options, planted["extra"])
    tools: dict[str, Callable[[Kernel], Timing]] = {
        "torch.utils.benchmark": torch_benchmark,
        "gemmetry do_bench": own_do_bench,
    }
    if options.device != "cpu":
        tools["triton do_bench"] = triton_do_bench
    threshold = slowdown / 2
    what = f"{options.shape} {proof.dtype(options)}"
    alarms: list[proof.Rate] = []
    powers: list[proof.Rate] = []
    for name, tool in tools.items():
        same, seconds = measure(tool, kernels.plain, kernels.plain, options.pairs)
        alarms += judge(name, what, same, seconds, threshold).values()
        slowed, seconds = measure(tool, kernels.plain, kernels.slowed, options.slowdown_pairs)
        label = f"{what}, {slowdown:+.2%}"
        powers += judge(name, label, slowed, seconds, threshold).values()
    alarms.append(contests(options, kernels.plain, kernels.plain, options.pairs))
    powers.append(contests(options, kernels.plain, kernels.slowed, options.slowdown_pairs))
    print(f"A/A, other tools\n\n{proof.HEADER}")
    print("\n".join(one.row(is_alarm=True) for one in alarms))
    print(f"\nplanted slowdown, other tools\n\n{proof.HEADER}")
    print("\n".join(one.row(is_alarm=False) for one in powers))
    return {"alarms": alarms, "powers": powers, "threshold": threshold}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    proof.add_common(parser)
    parser.add_argument("--shape", default="8192x8192x8192", help="MxNxK, as planted")
    parser.add_argument(
        "--planted", type=Path, required=True, help="what planted_slowdown.py wrote with --json"
    )
    parser.add_argument("--pairs", type=int, default=400, help="of the A/A test")
    parser.add_argument("--slowdown-pairs", type=int, default=100)
    options = parser.parse_args()
    proof.write_json(options.json, run(options))


if __name__ == "__main__":
    main()
