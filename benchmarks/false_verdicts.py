"""How often a comparison is wrong, and how often it decides, on simulated noise.

    python benchmarks/false_verdicts.py
    python benchmarks/false_verdicts.py --families 1000 --size 60

A family is a baseline and `--size` dispatches that were sampled in turns with it, each turn in
another order, as the engine does. Most of them are as fast as the baseline; a false alarm is a
family in which any of these is *faster* or *slower*. Each family also has one dispatch that takes
1.12 times as long, of which *faster* and *no difference shown* are false (a difference of more than
5 · 2 % counts as gross), and one that takes eight times as long, which should be decided.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import proportions

from gemmetry.statistics.comparison import Difference, compare_rounds

LAUNCH_NS = 1e5
RELEVANT = 0.02
SAMPLES = 8
"""Samples of a round."""

CLOSE, GROSS = 1.12, 8.0
"""Times the baseline's duration."""

Values = npt.NDArray[np.float64]
Factors = Callable[[np.random.Generator, int, int], Values]
"""Factors on the durations of rounds, one row per turn and one column per place within the turn."""


def heavy_tails(rng: np.random.Generator, turns: int, places: int) -> Values:
    """Rounds are independent, and one in five is longer by a factor without a limit (Pareto)."""
    is_off = rng.random((turns, places)) < 0.2
    return (
        1
        + 0.01 * np.abs(rng.standard_normal((turns, places)))
        + is_off * rng.pareto(1.0, (turns, places))
    )


def drift(rng: np.random.Generator, turns: int, places: int) -> Values:
    """The clock falls by a fifth during the run and wanders by a percent from place to place."""
    steps = 0.01 * rng.standard_normal(turns * places)
    falling = np.linspace(0, 0.2, turns * places)
    return np.asarray(np.exp(falling + np.cumsum(steps))).reshape(turns, places)


def busy_spells(rng: np.random.Generator, turns: int, places: int) -> Values:
    """Another program comes and goes, for about three turns at a time; meanwhile half of the rounds
    take up to thirty times as long."""
    change, busy, states = 1 / (3 * places), False, []
    for draw in rng.random(turns * places):
        busy = busy != (draw < change)
        states.append(busy)
    is_off = np.reshape(states, (turns, places)) & (rng.random((turns, places)) < 0.5)
    return np.asarray(np.where(is_off, 30 ** rng.random((turns, places)), 1.0)) * np.exp(
        0.01 * rng.standard_normal((turns, places))
    )


NOISES: dict[str, Factors] = {
    "heavy tails": heavy_tails,
    "drift": drift,
    "busy spells": busy_spells,
}


def family_of(
    rng: np.random.Generator, factors: Factors, launches_ns: Sequence[float], turns: int
) -> list[dict[int, Values]]:
    """The rounds of each dispatch; the baseline has three times as many turns as the others, as one
    has whose interval is still too wide."""
    found: list[dict[int, Values]] = [{} for _ in launches_ns]
    levels = factors(rng, 3 * turns, len(launches_ns))
    for turn, row in enumerate(levels):
        for place, number in enumerate(rng.permutation(len(launches_ns))):
            if turn < turns or number == 0:
                noise = np.exp(0.01 * rng.standard_normal(SAMPLES))
                found[number][turn] = launches_ns[number] * row[place] * noise
    return found


def simulate(factors: Factors, *, families: int, size: int, turns: int, seed: int) -> Counter[str]:
    """How many families had a false verdict, and how many decided on what takes eight times as
    long."""
    rng = np.random.default_rng(seed)
    counts: Counter[str] = Counter()
    launches_ns = [LAUNCH_NS * ratio for ratio in (1.0, CLOSE, GROSS, *[1.0] * (size - 2))]
    for _ in range(families):
        baseline, *others = family_of(rng, factors, launches_ns, turns)
        for relevant in (0.0, RELEVANT):
            close, gross, *equal = (
                compare_rounds(baseline, one, family=size, relevant=relevant).verdict
                for one in others
            )
            false = any(one in (Difference.FASTER, Difference.SLOWER) for one in equal)
            false |= close in (Difference.FASTER, Difference.NONE_SHOWN)
            false |= gross not in (Difference.SLOWER, Difference.UNDECIDED)
            counts[f"false {relevant}"] += false
            counts[f"decided {relevant}"] += gross is Difference.SLOWER
    return counts


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--families", type=int, default=200)
    parser.add_argument("--size", type=int, default=20, help="comparisons of a family")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    families = options.families
    print(f"{families} families of {options.size} comparisons, false verdicts of any difference")
    print("| noise | turns | false, any difference | false, more than 2 % | bound | 8× decided |")
    print("|---|---|---|---|---|---|")
    for name, factors in NOISES.items():
        for turns in (12, 36):
            counts = simulate(
                factors, families=families, size=options.size, turns=turns, seed=options.seed
            )
            anything, relevant = counts["false 0.0"], counts[f"false {RELEVANT}"]
            bound = proportions.upper_bound(anything, families)
            print(
                f"| {name} | {turns} | {anything} | {relevant} | {bound:.1%} | "
                f"{counts[f'decided {RELEVANT}']} |"
            )


if __name__ == "__main__":
    main()
