"""Everything, or as many as the limit allows: those with the shortest predicted times."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.random import Generator

from gemmetry.tuning.search import SearchSpace
from gemmetry.tuning.strategies.fixed import FixedStrategy


def create(spaces: Sequence[SearchSpace], limits: Sequence[int], _rng: Generator) -> FixedStrategy:
    """See :func:`gemmetry.tuning.search.make_strategy`."""
    return FixedStrategy(space.order[:limit] for space, limit in zip(spaces, limits, strict=True))
