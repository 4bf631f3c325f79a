"""Which rank of a point delays the others, since when, and in which kernel it loses the time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmetry.analysis.sweeps.collectives.lateness import (
    Lateness,
    delays_since,
    find_lateness,
)
from gemmetry.analysis.sweeps.collectives.lost_time import find_lost_time
from gemmetry.analysis.sweeps.model import PointStraggler, RankFacts
from gemmetry.statistics.quantiles import median
from gemmetry.traces.collectives.jobs import JobCollectives

RELEVANT = 0.01
"""Delays below this share of a step are not worth a name."""


def stragglers(ranks: Sequence[RankFacts], job: JobCollectives) -> list[PointStraggler]:
    """Every rank of a point with a trace, by number; [] where no collective is matched.

    `job` is that of :func:`~gemmetry.analysis.sweeps.points.collectives.matched_job` of the same
    ranks.

    A rank counts as a straggler if in each step, from some step on, the others wait for it alone
    longer than for any other rank, by a mean that is shown to be above 0, and by 1 % of a step at
    least; or if it delays the others most, by 1 % of a step at least, and a kernel that is shown to
    take it more time than them accounts for half of that. On 4x H200 ranks take turns: in 8
    recordings of FSDP with 3 steps each, the rank that delayed the others most, by up to 9 % of a
    step, changed from step to step, and no rank counts.
    """
    if not job.matching.matched:
        return []
    lateness = find_lateness(job, ranks)
    return [
        _straggler(one.rank, one.last_share, one.waited_ns, lateness, ranks)
        for one in job.stragglers(corrected=True)
    ]


def _straggler(
    rank: int, last_share: float, waited_ns: int, lateness: Lateness, ranks: Sequence[RankFacts]
) -> PointStraggler:
    plain = PointStraggler(rank=rank, last_share=last_share, waited_us=waited_ns / 1e3)
    if not lateness.steps or len(lateness.ranks) < 2:
        return plain
    delays = lateness.delays[lateness.ranks.index(rank)]
    relevant = RELEVANT * lateness.window_ns
    start = delays_since(lateness.excess(rank), len(lateness.ranks), relevant)
    is_latest = bool((delays.mean() >= lateness.delays.mean(axis=1)).all())
    steps = lateness.steps[start or 0 :]
    delay = float(np.mean(delays[start or 0 :]))
    lost = None
    if start is not None or (is_latest and delay >= relevant):
        lost = find_lost_time(rank, ranks, steps, delay)
    if start is None and (lost is None or not lost.is_kernel):
        lost = None
    is_shown = start is not None or lost is not None
    return PointStraggler(
        rank=rank,
        last_share=last_share,
        waited_us=waited_ns / 1e3,
        delayed_us=median(delays) / 1e3,
        lost_in=lost.cause if lost is not None else None,
        lost_us=median(lost.per_step) / 1e3 if lost is not None else None,
        since_step=steps[0] if is_shown else None,
        is_straggler=is_shown,
    )
