"""Replays a stored exhaustive run, so that strategies are compared without measuring anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemmetry.analysis.dispatches.baseline import geometric_mean
from gemmetry.tuning.search import search
from gemmetry.tuning.space import SearchSpace
from gemmetry.tuning.strategy import EFFORTS, Limit, SearchTrial, make_strategy

BUDGETS = (0.01, 0.05, 0.10)
"""Shares of the evaluations of an exhaustive search that are compared."""
SEEDS = 20
FINALISTS = 3
"""Configurations of a shape that are measured again, precisely, at the end of a search."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredSpace:
    """A space of which every configuration was measured."""

    space: SearchSpace
    times_ns: tuple[float | None, ...]
    """Median of each configuration; None where it failed or was wrong."""
    errors: tuple[float, ...]
    """Relative standard error of each median, from its interval."""

    @property
    def best_ns(self) -> float:
        return min(ns for ns in self.times_ns if ns is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedShare:
    """How a strategy does with a budget: the time of the exhaustive best over that of what it
    found, at most 1, as geometric mean over the shapes."""

    strategy: str
    budget: float
    """Share of the evaluations."""
    evaluations: float
    """Number of evaluations of a shape, on average."""
    mean: float
    """Mean over the seeds."""
    lowest: float
    highest: float
    """Of all seeds."""
    by_shape: tuple[float, ...]
    """Geometric mean over the seeds, for each shape."""


def simulate(
    measured: Sequence[MeasuredSpace],
    strategies: Sequence[str],
    budgets: Sequence[float] = BUDGETS,
    seeds: int = SEEDS,
) -> list[SimulatedShare]:
    """How each strategy does with each budget.

    A trial varies around the stored median as another one with its number of samples would, by
    the stored interval. Of the :data:`FINALISTS` that are then the fastest, the finals find the
    one with the shortest stored median. Where nothing that was tried worked, the share is 0.

    Raises:
        UnknownNameError, RequestError: there is no such strategy, or its library is missing.
    """
    found = []
    for name in strategies:
        for budget in budgets:
            runs = [_run(measured, name, budget, seed) for seed in range(seeds)]
            shares = [[share for share, _ in run] for run in runs]
            means = [geometric_mean(run) if min(run) > 0 else 0.0 for run in shares]
            known = [mean for mean in means if mean is not None]
            found.append(
                SimulatedShare(
                    strategy=name,
                    budget=budget,
                    evaluations=float(np.mean([cost for run in runs for _, cost in run])),
                    mean=math.fsum(known) / len(known),
                    lowest=min(known),
                    highest=max(known),
                    by_shape=tuple(_mean(one) for one in zip(*shares, strict=True)),
                )
            )
    return found


def _mean(values: Sequence[float]) -> float:
    return (geometric_mean(values) or 0.0) if min(values) > 0 else 0.0


def _run(
    measured: Sequence[MeasuredSpace], name: str, budget: float, seed: int
) -> list[tuple[float, float]]:
    """Of each shape: the share that was found, and what it cost."""
    spaces = [one.space for one in measured]
    strategy = make_strategy(name, spaces, Limit(share=budget), seed)
    rng = np.random.default_rng((seed, 1))

    def measure(trials: Sequence[SearchTrial]) -> Mapping[SearchTrial, float | None]:
        return {trial: _observed(measured[trial.space], trial, rng) for trial in trials}

    history = search(strategy, measure)
    found = []
    for index, one in enumerate(measured):
        finals = [one.times_ns[best] or math.inf for best in history.ranked(index)[:FINALISTS]]
        found.append((one.best_ns / min(finals, default=math.inf), history.cost(index)))
    return found


def _observed(
    measured: MeasuredSpace, trial: SearchTrial, rng: np.random.Generator
) -> float | None:
    ns = measured.times_ns[trial.candidate]
    if ns is None:
        return None
    # The median of n samples varies with 1 / sqrt(n).
    spread = measured.errors[trial.candidate] / math.sqrt(EFFORTS[trial.effort])
    return ns * math.exp(spread * rng.standard_normal())
