"""Successive halving (Jamieson and Talwalkar, AISTATS 2016): many configurations with few samples,
then the best third of them with three times as many, until all samples are taken of the last.
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.random import Generator

from gemmetry.tuning.search import EFFORTS, SearchSpace, SearchTrial


class Halving:
    """Each rung of a space costs an equal part of its limit. The first one takes the configurations
    with the shortest predicted times."""

    def __init__(self, spaces: Sequence[SearchSpace], limits: Sequence[int]) -> None:
        self._rungs = [_places(limit) for limit in limits]
        self._left = [space.order for space in spaces]
        self._learned: list[list[tuple[float, int]]] = [[] for _ in spaces]
        self._effort = 0

    def ask(self) -> Sequence[SearchTrial]:
        """The next rung of all spaces."""
        while self._effort < len(EFFORTS):
            effort = self._effort
            self._effort += 1
            trials = []
            for index, places in enumerate(self._rungs):
                if self._learned[index]:
                    self._left[index] = [one for _, one in sorted(self._learned[index])]
                    self._learned[index] = []
                trials += [
                    SearchTrial(index, one, effort) for one in self._left[index][: places[effort]]
                ]
            if trials:
                return trials
        return []

    def learn(self, trial: SearchTrial, ns: float | None) -> None:
        """Note who may survive."""
        if ns is not None:
            self._learned[trial.space].append((ns, trial.candidate))


def _places(limit: int) -> list[int]:
    """How many configurations each rung takes. At least one is measured with all samples, and the
    other rungs share what is left."""
    last = max(1, limit // len(EFFORTS)) if limit else 0
    share = (limit - last) / (len(EFFORTS) - 1)
    return [*(int(share / effort + 1e-9) for effort in EFFORTS[:-1]), last]


def create(spaces: Sequence[SearchSpace], limits: Sequence[int], _rng: Generator) -> Halving:
    """See :func:`gemmetry.tuning.search.make_strategy`."""
    return Halving(spaces, limits)
