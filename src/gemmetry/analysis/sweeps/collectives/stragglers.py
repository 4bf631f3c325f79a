"""Which rank of a point delays the others, since when, and in which kernel it loses the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gemmetry.analysis.sweeps.collectives.lateness import (
    Lateness,
    delays_since,
    find_lateness,
    upper_bound,
)
from gemmetry.analysis.sweeps.collectives.lost_time import LostTime, find_lost_time, find_own_kernel
from gemmetry.analysis.sweeps.model import (
    DELAYS,
    NO_DELAY_SHOWN,
    UNDECIDED,
    PointStraggler,
    RankFacts,
)
from gemmetry.statistics.quantiles import median
from gemmetry.traces.collectives.jobs import JobCollectives

RELEVANT = 0.01
"""Delays below this share of a step are not worth a name."""


def stragglers(ranks: Sequence[RankFacts], job: JobCollectives) -> list[PointStraggler]:
    """Every rank of a point with a trace, by number; [] where no collective is matched.

    A rank counts as a straggler if in each step, from some step on, the others wait for it alone
    longer than for any other rank, by a mean that is shown to be above 0, and by 1 % of a step at
    least; or if it delays the others most, by 1 % of a step at least, and a kernel that is shown to
    take it more time than them accounts for half of that; or if it does so in every step, and a
    kernel that no other rank runs accounts for half of it each time. On 4x H200 ranks take turns:
    in 8 recordings of FSDP with 3 steps each, the rank that delayed the others most, by up to 9 %
    of a step, changed from step to step, and no rank counts.

    `job` is that of :func:`~gemmetry.analysis.sweeps.points.collectives.matched_job` of the same
    ranks.
    """
    if not job.matching.matched:
        return []
    lateness = find_lateness(job, ranks)
    is_comparable = bool(lateness.steps) and len(lateness.ranks) > 1
    result = []
    for one in job.stragglers(corrected=True):
        found = _shown(one.rank, lateness, ranks) if is_comparable else None
        result.append(
            PointStraggler(
                rank=one.rank,
                collectives=one.collectives,
                last_share=one.last_share,
                waited_us=one.waited_ns / 1e3,
                **({} if found is None else found._asdict()),
            )
        )
    return result


class _Shown(NamedTuple):
    """The fields of :class:`PointStraggler` that follow from the steps."""

    verdict: str
    delayed_us: float
    lost_in: str | None = None
    lost_us: float | None = None
    since_step: int | None = None


def _shown(rank: int, lateness: Lateness, ranks: Sequence[RankFacts]) -> _Shown:
    delays, excess = lateness.of(rank), lateness.excess(rank)
    delayed_us = median(delays) / 1e3
    relevant, family = RELEVANT * lateness.window_ns, len(lateness.ranks)
    begin = delays_since(excess, family, relevant)
    lost = _lost_time(rank, lateness, ranks, begin)
    if begin is None and lost is None:
        is_excluded = min(upper_bound(one, family) for one in (delays, excess)) < relevant
        return _Shown(NO_DELAY_SHOWN if is_excluded else UNDECIDED, delayed_us)
    begin = begin or 0
    if lost is None:
        return _Shown(DELAYS, delayed_us, since_step=lateness.steps[begin])
    # The others wait at the next collective, which the next step may have.
    least = median(lost.per_step[begin:]) / 2
    while begin > 0 and lost.per_step[begin - 1] > least:
        begin -= 1
    lost_us = median(lost.per_step[begin:]) / 1e3
    return _Shown(DELAYS, delayed_us, lost.cause, lost_us, lateness.steps[begin])


def _lost_time(
    rank: int, lateness: Lateness, ranks: Sequence[RankFacts], begin: int | None
) -> LostTime | None:
    """Where the rank loses its time; of a rank whose delays alone do not show it to be a straggler,
    the kernel that does."""
    delays, steps = lateness.of(rank), lateness.steps
    relevant = RELEVANT * lateness.window_ns
    first = begin or 0
    delay = float(delays[first:].mean())
    is_latest = bool((delays.mean() >= lateness.delays.mean(axis=1)).all())
    if begin is None and (not is_latest or delay < relevant):
        return None
    found = find_lost_time(rank, ranks, steps, first, delay)
    if found is not None and found.is_kernel:
        return found
    is_always = len(steps) > 1 and float(lateness.excess(rank).min()) >= relevant
    alone = None
    if begin is not None or is_always:
        alone = find_own_kernel(rank, ranks, steps, first, delays)
    return found if alone is None and begin is not None else alone
