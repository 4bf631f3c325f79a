"""Which configuration of a sweep has the shortest step, and whether that is shown or noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from gemmetry.analysis.sweeps.model import SweepConfiguration
from gemmetry.analysis.sweeps.ranks.cause import RELEVANT
from gemmetry.statistics.comparison import Comparison, Difference
from gemmetry.statistics.quantiles import median
from gemmetry.statistics.runs import compare_runs, run_spread

Runs = Mapping[SweepConfiguration, Sequence[Sequence[float]]]
"""Configuration -> times of the steps of each run."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One configuration compared with the best one."""

    configuration: SweepConfiguration
    mean_ms: float
    """Geometric mean over its runs of the run's median step, so that quotients are the ratios that
    are compared."""
    runs: int
    steps: int
    comparison: Comparison | None
    """Its time compared with that of the best one; None of the best one itself."""


@dataclass(frozen=True, slots=True)
class Best:
    """The configurations of a sweep by the time of a step, the shortest first."""

    ranked: tuple[Ranked, ...]

    @property
    def first(self) -> Ranked:
        """The configuration with the shortest step."""
        return self.ranked[0]

    @property
    def second(self) -> Ranked | None:
        """The next one; None of a sweep of one configuration."""
        return self.ranked[1] if len(self.ranked) > 1 else None

    @property
    def verdict(self) -> str:
        """How the best compares with the next: ``faster``, ``no difference shown``, ``undecided``;
        ``the only one``."""
        if self.second is None:
            return "the only one"
        assert self.second.comparison is not None
        found = self.second.comparison.verdict
        return Difference.FASTER if found is Difference.SLOWER else found

    @property
    def as_good(self) -> tuple[Ranked, ...]:
        """The other configurations that are not shown to be slower than the best."""
        return tuple(
            one
            for one in self.ranked[1:]
            if one.comparison is not None and one.comparison.verdict is not Difference.SLOWER
        )


def find_best(runs: Runs) -> Best | None:
    """The configurations by the time of a step; None where no run has steps.

    Each run is one observation, its median step; the spread between runs is estimated from all
    configurations together (:func:`~gemmetry.statistics.runs.compare_runs`), and the intervals of
    all comparisons with the best one hold together with 95 %.
    """
    medians = {
        configuration: [median(steps) for steps in found if len(steps)]
        for configuration, found in runs.items()
    }
    medians = {configuration: found for configuration, found in medians.items() if found}
    if not medians:
        return None
    means = {one: geometric_mean(found) for one, found in medians.items()}
    order = sorted(means, key=lambda one: (means[one], one.order))
    spread, family = run_spread(list(medians.values())), max(1, len(order) - 1)
    ranked = []
    for one in order:
        comparison = None
        if one is not order[0]:
            comparison = compare_runs(
                medians[order[0]], medians[one], spread, relevant=RELEVANT, family=family
            )
        steps = sum(map(len, runs[one]))
        ranked.append(Ranked(one, means[one], len(medians[one]), steps, comparison))
    return Best(tuple(ranked))
