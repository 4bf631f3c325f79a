"""What the time of a step at one point consists of.

The ranks of a step wait for each other, so the slowest one decides: the step's time is the longest
window of any rank, and its parts are that rank's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from gemmetry.analysis.sweeps.model import GemmKind, StepFacts
from gemmetry.analysis.sweeps.points.pooled import PooledGemm
from gemmetry.analysis.sweeps.ranks.cause import excess_ns
from gemmetry.analysis.sweeps.ranks.gemms import members_of
from gemmetry.analysis.sweeps.ranks.worker import RankAnalysis
from gemmetry.statistics.intervals import median_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One step of a point: that of its slowest rank, in ns. The parts add up to the window."""

    number: int
    rank: int | None
    """The slowest rank."""
    window_ns: int
    compute_ns: int
    """Computing, as if nothing were slowed."""
    slowed_ns: int | None
    """By how much communication lengthened GEMMs (an estimate); None where no GEMM could be judged,
    so that `compute_ns` may include it."""
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """The steps of a point in ms: the median step, and what it consists of.

    The parts are those of the median step, or the mean of the two middle ones, and so add up to the
    median.
    """

    median_ms: float
    low_ms: float | None
    """95 % interval of the median; None of fewer than 6 steps."""
    high_ms: float | None
    count: int
    compute_ms: float
    slowed_compute_ms: float | None
    exposed_comm_ms: float
    exposed_copy_ms: float
    idle_ms: float
    slowest_ranks: dict[int, int]
    """Rank -> number of steps in which it was the slowest, those with the most first."""


def step_times(ranks: Sequence[RankAnalysis], pooled: Sequence[PooledGemm]) -> tuple[StepTime, ...]:
    """The steps that all `ranks` of a point recorded, by number.

    Args:
        pooled: the point's GEMMs: those that are shown to be slowed count as slowed compute.
    """
    if not ranks:
        return ()
    slowed = {gemm.kind for gemm in pooled if gemm.is_slowed}
    # Without any overlap, and where an effect is excluded, nothing is slowed.
    is_known = bool(slowed) or all(
        gemm.verdict in ("no difference shown", "faster", "not overlapped") for gemm in pooled
    )
    of_ranks = [{step.number: step for step in rank.facts.steps} for rank in ranks]
    shared = sorted(set.intersection(*(set(steps) for steps in of_ranks)))
    excess = [_excess(rank, slowed) for rank in ranks]
    found = []
    for number in shared:
        steps = [steps[number] for steps in of_ranks]
        place = max(range(len(ranks)), key=lambda at: steps[at].window_ns)
        slow = excess[place].get(number, 0) if is_known else None
        found.append(_step(steps[place], ranks[place].facts.rank, slow))
    return tuple(found)


def _excess(rank: RankAnalysis, slowed: Collection[GemmKind]) -> dict[int, int]:
    """Time by which the `slowed` GEMMs of each step took longer than alone, in ns."""
    found: dict[int, int] = {}
    facts = rank.facts
    for kind, chosen in zip(facts.gemm_kinds, members_of(facts), strict=True):
        if kind not in slowed:
            continue
        more, step = excess_ns(facts, chosen), facts.gemms.step[chosen]
        for number in np.unique(step).tolist():
            found[number] = found.get(number, 0) + int(more[step == number].sum())
    return found


def _step(facts: StepFacts, rank: int | None, slowed: int | None) -> StepTime:
    # GEMMs of several streams may be slowed at the same time, but not for longer than computing.
    slowed = None if slowed is None else min(max(slowed, 0), facts.compute_ns)
    return StepTime(
        number=facts.number,
        rank=rank,
        window_ns=facts.window_ns,
        compute_ns=facts.compute_ns - (slowed or 0),
        slowed_ns=slowed,
        exposed_comm_ns=facts.exposed_comm_ns,
        exposed_copy_ns=facts.exposed_copy_ns,
        idle_ns=facts.idle_ns,
    )


def summarize_point(steps: Sequence[StepTime]) -> StepSummary | None:
    """The median step; None without steps."""
    if not steps:
        return None
    windows = [step.window_ns / 1e6 for step in steps]
    low, high = median_interval(windows) or (None, None)
    ordered = sorted(steps, key=lambda step: step.window_ns)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]

    def mean(values: Sequence[int]) -> float:
        return sum(values) / len(values) / 1e6

    slowed = [step.slowed_ns for step in middle if step.slowed_ns is not None]
    counts: dict[int, int] = {}
    for step in steps:
        if step.rank is not None:
            counts[step.rank] = counts.get(step.rank, 0) + 1
    return StepSummary(
        median_ms=mean([step.window_ns for step in middle]),
        low_ms=low,
        high_ms=high,
        count=len(steps),
        compute_ms=mean([step.compute_ns for step in middle]),
        slowed_compute_ms=mean(slowed) if slowed else None,
        exposed_comm_ms=mean([step.exposed_comm_ns for step in middle]),
        exposed_copy_ms=mean([step.exposed_copy_ns for step in middle]),
        idle_ms=mean([step.idle_ns for step in middle]),
        slowest_ranks=dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
    )
