"""In which kernel a late rank loses its time, compared with the ranks that wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gemmetry.analysis.sweeps.collectives.lateness import Times, lower_bound, median_excess
from gemmetry.analysis.sweeps.model import RankFacts

IDLE = "idle: the host submits its work late"
EVERYWHERE = "all kernels: its GPU computes more slowly"

EXPLAINED = 0.5
"""A cause is named if it accounts for at least this share of the delay."""


class LostTime(NamedTuple):
    """What a rank spends more time on than the others."""

    cause: str
    """A kernel, :data:`IDLE` or :data:`EVERYWHERE`."""
    per_step: Times
    """By how much, in ns."""
    is_kernel: bool = False


def find_lost_time(
    rank: int, ranks: Sequence[RankFacts], steps: Sequence[int], delay_ns: float
) -> LostTime | None:
    """The cause of a rank's delay of `delay_ns` per step in `steps`; None if none is shown.

    It is the kernel whose time exceeds that of the other ranks the most, then time without work,
    then all kernels together.
    """
    by_rank = {facts.rank: facts for facts in reversed(ranks) if facts.rank is not None}
    own = by_rank.pop(rank)
    others = list(by_rank.values())
    if not others:
        return None
    found = _kernels(own, others, steps)
    idle = _excess(own, others, steps, "idle_ns")
    compute = _excess(own, others, steps, "compute_ns")
    candidates = [*found, LostTime(IDLE, idle), LostTime(EVERYWHERE, compute)]
    for one in candidates:
        if float(np.mean(one.per_step)) >= EXPLAINED * delay_ns:
            return one
    return None


def _kernels(own: RankFacts, others: Sequence[RankFacts], steps: Sequence[int]) -> list[LostTime]:
    """The kernels that are shown to take the rank more time, the largest difference first."""
    tables = [_by_kernel(facts, steps) for facts in others]
    nothing = np.zeros(len(steps))
    found = []
    names = own.kernel_times.names
    for name, times in _by_kernel(own, steps).items():
        excess = median_excess(times, [table.get(name, nothing) for table in tables])
        if lower_bound(excess, len(names) * (len(others) + 1)) > 0:
            found.append(LostTime(name, excess, True))
    return sorted(found, key=lambda one: -float(np.mean(one.per_step)))


def _by_kernel(facts: RankFacts, steps: Sequence[int]) -> dict[str, Times]:
    places = {step.number: place for place, step in enumerate(facts.steps)}
    rows = [places[number] for number in steps]
    table = facts.kernel_times.per_step[rows].astype(np.float64)
    return dict(zip(facts.kernel_times.names, table.T, strict=True))


def _excess(own: RankFacts, others: Sequence[RankFacts], steps: Sequence[int], field: str) -> Times:
    def values(facts: RankFacts) -> Times:
        by_number = {step.number: getattr(step, field) for step in facts.steps}
        return np.array([by_number[number] for number in steps], np.float64)

    return median_excess(values(own), [values(facts) for facts in others])
