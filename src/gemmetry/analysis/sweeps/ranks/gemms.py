"""Statistics of each GEMM of a rank: a kernel with a shape, over all its instances in a trace."""

from __future__ import annotations

import msgspec
import numpy as np

from gemmetry.analysis.sweeps.model import GemmKind, RankFacts
from gemmetry.analysis.sweeps.ranks.cause import Cause, cause_of, family_size
from gemmetry.formats.events import Int64
from gemmetry.statistics.quantiles import median
from gemmetry.traces.gemms.summary import quantile_of_sorted


class GemmStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """All instances of one GEMM in the trace of one rank; times in µs."""

    kind: GemmKind
    index: int
    """Of the kind in :attr:`~gemmetry.analysis.sweeps.model.RankFacts.gemm_kinds`."""
    count: int
    sum_us: float
    min_us: float
    max_us: float
    median_us: float
    p5_us: float
    p95_us: float
    mad_us: float
    """Median absolute deviation from the median, not scaled."""
    cv: float | None
    """Standard deviation (n - 1) over the mean; None of a single instance."""
    first_step_median_us: float | None
    """Median of the instances in the first recorded step, which may have run on cold caches, at
    another clock or during autotuning; None without steps."""
    later_steps_median_us: float | None
    """Median of those in later steps."""
    cause: Cause

    @property
    def max_minus_min_us(self) -> float:
        """What the scripts of the sweep analysis document call "time variance"."""
        return self.max_us - self.min_us

    @property
    def first_step_ratio(self) -> float | None:
        """How many times as long the median instance of the first step takes as later ones."""
        if self.first_step_median_us is None or not self.later_steps_median_us:
            return None
        return self.first_step_median_us / self.later_steps_median_us


def gemm_statistics(facts: RankFacts) -> tuple[GemmStatistics, ...]:
    """Of every GEMM of a trace, those with the most time first."""
    members = members_of(facts)
    family = family_size(facts, members)
    found = [_statistics(facts, index, chosen, family) for index, chosen in enumerate(members)]
    return tuple(sorted(found, key=lambda one: -one.sum_us))


def members_of(facts: RankFacts) -> list[Int64]:
    """The instances of each kind of GEMM, by start."""
    kind = facts.gemms.kind
    order = np.argsort(kind, kind="stable")
    counts = np.bincount(kind, minlength=len(facts.gemm_kinds))
    return np.split(order, np.cumsum(counts)[:-1]) if len(counts) else []


def _statistics(facts: RankFacts, index: int, chosen: Int64, family: int) -> GemmStatistics:
    duration, step = facts.gemms.duration_ns[chosen], facts.gemms.step[chosen]
    ordered = np.sort(duration) / 1000
    middle = quantile_of_sorted(ordered, 0.5)
    first = min((one.number for one in facts.steps), default=None)
    in_first, later = duration[step == first] if first is not None else [], duration[:0]
    if first is not None:
        later = duration[step > first]
    return GemmStatistics(
        kind=facts.gemm_kinds[index],
        index=index,
        count=len(ordered),
        sum_us=float(duration.sum()) / 1000,
        min_us=float(ordered[0]),
        max_us=float(ordered[-1]),
        median_us=middle,
        p5_us=quantile_of_sorted(ordered, 0.05),
        p95_us=quantile_of_sorted(ordered, 0.95),
        mad_us=quantile_of_sorted(np.sort(np.abs(ordered - middle)), 0.5),
        cv=float(ordered.std(ddof=1) / ordered.mean()) if len(ordered) > 1 else None,
        first_step_median_us=median(in_first) / 1000 if len(in_first) else None,
        later_steps_median_us=median(later) / 1000 if len(later) else None,
        cause=cause_of(facts, facts.gemm_kinds[index], chosen, family),
    )
