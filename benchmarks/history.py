"""How fast a history is checked, how often a change is found where there is none, and how soon one
that is there.

    python benchmarks/history.py
    python benchmarks/history.py --series 200 --runs 60

Histories are synthetic (``tests/histories.py``): each problem has a reference and two more
dispatches, and each run a level of its own. False alarms are counted for all series together, as
`gemmetry history check` judges them, for several kinds of noise around a constant level, and for
levels that drift.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gemmetry.history.api import load
from gemmetry.history.changes import ChangeCause, device_history, history_changes
from gemmetry.history.folder import StoredHistory, append, read_history
from gemmetry.history.show import write_site

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
import histories

THRESHOLD = 0.02
NOISE = 0.02
"""Relative, of each dispatch in each run where false alarms are counted: as much as counts as a
change, so that none is hidden by being too small."""

DRIFT = 0.05
"""Relative, from the first run to the last."""

POWERS = (
    (1.02, 0.004, 0.02), (1.02, 0.004, 0.01), (1.02, 0.02, 0.01), (1.05, 0.004, 0.02),
    (1.10, 0.004, 0.02), (1.10, 0.02, 0.02),
)  # fmt: skip
"""Factors of slower kernels, with the noise of each dispatch and the threshold of the check."""

SINCE = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)
"""Runs after a change at which it is looked for."""

LENGTHS = (5, 8, 12, 20, 40)
"""Runs of young histories, the newest of which has a slower kernel."""

SIZES = (1.05, 1.10, 1.30, 1.50)
NOISES_OF_RUNS = (0.005, 0.01, 0.03)
"""Of each dispatch, and of the night in addition."""

YOUNG = (5, 8, 12, 60)
"""Lengths of histories in which false alarms are counted."""


def wander(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Half of the variance changes within days, as if machines were in one of several states."""
    slow = histories.correlated(0.8)(random, shape)
    return np.asarray((slow + histories.gaussian(random, shape)) / np.sqrt(2))


def machine_drift(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """All dispatches become slower together, by as much in each run, in total by :data:`DRIFT`."""
    return np.asarray(
        histories.gaussian(random, shape) + DRIFT / NOISE * np.linspace(0, 1, shape[-1])
    )


def own_drifts(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Each dispatch drifts by itself, in total by at most :data:`DRIFT` up or down."""
    totals = DRIFT / NOISE * random.uniform(-1, 1, size=(*shape[:-1], 1))
    return np.asarray(histories.gaussian(random, shape) + totals * np.linspace(0, 1, shape[-1]))


NOISES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": histories.gaussian,
    "heavy tails (Student, 2 degrees of freedom)": histories.heavy_tails,
    "neighbours correlate with 0.3": histories.correlated(0.3),
    "neighbours correlate with 0.6": histories.correlated(0.6),
    "slow states under normal noise": wander,
    "the machine drifts by 5 %": machine_drift,
    "each drifts by up to 5 % either way": own_drifts,
}


def false_alarms(kind: str, series: int, runs: int, *, seed: int = 1) -> Counter[str]:
    """Series without a change in which one was found, by its cause; ``alarms`` are those that
    `gemmetry history check` would fail on: slower kernels within the latest ten runs."""
    synthetic = histories.SyntheticHistory(
        shapes=-(-series // 3), runs=runs, noise=NOISE, kind=NOISES[kind], seed=seed
    )
    entries = synthetic.entries()
    found = history_changes(device_history(entries[0].device, entries), threshold=THRESHOLD)
    counts: Counter[str] = Counter()
    counts["series"] = len({one.series for one in found.changes})
    for one in found.changes:
        counts[str(one.cause)] += 1
        is_slower = one.shift is not None and one.shift.ratio > 1
        counts["alarms"] += one.cause is ChangeCause.KERNEL and is_slower and one.run >= runs - 10
    return counts


@dataclass(frozen=True, slots=True)
class Power:
    """Of planted slower kernels: what was found after the last of :data:`SINCE`."""

    found: int
    """With a change within three runs of the planted one, whatever its cause."""
    kernel: int
    """Judged to be changes of a kernel."""
    delays: tuple[int, ...]
    """Runs until each of these was first judged so, ascending."""


def power(
    factor: float, series: int, runs: int, *, planted: int = 10, noise: float = 0.004,
    threshold: float = THRESHOLD,
) -> Power:  # fmt: skip
    """How many of `planted` kernels that take `factor` times as long are found, and how soon. The
    history grows; it is judged as if each of its runs were the latest."""
    synthetic = histories.SyntheticHistory(
        shapes=-(-series // 3), runs=runs, noise=noise, host_noise=noise
    )
    first = runs - SINCE[-1]
    for shape in range(planted):
        synthetic.slow(factor, first, provider="triton", shape=shape)
    entries = synthetic.entries()
    expected = {synthetic.dispatch("triton", shape) for shape in range(planted)}
    delays: dict[str, int] = {}
    found: set[str] = set()
    for since in SINCE:
        device = device_history(entries[0].device, entries[: first + since])
        near = [
            (f"{key[0]}:{key[1]}", change.cause)
            for change in history_changes(device, threshold=threshold).changes
            for key in [device.keys[change.series]]
            if abs(change.run - first) <= 3
        ]
        found = {name for name, _ in near} & expected
        kernels = {name for name, cause in near if cause is ChangeCause.KERNEL} & expected
        delays = {name: delays.get(name, since) for name in kernels}
    return Power(len(found), len(delays), tuple(sorted(delays.values())))


@dataclass(frozen=True, slots=True)
class FirstRun:
    """Of histories whose newest run has a slower kernel, in 100: what their check shows."""

    found: float
    """An alarm for that kernel."""
    promised: float
    """By the mean chance that the checks of unchanged histories state for it."""
    others: float
    """An alarm for another dispatch."""


def first_run(
    factor: float, runs: int, noise: float, *, shapes: int = 4, histories_: int = 100
) -> FirstRun:
    """How often a kernel that takes `factor` times as long is an alarm in the first run after it,
    the last of `runs`, in a history of three dispatches for each of `shapes`."""
    found = others = 0
    promised = 0.0
    for seed in range(histories_):
        synthetic = histories.SyntheticHistory(
            shapes=shapes, runs=runs, noise=noise, host_noise=noise, seed=seed
        )
        entries = synthetic.entries()
        device = device_history(entries[0].device, entries)
        unchanged = history_changes(device, threshold=THRESHOLD)
        name = synthetic.dispatch("triton", 0)
        own = next(n for n, key in enumerate(device.keys) if f"{key[0]}:{key[1]}" == name)
        promised += unchanged.power(own, factor - 1, most_after=1).share
        synthetic.slow(factor, runs - 1, provider="triton", shape=0)
        entries = synthetic.entries()
        check = load(StoredHistory(runs={entries[0].device: entries}), latest=10,
                              threshold=THRESHOLD)  # fmt: skip
        alarms = {one.name for one in check.new if one.is_alarm}
        found += name in alarms
        others += bool(alarms - {name})
    return FirstRun(*(100 * count / histories_ for count in (found, promised, others)))


def speed(series: int, runs: int) -> dict[str, float]:
    """Seconds of processor time of each step, for a history with changes of all causes; MB."""
    synthetic = histories.SyntheticHistory(shapes=-(-series // 3), runs=runs)
    synthetic.slow(1.06, runs // 4)
    synthetic.slow(1.08, runs // 2, provider="triton", shape=0)
    synthetic.slow(0.9, runs // 2, provider="torch", shape=1)
    synthetic.slow(1.1, runs - 8, provider="iree", shape=2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        append(folder / "store", synthetic.entries())
        size = sum(path.stat().st_size for path in (folder / "store").iterdir())
        started = time.process_time()
        stored = read_history(folder / "store")
        read = time.process_time()
        check = load(stored, latest=10, threshold=THRESHOLD)
        checked = time.process_time()
        write_site(check, folder / "site", "GEMM history")
        written = time.process_time()
        files = sum(path.stat().st_size for path in (folder / "site").rglob("*.*"))
    return {
        "read": read - started,
        "check": checked - read,
        "site": written - checked,
        "store_mb": size / 1e6,
        "site_mb": files / 1e6,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=365)
    parser.add_argument("--histories", type=int, default=100)
    chosen = parser.parse_args(arguments)
    series, runs = chosen.series, chosen.runs
    print(f"{series} series of {runs} runs, processor time")
    took = speed(series, runs)
    print(f"| read | {took['read']:.1f} s | {took['store_mb']:.0f} MB |")
    print(f"| changes and causes | {took['check']:.1f} s | |")
    print(f"| site | {took['site']:.1f} s | {took['site_mb']:.0f} MB |")
    print("\n| noise | runs | series with a change | not noise | kernel | alarms |")
    print("|---|---|---|---|---|---|")
    for kind in NOISES:
        for length in sorted({*YOUNG, runs}):
            counts = false_alarms(kind, series, length)
            causes = sum(counts[cause] for cause in ChangeCause if cause is not ChangeCause.NOISE)
            print(f"| {kind} | {length} | {counts['series']} | {causes} | {counts['kernel']} "
                  f"| {counts['alarms']} |")  # fmt: skip
    heads = " | ".join(f"{length} runs" for length in LENGTHS)
    print(f"\n| noise | slower by | {heads} |")
    print("|---|---|" + "---|" * len(LENGTHS))
    for noise in NOISES_OF_RUNS:
        for factor in SIZES:
            shown = [first_run(factor, length, noise, histories_=chosen.histories)
                     for length in LENGTHS]  # fmt: skip
            cells = " | ".join(f"{one.found:.0f} ({one.promised:.0f})" for one in shown)
            print(f"| {noise:.1%} | {factor - 1:.0%} | {cells} |".replace("%", " %"))
    print("\n| slower by | noise | --threshold | found | kernel | half after | all after |")
    print("|---|---|---|---|---|---|---|")
    for factor, noise, threshold in POWERS:
        grown = power(factor, series, runs, noise=noise, threshold=threshold)
        half, last = (
            str(grown.delays[count - 1]) if len(grown.delays) >= count else "–" for count in (5, 10)
        )
        print(f"| {factor - 1:.0%} | {noise:.1%} | {threshold:.0%} | {grown.found} "
              f"| {grown.kernel} | {half} | {last} |".replace("%", " %"))  # fmt: skip


if __name__ == "__main__":
    main()
