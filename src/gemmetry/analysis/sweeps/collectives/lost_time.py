"""In which kernel a late rank loses its time, compared with the ranks that wait for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
    """By how much in each step, in ns."""
    is_kernel: bool = False


def find_lost_time(
    rank: int,
    ranks: Sequence[RankFacts],
    steps: Sequence[int],
    begin: int,
    delay_ns: float,
) -> LostTime | None:
    """The cause of a rank's delay of `delay_ns` per step in ``steps[begin:]``, with its times in
    all `steps`; None if none is shown.

    It is the kernel whose time exceeds that of the other ranks the most, then time without work,
    then all kernels together.
    """
    by_rank = {facts.rank: facts for facts in reversed(ranks) if facts.rank is not None}
    if len(by_rank) < 2:
        return None
    alone = _own_kernels(by_rank, steps)
    ignored = alone[rank] if _only_names_differ(alone, rank, EXPLAINED * delay_ns) else {}
    kernels = _kernels(rank, by_rank, steps, begin)
    found = [one for one in kernels if one.cause not in ignored]
    own = by_rank.pop(rank)
    others = list(by_rank.values())
    idle = _excess(own, others, steps, "idle_ns")
    compute = _excess(own, others, steps, "compute_ns")
    candidates = [*found, LostTime(IDLE, idle), LostTime(EVERYWHERE, compute)]
    for one in candidates:
        if float(np.mean(one.per_step[begin:])) >= EXPLAINED * delay_ns:
            return one
    return None


def find_own_kernel(
    rank: int, ranks: Sequence[RankFacts], steps: Sequence[int], begin: int, delays: Times
) -> LostTime | None:
    """The kernel that no other rank runs and that accounts for half of the rank's delay in each of
    ``steps[begin:]``, with its times in all `steps`; None without one.

    It needs no interval: that one rank alone runs a kernel is no chance.
    """
    by_rank = {facts.rank: facts for facts in reversed(ranks) if facts.rank is not None}
    least = EXPLAINED * delays
    alone = _own_kernels(by_rank, steps)
    if _only_names_differ(alone, rank, float(least[begin:].min())):
        return None
    found = [
        LostTime(name, times, True)
        for name, times in alone[rank].items()
        if bool((times[begin:] >= least[begin:]).all())
    ]
    return max(found, key=lambda one: float(np.mean(one.per_step)), default=None)


def _own_kernels(
    by_rank: Mapping[int, RankFacts], steps: Sequence[int]
) -> dict[int, dict[str, Times]]:
    """Of each rank, the kernels that no other rank runs, and their times in each step."""
    tables = {
        rank: {name: times for name, times in _by_kernel(facts, steps).items() if times.any()}
        for rank, facts in by_rank.items()
    }
    users = Counter(name for table in tables.values() for name in table)
    return {
        rank: {name: times for name, times in table.items() if users[name] == 1}
        for rank, table in tables.items()
    }


def _only_names_differ(
    alone: Mapping[int, Mapping[str, Times]], rank: int, least_ns: float
) -> bool:
    """Whether another rank also has a kernel to itself that takes at least so long in the mean
    step: then names contain the rank, and show nothing about what it does."""
    return any(
        float(np.mean(times)) >= least_ns
        for other, kernels in alone.items()
        if other != rank
        for times in kernels.values()
    )


def _kernels(
    rank: int, by_rank: Mapping[int, RankFacts], steps: Sequence[int], begin: int
) -> list[LostTime]:
    """The kernels that are shown to take the rank more time, the largest difference first."""
    own = by_rank[rank]
    tables = [_by_kernel(facts, steps) for one, facts in by_rank.items() if one != rank]
    nothing = np.zeros(len(steps))
    family = max(1, len(own.kernel_times.names)) * len(by_rank)
    found = []
    for name, times in _by_kernel(own, steps).items():
        excess = median_excess(times, [table.get(name, nothing) for table in tables])
        if lower_bound(excess[begin:], family) > 0:
            found.append(LostTime(name, excess, True))
    return sorted(found, key=lambda one: -float(np.mean(one.per_step[begin:])))


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
