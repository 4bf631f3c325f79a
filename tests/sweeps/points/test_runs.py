"""The best configuration of a sweep and the effects of settings. In ``runs.txt``, a line ``run``
has threads, channels and steps in ms, and further axes."""

from __future__ import annotations

from gemmetry.sweeps.points import find_best, setting_effects
from gemmetry.sweeps.rows import SweepConfiguration


def test_runs(case):
    runs = {}
    for _, (threads, channels, *steps), axes in case.calls():
        one = SweepConfiguration(threads, channels, tuple(axes.items()))
        runs.setdefault(one, []).append(steps)
    best = find_best(runs)
    lines = [("best", {"verdict": best.verdict})] if best else []
    for one in best.ranked if best else ():
        found = one.comparison
        values = {"mean": one.mean_ms, "runs": one.runs, "as_good": one in best.as_good}
        if found is not None:
            ends = {"low": found.ratio_low, "high": found.ratio_high}
            values |= {"verdict": found.verdict, "ratio": found.ratio, **ends}
        lines.append((one.configuration.label, values))
    for one in setting_effects(runs):
        pairs = {"pairs": one.pairs, "verdict": one.comparison.verdict}
        change = f"{one.name} from {one.before} to {one.after}"
        lines.append((change, {**pairs, "ratio": one.comparison.ratio}))
    case.check(lines)
