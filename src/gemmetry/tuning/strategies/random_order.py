"""Configurations drawn without replacement; each is as likely as every other."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.random import Generator

from gemmetry.tuning.search import SearchSpace
from gemmetry.tuning.strategies.fixed import FixedStrategy


def create(spaces: Sequence[SearchSpace], limits: Sequence[int], rng: Generator) -> FixedStrategy:
    """See :func:`gemmetry.tuning.search.make_strategy`."""
    return FixedStrategy(
        rng.permutation(len(space))[:limit].tolist()
        for space, limit in zip(spaces, limits, strict=True)
    )
