"""Power: how often a kernel with a known small amount of extra work is found to be slower.

    python benchmarks/planted_slowdown.py --device cuda:0 --shape 8192x8192x8192 --target 0.01
    python benchmarks/planted_slowdown.py --device cpu --shape 512x512x512 --target 0.05

The extra work (``slowed_product.py`` computes a part of C twice) is first chosen so that it comes
near the wanted slowdown, then measured by itself: blocks of launches of both kernels in turns
(A B B A), the wall clock around each block, no code of gemmetry's samplers. After that the engine
measures groups of three interleaved dispatches, the plain kernel, the plain one again, and the
slowed one. ``gemmetry compare``'s verdicts are counted at the nominal level of 2 %: on the slowed
kernel against the plain one (power), and on the two that are alike (false alarms at the same cost).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import timing_proof as proof
import torch
from slowed_product import product

from gemmetry.statistics.comparison import Difference
from gemmetry.statistics.intervals import median_interval

BLOCK_S = 0.02
"""Wall-clock length of a block of launches: reading the clock and waiting for a GPU (about 10 µs)
is then less than a thousandth, and equal on both sides."""

FORMATS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Truth:
    """The slowdown as the independent run measured it."""

    ratio: float
    low: float
    high: float
    blocks: int
    launches_per_block: int


class Launches:
    """Both kernels on rotating buffers that together exceed 256 MB."""

    def __init__(self, shape: str, dtype: str, device: str) -> None:
        m, n, k = (int(side) for side in shape.split("x"))
        torch.manual_seed(0)
        kind, where = FORMATS[dtype], torch.device(device)
        one = (m * k + k * n + m * n) * kind.itemsize
        self._sets = []
        for _ in range(max(2, min(64, (256 << 20) // one + 1))):
            a, b = ((torch.rand(size, device=where) + 0.1).to(kind) for size in ((m, k), (k, n)))
            self._sets.append((a, b, torch.empty((m, n), dtype=kind, device=where)))
        self._synchronize: Callable[[], None] = (
            torch.cuda.synchronize if where.type == "cuda" else lambda: None
        )
        self._next = 0

    def seconds(self, count: int, rows: int, columns: int) -> float:
        """Wall-clock time of `count` launches."""
        self._synchronize()
        began = time.perf_counter()
        for number in range(self._next, self._next + count):
            a, b, out = self._sets[number % len(self._sets)]
            product(a, b, out, rows=rows, columns=columns)
        self._synchronize()
        self._next += count
        return time.perf_counter() - began

    def ratio(self, rows: int, columns: int, seconds: float) -> Truth:
        """Slowed over plain, from blocks in the order A B B A; the median of the blocks' ratios
        with its 99 % interval."""
        self.seconds(3, rows, columns)
        count = max(1, round(BLOCK_S * 3 / self.seconds(3, 0, 0)))
        ratios: list[float] = []
        began = time.perf_counter()
        while time.perf_counter() - began < seconds or len(ratios) < 12:
            plain = self.seconds(count, 0, 0)
            slowed = self.seconds(count, rows, columns) + self.seconds(count, rows, columns)
            plain += self.seconds(count, 0, 0)
            ratios.append(slowed / plain)
        interval = median_interval(ratios, 0.99)
        assert interval is not None, "twelve blocks are enough"
        low, high = interval
        return Truth(statistics.median(ratios), low, high, len(ratios), count)


def choose(
    launches: Launches, candidates: Sequence[tuple[int, int]], target: float
) -> tuple[int, int]:
    """The extra work that comes nearest to a slowdown by `target`."""
    found = {extra: launches.ratio(*extra, seconds=1.0).ratio - 1 for extra in candidates}
    for extra, slowdown in found.items():
        print(f"  {extra[0]}×{extra[1]} of C again: {slowdown:+.2%}")
    return min(candidates, key=lambda extra: abs(found[extra] - target))


def candidates(shape: str, device: str) -> list[tuple[int, int]]:
    """Parts of C to compute again; a GPU fills with small ones only in part, so that what an
    amount of work costs there has to be tried."""
    m, n, _ = (int(side) for side in shape.split("x"))
    if device == "cpu":
        return [(max(1, m * share // 1000), n) for share in (10, 12, 14, 16, 18, 20, 30)]
    return [(min(m, 256), min(n, side)) for side in (64, 256, 512, 768, 1024)]


def run(options: argparse.Namespace) -> dict[str, object]:
    """Choose and measure the extra work, measure the pairs, and print the table."""
    dtype = proof.dtype(options)
    launches = Launches(options.shape, dtype, options.device)
    launches.ratio(0, 0, seconds=1.0)  # the device's clocks settle
    tried = candidates(options.shape, options.device)
    rows, columns = (
        (options.rows, options.columns) if options.rows else choose(launches, tried, options.target)
    )
    truth = launches.ratio(rows, columns, seconds=options.truth_seconds)
    del launches
    if options.device != "cpu":
        torch.cuda.empty_cache()
    settings: dict[str, object] = {
        "time_budget": options.time_budget,
        "processes": options.processes,
    }
    if options.interval_width:
        settings["interval_width"] = options.interval_width
    work = {"rows": rows, "columns": columns}
    plain = [{"copy": 2 * number, "rows": 0, "columns": 0} for number in range(options.groups)]
    again = [{**values, "copy": values["copy"] + 1} for values in plain]
    slowed = [{**values, **work} for values in plain]
    results, seconds = proof.measure(
        [one for group in zip(plain, again, slowed, strict=True) for one in group],
        shape=options.shape,
        dtype=dtype,
        device=options.device,
        group=3,
        settings=settings,
        experiment=proof.folder(options) / f"slowdown-{options.shape}",
    )
    confidence = 1 - proof.NOMINAL
    alike = proof.judge_pairs(results, zip(plain, again, strict=True), confidence)
    pairs = proof.judge_pairs(results, zip(plain, slowed, strict=True), confidence)
    what, cost = f"{options.shape} {dtype}", seconds / len(results)
    alarms = proof.rates(alike, (Difference.SLOWER, Difference.FASTER), what, cost)
    powers = proof.rates(pairs, (Difference.SLOWER,), f"{what}, {truth.ratio - 1:+.2%}", cost)
    report = {
        "environment": proof.environment_line(results),
        "settings": settings,
        "extra": work,
        "truth": truth,
        "alarms": alarms,
        "powers": powers,
        "called_faster": sum(pair.verdict is Difference.FASTER for pair in pairs),
        "covered": sum(
            pair.low <= truth.ratio <= pair.high
            for pair in pairs
            if pair.low is not None and pair.high is not None
        ),
        "sampled_seconds": proof.sampled_seconds(results),
        "alike": alike,
        "pairs": pairs,
    }
    print(text(report, (rows, columns), truth, alarms, powers, pairs))
    return report


def text(
    report: Mapping[str, object],
    extra: tuple[int, int],
    truth: Truth,
    alarms: Sequence[proof.Rate],
    powers: Sequence[proof.Rate],
    pairs: Sequence[proof.Pair],
) -> str:
    """What is printed: the extra work, both tables, how near the ratios come."""
    rows, columns = extra
    lines = [
        f"planted slowdown, nominal level {proof.NOMINAL:.0%}: {report['environment']}",
        f"extra work: {rows}×{columns} of C again, {truth.ratio - 1:+.3%} "
        f"({truth.low - 1:+.3%} to {truth.high - 1:+.3%}, {truth.blocks} × 4 blocks of "
        f"{truth.launches_per_block} launches)\n\nfound\n",
        proof.HEADER,
        *(rate.row(is_alarm=False) for rate in powers),
        f"\nfalse alarms, the same kernel twice\n\n{proof.HEADER}",
        *(rate.row(is_alarm=True) for rate in alarms),
        f"\nmedian of the ratios {statistics.median(p.ratio for p in pairs) - 1:+.3%}; called "
        f"faster: {report['called_faster']}; intervals that hold the independent figure: "
        f"{report['covered']} of {len(pairs)}; {report['sampled_seconds']:.3g} s of samples a side"
        f"{proof.not_paired(pairs)}",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    proof.add_common(parser)
    parser.add_argument("--groups", type=int, default=100, help="of three dispatches")
    parser.add_argument("--shape", default="8192x8192x8192", help="MxNxK")
    parser.add_argument("--target", type=float, default=0.01, help="wanted slowdown")
    parser.add_argument("--rows", type=int, help="of the extra work, instead of choosing it")
    parser.add_argument("--columns", type=int, help="of the extra work")
    parser.add_argument("--truth-seconds", type=float, default=10.0)
    parser.add_argument("--time-budget", default="2s", help="of one dispatch")
    parser.add_argument("--interval-width", type=float, help="where sampling stops; default: own")
    options = parser.parse_args()
    if bool(options.rows) != bool(options.columns):
        parser.error("--rows and --columns belong together")
    proof.write_json(options.json, run(options))


if __name__ == "__main__":
    main()
