"""The effect of communication on each GEMM of a point, over all of its ranks.

GPUs differ by some percent, so that instances are compared within each rank, and the comparisons of
all ranks are combined. A rank whose instances all ran next to communication does not take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gemmetry.analysis.sweeps.model import GemmKind
from gemmetry.analysis.sweeps.ranks.cause import (
    DoseResponse,
    Floats,
    bounds,
    compared,
    dose_response,
    family_of,
    verdict_and_note,
)
from gemmetry.analysis.sweeps.ranks.gemms import GemmStatistics
from gemmetry.analysis.sweeps.ranks.worker import RankAnalysis
from gemmetry.statistics.comparison import Difference
from gemmetry.statistics.quantiles import median

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Bounds of the overlapped shares in :attr:`PooledGemm.by_share`."""


@dataclass(frozen=True, slots=True)
class ShareOfOverlap:
    """The instances whose overlapped share of the time is in a range (low excluded)."""

    low: float
    high: float
    count: int
    slowdown: float
    """Median duration, as a multiple of the median alone on the same rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledGemm:
    """One GEMM on all ranks of a point."""

    kind: GemmKind
    ranks: tuple[int | None, ...]
    """Those that run it."""
    count: int
    sum_us: float
    """Over all ranks."""
    overlapped_count: int
    alone_count: int
    overlapped_median_us: float | None
    alone_median_us: float | None
    slowdown: float | None
    """Median of the ratios of all pairs of an instance next to communication and one alone of the
    same rank; the ratio of the medians where only one rank has both."""
    low: float | None
    """Of the interval of the ratio; the intervals of all GEMMs of all points hold together with
    95 %."""
    high: float | None
    verdict: str
    """Like :attr:`~gemmetry.analysis.sweeps.ranks.cause.Cause.verdict`."""
    note: str
    cost_ms_per_step: float | None
    """Mean over the ranks whose cost is known."""
    dose: DoseResponse | None
    by_share: tuple[ShareOfOverlap, ...]
    """The dose-response as medians: one entry per range of overlapped shares that has instances;
    empty without a control group."""

    @property
    def is_slowed(self) -> bool:
        """Whether a slowdown is shown."""
        return self.verdict == Difference.SLOWER


class _PooledGroup(NamedTuple):
    """The instances of one GEMM of a point."""

    kind: GemmKind
    of_ranks: list[tuple[RankAnalysis, GemmStatistics]]
    strata: list[tuple[Floats, Floats]]
    """Durations alone and next to communication of each rank that has both, in µs."""
    multiples: Floats
    """The same durations as multiples of the rank's median alone."""
    shares: Floats
    """Overlapped share of each of `multiples`."""


def pooled_gemms(points: Sequence[Sequence[RankAnalysis]]) -> list[tuple[PooledGemm, ...]]:
    """The GEMMs of each of `points`, which are given by their ranks, those with the most time
    first."""
    groups = [_groups(ranks) for ranks in points]
    family = family_of(
        [(len(alone), len(together)) for alone, together in group.strata]
        for found in groups
        for group in found
        if group.strata
    )
    return [
        tuple(sorted((_judged(group, family) for group in found), key=lambda one: -one.sum_us))
        for found in groups
    ]


def _groups(ranks: Sequence[RankAnalysis]) -> list[_PooledGroup]:
    found: dict[GemmKind, list[tuple[RankAnalysis, GemmStatistics]]] = {}
    for rank in ranks:
        for gemm in rank.gemms:
            found.setdefault(gemm.kind, []).append((rank, gemm))
    return [_group(kind, members) for kind, members in found.items()]


def _group(kind: GemmKind, members: list[tuple[RankAnalysis, GemmStatistics]]) -> _PooledGroup:
    strata, multiples, shares = [], [], []
    for rank, gemm in members:
        middle = gemm.cause.alone_median_us
        if not middle or not gemm.cause.overlapped_count:
            continue
        gemms = rank.facts.gemms
        chosen = gemms.kind == gemm.index
        duration, overlap = gemms.duration_ns[chosen] / 1000, gemms.overlap_ns[chosen] / 1000
        strata.append((duration[overlap == 0], duration[overlap > 0]))
        multiples.append(duration / middle)
        shares.append(overlap / np.maximum(duration, 1e-3))
    return _PooledGroup(kind, members, strata, _joined(multiples), _joined(shares))


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])


def _judged(group: _PooledGroup, family: int) -> PooledGemm:
    kind, statistics = group.kind, [gemm for _, gemm in group.of_ranks]
    causes = [gemm.cause for gemm in statistics]
    overlapped = sum(cause.overlapped_count for cause in causes)
    alone = sum(cause.alone_count for cause in causes)
    comparison = compared(kind, group.strata, family)
    low, high = bounds(comparison)
    verdict, note = verdict_and_note(kind, alone, overlapped, comparison)
    costs = [one.cost_ms_per_step for one in causes if one.cost_ms_per_step is not None]
    return PooledGemm(
        kind=kind,
        ranks=tuple(rank.facts.rank for rank, _ in group.of_ranks),
        count=sum(gemm.count for gemm in statistics),
        sum_us=sum(gemm.sum_us for gemm in statistics),
        overlapped_count=overlapped,
        alone_count=alone,
        overlapped_median_us=_median(group, is_overlapped=True),
        alone_median_us=_median(group, is_overlapped=False),
        slowdown=None if comparison is None else comparison.ratio,
        low=low,
        high=high,
        verdict=verdict,
        note=note,
        cost_ms_per_step=sum(costs) / len(costs) if costs else None,
        dose=dose_response(kind, group.multiples, group.shares * group.multiples),
        by_share=_by_share(group),
    )


def _by_share(group: _PooledGroup) -> tuple[ShareOfOverlap, ...]:
    found = []
    for low, high in pairwise(SHARES):
        chosen = group.multiples[(group.shares > low) & (group.shares <= high)]
        if len(chosen):
            found.append(ShareOfOverlap(low, high, len(chosen), median(chosen)))
    return tuple(found)


def _median(group: _PooledGroup, *, is_overlapped: bool) -> float | None:
    parts = []
    for rank, gemm in group.of_ranks:
        gemms = rank.facts.gemms
        chosen = (gemms.kind == gemm.index) & ((gemms.overlap_ns > 0) == is_overlapped)
        parts.append(gemms.duration_ns[chosen])
    durations = _joined(parts)
    return median(durations) / 1000 if len(durations) else None
