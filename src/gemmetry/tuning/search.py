"""The loop of a search: what the strategy asks for is measured, and it learns the times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gemmetry.tuning.strategy import SearchTrial, TuningStrategy

Measure = Callable[[Sequence[SearchTrial]], Mapping[SearchTrial, float | None]]
"""Measures trials: the median of each in ns, None where it failed or was wrong. Trials for which
there was no time are left out."""


@dataclass(slots=True)
class SearchHistory:
    """The trials of a search and their times."""

    times: dict[SearchTrial, float | None] = field(default_factory=dict)
    is_complete: bool = True
    """False where the time ended before the search."""

    def ranked(self, space: int) -> list[int]:
        """The measured configurations of a space, the fastest first: those with the most samples
        before those that fell out earlier."""
        best: dict[int, tuple[int, float]] = {}
        for trial, ns in self.times.items():
            if trial.space == space and ns is not None:
                rank = (-trial.effort, ns)
                best[trial.candidate] = min(rank, best.get(trial.candidate, rank))
        return sorted(best, key=lambda one: best[one])

    def count(self, space: int) -> int:
        """Configurations of a space that were tried."""
        return len({trial.candidate for trial in self.times if trial.space == space})

    def failed(self, space: int) -> int:
        """Those of them that failed or were wrong."""
        return len({trial.candidate for trial, ns in self.times.items()
                    if trial.space == space and ns is None})  # fmt: skip

    def cost(self, space: int) -> float:
        """Evaluations of a space, short trials in proportion."""
        return sum(trial.cost for trial in self.times if trial.space == space)


def search(strategy: TuningStrategy, measure: Measure) -> SearchHistory:
    """Run a search to its end, or until `measure` leaves out a trial."""
    history = SearchHistory()
    while trials := strategy.ask():
        found = measure(trials)
        for trial in trials:
            if trial in found:
                history.times[trial] = found[trial]
                strategy.learn(trial, found[trial])
        if len(found) < len(trials):
            history.is_complete = False
            break
    return history
