"""The A/A test and the planted slowdown for ``triton.testing.do_bench`` (GPU),
``torch.utils.benchmark``, ``gemmetry.testing.do_bench``, NVBench's Python package (GPU, where
``cuda-bench[compare]`` is installed) and the verdicts of ``gemmetry.compare``, alongside those of
experiments (``aa_test.py``, ``planted_slowdown.py``).

    python benchmarks/planted_slowdown.py --device cuda:0 --json planted.json
    python benchmarks/rivals.py --device cuda:0 --planted planted.json

Each is used as its documentation shows, with its own defaults: ``do_bench(fn, return_mode="all")``
and ``Timer("fn()").blocked_autorange()``, on a CPU with all of torch's threads. Both sides get the
same tensors, one side is measured after the other; only ``compare`` takes both sides. It has a
verdict, as has ``nvbench-compare-robust``. The others have none, so four rules that people read off
their numbers are counted:

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
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

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


class NVBench:
    """NVBench with its defaults, and the verdicts of ``nvbench-compare-robust``.

    A process can run NVBench once, so all calls are the values of an axis of one benchmark; each
    pair's results are then written as the two files that the comparison reads.
    """

    def __init__(self, calls: Sequence[Kernel], folder: Path) -> None:
        import cuda.bench as bench

        def measured(state: Any) -> None:
            kernel = calls[state.get_int64("call")]
            stream = torch.cuda.ExternalStream(state.get_stream().addressof(), state.get_device())

            def launch(_launch: object) -> None:
                with torch.cuda.stream(stream):
                    kernel()

            state.exec(launch, batched=False)

        bench.register(measured).set_name("kernel").add_int64_axis("call", range(len(calls)))
        path = folder / "all.json"
        began = time.perf_counter()
        bench.run_all_benchmarks(["nvbench", "--devices", "0", "--jsonbin", str(path), "--quiet"])
        self.seconds = (time.perf_counter() - began) / len(calls)
        document = json.loads(path.read_text(encoding="utf-8"))
        (found,) = document["benchmarks"]
        files = []
        for number, state in enumerate(found["states"]):
            one = found | {"axes": None, "states": [state | {"name": "", "axis_values": None}]}
            files.append(folder / f"{number}.json")
            files[-1].write_text(json.dumps(document | {"benchmarks": [one]}), encoding="utf-8")
        with ThreadPool() as pool:
            self.verdicts = pool.starmap(
                _nvbench_verdict, zip(files[::2], files[1::2], strict=True)
            )


def _nvbench_verdict(first: Path, second: Path) -> str:
    """``SAME``, ``FAST``, ``SLOW``, ``AMBG`` (ambiguous) or ``????``, of the second."""
    command = [sys.executable, "-m", "cuda.bench.scripts.nvbench_compare_robust", "--no-color",
               "--display", "simple", str(first), str(second)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\b(SAME|FAST|SLOW|AMBG)\b", done.stdout)
    return found[0] if found else "????"


def nvbench(kernels: Kernels, pairs: int, what: str) -> tuple[proof.Rate, proof.Rate]:
    """False alarms, and how often the slowed kernel was found to be slower."""
    same, slowed = (kernels.plain, kernels.plain), (kernels.plain, kernels.slowed)
    with tempfile.TemporaryDirectory() as folder:
        found = NVBench([*same * pairs, *slowed * pairs], Path(folder))
    sides = found.verdicts[:pairs], found.verdicts[pairs:]
    print(*(f"NVBench: {dict(Counter(side))}" for side in sides), sep="\n")
    alarms = sum(verdict in ("FAST", "SLOW") for verdict in sides[0])
    return tuple(
        proof.Rate("NVBench", "nvbench-compare", name, count, pairs, found.seconds)
        for name, count in ((what, alarms), (f"{what}, slowed", sides[1].count("SLOW")))
    )  # type: ignore[return-value]


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
    """Measure by all tools; a row is printed as soon as it is known."""
    planted = json.loads(options.planted.read_text(encoding="utf-8"))
    slowdown = planted["truth"]["ratio"] - 1
    kernels = Kernels(options, planted["extra"])
    what = f"{options.shape} {proof.dtype(options)}"
    label = f"{what}, {slowdown:+.2%}"
    rates: dict[str, list[proof.Rate]] = {"alarms": [], "powers": []}

    def take(kind: str, found: Iterable[proof.Rate]) -> None:
        for one in found:
            print(one.row(is_alarm=kind == "alarms"), flush=True)
            rates[kind].append(one)

    print(f"A/A, and a slowdown of {slowdown:.2%}\n\n{proof.HEADER}")
    take("alarms", [contests(options, kernels.plain, kernels.plain, options.pairs)])
    take("powers", [contests(options, kernels.plain, kernels.slowed, options.pairs)])
    tools: dict[str, Callable[[Kernel], Timing]] = {
        "gemmetry do_bench": own_do_bench,
        "torch.utils.benchmark": torch_benchmark,
    }
    if options.device != "cpu":
        tools["triton do_bench"] = triton_do_bench
    for name, tool in tools.items():
        for kind, second, of in (
            ("alarms", kernels.plain, what), ("powers", kernels.slowed, label),
        ):  # fmt: skip
            found, seconds = measure(tool, kernels.plain, second, options.rival_pairs)
            take(kind, judge(name, of, found, seconds, slowdown / 2).values())
    if options.nvbench_pairs:
        alarm, power = nvbench(kernels, options.nvbench_pairs, what)
        take("alarms", [alarm])
        take("powers", [power])
    return rates | {"threshold": slowdown / 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    proof.add_common(parser)
    parser.add_argument("--shape", default="8192x8192x8192", help="MxNxK, as planted")
    parser.add_argument(
        "--planted", type=Path, required=True, help="what planted_slowdown.py wrote with --json"
    )
    parser.add_argument("--pairs", type=int, default=100, help="of each test, by gemmetry.compare")
    parser.add_argument("--rival-pairs", type=int, default=100, help="of each test, by the others")
    parser.add_argument("--nvbench-pairs", type=int, default=0, help="of each test, by NVBench")
    options = parser.parse_args()
    proof.write_json(options.json, run(options))


if __name__ == "__main__":
    main()
