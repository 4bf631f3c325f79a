"""A/A test: the same dispatch registered many times, compared in pairs. Every difference is false.

    python benchmarks/aa_test.py --device cuda:0 --shapes 1024x1024x1024,4096x4096x4096
    python benchmarks/aa_test.py --device cpu --shapes 512x512x512

The engine measures configurations of ``slowed_product.py`` that are all alike, interleaved as in
any run, each with buffers of its own; configuration 2i+1 is then compared with 2i by what
``gemmetry compare`` uses, at the nominal level of 2 %. Printed are the share of pairs with another
verdict than "no difference shown" and its one-sided 95 % Clopper-Pearson bound.
"""

from __future__ import annotations

import argparse
import statistics

import timing_proof as proof

from gemmetry.statistics.comparison import Difference

DIFFERENT = (Difference.FASTER, Difference.SLOWER)


def run(options: argparse.Namespace) -> dict[str, object]:
    """Measure, judge, and print the table."""
    shapes = options.shapes.split(",")
    pairs_each = -(-options.pairs // len(shapes))
    settings = {"time_budget": options.time_budget, "processes": options.processes}
    if options.interval_width:
        settings["interval_width"] = options.interval_width
    rates: list[proof.Rate] = []
    found: dict[str, list[proof.Pair]] = {}
    sampled: dict[str, float] = {}
    environment, total_seconds = "", 0.0
    for shape in shapes:
        copies = [{"copy": number} for number in range(2 * pairs_each)]
        results, seconds = proof.measure(
            copies,
            shape=shape,
            dtype=proof.dtype(options),
            device=options.device,
            group=options.group,
            settings=settings,
            experiment=proof.folder(options) / f"aa-{shape}",
        )
        environment, total_seconds = proof.environment_line(results), total_seconds + seconds
        found[shape] = proof.judge_pairs(
            results, zip(copies[::2], copies[1::2], strict=True), 1 - proof.NOMINAL
        )
        sampled[shape] = proof.sampled_seconds(results)
        what = f"{shape} {proof.dtype(options)}"
        rates += proof.rates(found[shape], DIFFERENT, what, seconds / len(copies))
    everything = [pair for pairs in found.values() for pair in pairs]
    if len(shapes) > 1:
        seconds = total_seconds / (2 * len(everything))
        rates += proof.rates(everything, DIFFERENT, f"all {proof.dtype(options)}", seconds)
    print(f"A/A, nominal level {proof.NOMINAL:.0%}: {environment}\n\n{proof.HEADER}")
    for one in rates:
        print(one.row(is_alarm=True))
    for shape, pairs in found.items():
        print(
            f"\n{shape}: {describe(pairs)}; {sampled[shape]:.3g} s of samples a side"
            f"{proof.not_paired(pairs)}"
        )
    return {
        "environment": environment,
        "settings": settings,
        "group": options.group,
        "rates": rates,
        "sampled_seconds": sampled,
        "pairs": found,
    }


def describe(pairs: list[proof.Pair]) -> str:
    """How far apart equal dispatches come out, and how wide the intervals are."""
    apart = sorted(abs(pair.ratio - 1) for pair in pairs)
    worst = apart[min(len(apart) - 1, int(0.98 * len(apart)))]
    widths = [
        (pair.high - pair.low) / 2
        for pair in pairs
        if pair.low is not None and pair.high is not None
    ]
    width = f"±{statistics.median(widths):.3%} in the median" if widths else "n/a"
    return (
        f"ratios differ from 1 by {statistics.median(apart):.3%} in the median and {worst:.3%} "
        f"at the 98th percentile; interval of a ratio {width}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    proof.add_common(parser)
    parser.add_argument("--pairs", type=int, default=400, help="in all, spread over the shapes")
    parser.add_argument("--shapes", "--shape", default="4096x4096x4096", help="MxNxK,MxNxK")
    parser.add_argument("--group", type=int, default=2, help="dispatches interleaved at a time")
    parser.add_argument("--time-budget", default="2s", help="of one dispatch")
    parser.add_argument("--interval-width", type=float, help="where sampling stops; default: own")
    options = parser.parse_args()
    proof.write_json(options.json, run(options))


if __name__ == "__main__":
    main()
