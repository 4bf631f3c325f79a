"""A strategy that knows from the start what it measures, in one batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmetry.tuning.search import SearchTrial


class FixedStrategy:
    """Measures the given configurations of each space."""

    def __init__(self, chosen: Iterable[Sequence[int]]) -> None:
        self._trials = [SearchTrial(s, c) for s, picks in enumerate(chosen) for c in picks]

    def ask(self) -> Sequence[SearchTrial]:
        """Everything at once, then nothing."""
        trials, self._trials = self._trials, []
        return trials

    def learn(self, trial: SearchTrial, ns: float | None) -> None:
        """Nothing depends on times."""
