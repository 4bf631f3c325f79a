"""Two reports of counters, whose launches are lines of ``comparison.txt``: `count` launches of a
kernel, that differ by half a percent where they are `noisy`."""

from __future__ import annotations

import numpy as np

from gemmetry.counters.comparison import CounterReport, compare_counters, variants_of
from gemmetry.counters.gates import diagnose


def shown(change):
    """Zeros are shown, and what is not known."""
    low, high = change.interval or (None, None)
    values = {"first": change.first, "second": change.second, "ratio": change.ratio,
              "difference": change.difference, "low": low, "high": high}  # fmt: skip
    texts = {
        name: str(value) if value is None else f"{value:.6g}" for name, value in values.items()
    }
    return f"  {change.metric}", {"verdict": change.verdict, **texts}


def test_comparison(case, counter_launches):
    made, options, metrics = {"a": [], "b": []}, {}, []
    for what, plain, given in case.calls():
        if what not in made:
            metrics = plain
            options = given
            continue
        values, info = given.pop("values", {}), {"block": (128, 1, 1), "grid": (1, 1, 1)}
        count, is_noisy, ns = (given.pop(*one) for one in (("count", 1), ("noisy", 0), ("ns", 1e5)))
        info["grid"] = (given.pop("grid", 1), 1, 1)
        for shift in np.linspace(-0.004, 0.004, count) if is_noisy else [0.0] * count:
            found = counter_launches.metrics(**given, gpu__time_duration___sum=ns * (1 + shift))
            made[what].append(counter_launches.launch({**found, **values}, *plain, **info))
    reports = [CounterReport(label, "", variants_of(one, list(map(diagnose, one))))
               for label, one in made.items()]  # fmt: skip
    found, lines = compare_counters(reports, **options), []
    for kernel in found.kernels:
        names = [f"{one.name} {one.launches[0].info.grid[0]} x{len(one.launches)}"
                 for one in (kernel.first, kernel.second)]  # fmt: skip
        facts = {"by": kernel.matched_by, "new": kernel.new, "gone": kernel.gone}
        lines.append((" and ".join(names), {**facts, "note": kernel.note}))
        lines += [shown(one) for one in kernel.metrics if one.metric in metrics]
    case.check([*lines, *(f"only in {label}: {name}" for label, name in found.unmatched)])
