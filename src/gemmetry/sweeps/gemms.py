"""Whether communication slows a GEMM: instances next to it compared with instances alone.

The instances of a GEMM (a kernel with a shape, on one rank, at one point) that ran alone are the
control group of those during which communication ran. Both kinds occur in the same run, so the
comparison does not depend on another run; it is still an observation, not an experiment: what runs
next to communication may differ in other ways too, for example in its place in the step. The
dose-response is partial evidence: if communication is the cause, instances that overlap longer
take longer.

GPUs differ by some percent, so that the GEMMs of a point are compared within each rank, and the
comparisons of all ranks are combined. A rank whose instances all ran next to communication does not
take part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gemmetry.domain.tables import grouped
from gemmetry.formats.events import Int64
from gemmetry.statistics.change_points import theil_sen
from gemmetry.statistics.comparison import Comparison, Difference, compare_groups
from gemmetry.statistics.intervals import can_shift, median, minimum_samples
from gemmetry.sweeps.ranks import RankFacts
from gemmetry.sweeps.rows import (
    Cause,
    CollectiveEffect,
    DoseResponse,
    GemmKind,
    GemmStatistics,
    PooledGemm,
    ShareOfOverlap,
)
from gemmetry.traces.gemms import quantile_of_sorted

if TYPE_CHECKING:
    from gemmetry.sweeps.workers import RankAnalysis

Floats: TypeAlias = npt.NDArray[np.float64]

RELEVANT = 0.01
"""Relative differences up to this count as none, of a GEMM and of a step: a hundredth of the cost
of a training run."""

LEAST_SHARE = 0.5
"""A dose-response takes as many instances that overlap for this share of their time as an interval
of a median needs."""

_WIDEST = 2.0
"""An interval of a slope may reach this many times as far as the logarithms of the durations
differ; one that reaches further excludes nothing that could be observed."""

NO_CONTROL = "no control group"
"""The verdict where every instance ran next to communication."""
NOT_OVERLAPPED = "not overlapped"
"""The verdict where no instance did."""

CONTROL_RUN = (
    "to get a control group, run the same workload without communication: "
    "`gemmetry sweep run … --nproc 1`"
)

NO_SHAPE = (
    "the shape is not known, so the instances may be different problems; record with "
    "record_shapes=True"
)

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Bounds of the overlapped shares in :attr:`PooledGemm.by_share`."""


def members_of(facts: RankFacts) -> list[Int64]:
    """The instances of each kind of GEMM, by start."""
    kind = facts.gemms.kind
    order = np.argsort(kind, kind="stable")
    counts = np.bincount(kind, minlength=len(facts.gemm_kinds))
    return np.split(order, np.cumsum(counts)[:-1]) if len(counts) else []


def gemm_statistics(facts: RankFacts) -> tuple[GemmStatistics, ...]:
    """Statistics of every GEMM of a trace, those with the most time first. The GEMMs that can be
    judged share the probability of error."""
    members, overlapped = members_of(facts), facts.gemms.overlap_ns > 0
    counts = [(int(overlapped[chosen].sum()), len(chosen)) for chosen in members]
    family = family_of([(all_of - n, n)] for n, all_of in counts)
    found = [_statistics(facts, index, chosen, family) for index, chosen in enumerate(members)]
    return tuple(sorted(found, key=lambda one: -one.sum_us))


def _statistics(facts: RankFacts, index: int, chosen: Int64, family: int) -> GemmStatistics:
    duration, step = facts.gemms.duration_ns[chosen], facts.gemms.step[chosen]
    ordered = np.sort(duration) / 1000
    middle = quantile_of_sorted(ordered, 0.5)
    first = min((one.number for one in facts.steps), default=None)
    early, late = (
        None if first is None or not is_in.any() else median(duration[is_in]) / 1000
        for is_in in (step == first, step > (first or 0))
    )
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
        max_minus_min_us=float(ordered[-1] - ordered[0]),
        first_step_median_us=early,
        later_steps_median_us=late,
        first_step_ratio=early / late if early is not None and late else None,
        cause=_cause(facts, facts.gemm_kinds[index], chosen, family),
    )


def family_of(sizes: Iterable[Sequence[tuple[int, int]]]) -> int:
    """Number of comparisons of strata of these sizes that could show a difference, at least 1."""
    return max(1, sum(can_shift(size) for size in sizes))


def _cause(facts: RankFacts, kind: GemmKind, chosen: Int64, family: int) -> Cause:
    """Cause of the slowdown of the instances `chosen` of one GEMM, as one of `family`
    comparisons."""
    duration, overlap = facts.gemms.duration_ns[chosen], facts.gemms.overlap_ns[chosen]
    is_overlapped = overlap > 0
    together, alone = duration[is_overlapped] / 1000, duration[~is_overlapped] / 1000
    judged = _judged(kind, [(alone, together)], (len(alone), len(together)), family)
    cost = None
    if facts.steps and len(alone):
        excess = excess_ns(facts, chosen)[facts.gemms.step[chosen] >= 0]
        cost = float(excess.sum()) / len(facts.steps) / 1e6
    ops = _main_operations(facts, chosen[is_overlapped])
    distinct = sorted(set(ops), key=lambda op: (-ops.count(op), op))
    effects = []
    for op in distinct:
        own = together[np.array(ops) == op]
        found = judged if len(distinct) == 1 else _judged(
            kind, [(alone, own)], (len(alone), len(own)), family * len(distinct)
        )  # fmt: skip
        more = {key: found[key] for key in ("slowdown", "low", "high", "verdict")}
        effects.append(CollectiveEffect(op=op, count=len(own), median_us=median(own), **more))
    return Cause(
        **judged,
        overlapped_count=len(together),
        alone_count=len(alone),
        overlapped_median_us=_median(together),
        alone_median_us=_median(alone),
        cost_ms_per_step=cost,
        dose=dose_response(kind, duration / 1.0, overlap / 1.0),
        by_collective=tuple(effects),
    )


def _judged(
    kind: GemmKind, strata: Sequence[tuple[Floats, Floats]], counts: tuple[int, int], family: int
) -> dict[str, Any]:
    """Slowdown, interval and verdict of a GEMM with so many instances alone and next to
    communication. No ratio where no rank has both, or where an unknown shape may hide different
    problems.

    Args:
        strata: durations alone and next to communication, of each rank.
    """
    # A duration of 0 ns, which only damaged traces have, has no ratio.
    valid = [(alone[alone > 0], together[together > 0]) for alone, together in strata]
    valid = [(alone, together) for alone, together in valid if len(alone) and len(together)]
    found = None
    if kind.m is not None and valid:
        found = compare_groups(valid, relevant=RELEVANT, family=family)
        # Other ranks' instances, however many, have nothing to be compared with.
        counts = sum(len(alone) for alone, _ in valid), sum(len(together) for _, together in valid)
    ratios = (found.ratio, found.ratio_low, found.ratio_high) if found else (None,) * 3
    names = ("slowdown", "low", "high", "verdict", "note")
    return dict(zip(names, (*ratios, *verdict_and_note(kind, *counts, found)), strict=True))


def excess_ns(facts: RankFacts, chosen: Int64) -> Int64:
    """Excess of each instance `chosen` of one GEMM over the median one alone, in ns; 0 of instances
    alone, and of all without a control group."""
    duration, alone = facts.gemms.duration_ns[chosen], facts.gemms.overlap_ns[chosen] == 0
    if not alone.any():
        return np.zeros(len(chosen), np.int64)
    return np.where(alone, 0, duration - round(median(duration[alone])))


def verdict_and_note(
    kind: GemmKind, alone: int, together: int, comparison: Comparison | None
) -> tuple[str, str]:
    """:attr:`Cause.verdict` and :attr:`Cause.note` for groups of these sizes."""
    if not together:
        return NOT_OVERLAPPED, "no instance ran next to communication"
    if kind.m is None:
        return Difference.UNDECIDED, NO_SHAPE
    if comparison is None and alone:
        return NO_CONTROL, "no rank ran it both alone and next to communication"
    if comparison is None:
        count = "the only instance" if together == 1 else f"all {together} instances"
        return NO_CONTROL, f"{count} ran next to communication; {CONTROL_RUN}"
    if comparison.verdict is not Difference.UNDECIDED:
        return comparison.verdict, ""
    if comparison.interval is None:
        return comparison.verdict, (
            f"{alone} alone and {together} next to communication are too few; record more steps"
        )
    return comparison.verdict, "the interval is too wide; record more steps"


def dose_response(kind: GemmKind, duration: Floats, overlap: Floats) -> DoseResponse | None:
    """The dose-response of durations and overlaps in the same unit. It is None where the shape is
    not known, or where so few instances overlap for long enough that the slope would be
    extrapolated (:data:`LEAST_SHARE`).

    It has no factor where the line, over the shares that were observed, rises or falls further than
    the durations differ at all, or an end of its interval :data:`_WIDEST` times as far: most pairs
    of points then have almost equal shares, and their slopes, which are those of noise, would be
    extrapolated.
    """
    valid = duration > 0
    share, logs = overlap[valid] / duration[valid], np.log(duration[valid])
    if kind.m is None or (share >= LEAST_SHARE).sum() < minimum_samples():
        return None
    found = theil_sen(share, logs)
    if found is None:
        return None
    highest, span = float(share.max()), float(np.ptp(share))
    ends = found.interval or ()
    steepest = max([abs(found.estimate), *(abs(end) / _WIDEST for end in ends)])
    note = ""
    if span < LEAST_SHARE:
        note = f"the overlapped shares differ by less than {LEAST_SHARE:.0%}"
    elif steepest * span > np.ptp(logs) * (1 + 1e-9):
        note = "most shares are almost equal, so that a slope would be extrapolated"
    known = [] if note else list(map(math.exp, (found.estimate, *ends)))
    factor, low, high, *_ = (*known, None, None, None)
    return DoseResponse(
        full_overlap_slowdown=factor, low=low, high=high, highest_share=highest, note=note,
        count=len(logs) if note else found.points,
    )  # fmt: skip


def _main_operations(facts: RankFacts, chosen: Int64) -> list[str]:
    """The operation that each of the `chosen` instances overlaps longest."""
    pairs = facts.gemms.overlapping
    pairs = pairs[np.isin(pairs[:, 0], chosen)]
    # The last entry of an instance that is written wins: the one with the longest overlap.
    pairs = pairs[np.argsort(pairs[:, 2], kind="stable")]
    longest = dict(zip(pairs[:, 0].tolist(), pairs[:, 1].tolist(), strict=True))
    return [facts.communication[longest[one]].collective.op or "unknown" for one in chosen.tolist()]


class _Pooled(NamedTuple):
    """The instances of one GEMM of a point."""

    kind: GemmKind
    members: list[tuple[RankFacts, GemmStatistics]]
    strata: list[tuple[Floats, Floats]]
    """Durations alone and next to communication of each rank that has both, in µs."""
    multiples: Floats
    """Durations as multiples of the rank's median alone."""
    shares: Floats
    """Overlapped share of each of `multiples`."""


def pooled_gemms(points: Sequence[Sequence[RankAnalysis]]) -> list[tuple[PooledGemm, ...]]:
    """The GEMMs of each of `points`, which are given by their ranks, those with the most time
    first."""
    groups = []
    for ranks in points:
        found = grouped(((rank.facts, gemm) for rank in ranks for gemm in rank.gemms),
                        lambda member: member[1].kind)  # fmt: skip
        groups.append([_group(kind, members) for kind, members in found.items()])
    family = family_of(
        [(len(alone), len(together)) for alone, together in group.strata]
        for of_point in groups
        for group in of_point
        if group.strata
    )
    return [
        tuple(sorted((_of_all_ranks(one, family) for one in kinds), key=lambda one: -one.sum_us))
        for kinds in groups
    ]


def _group(kind: GemmKind, members: list[tuple[RankFacts, GemmStatistics]]) -> _Pooled:
    strata, multiples, shares = [], [np.zeros(0)], [np.zeros(0)]
    for facts, gemm in members:
        middle = gemm.cause.alone_median_us
        if middle and gemm.cause.overlapped_count:
            chosen = facts.gemms.kind == gemm.index
            duration = facts.gemms.duration_ns[chosen] / 1000
            overlap = facts.gemms.overlap_ns[chosen] / 1000
            strata.append((duration[overlap == 0], duration[overlap > 0]))
            multiples.append(duration / middle)
            shares.append(overlap / np.maximum(duration, 1e-3))
    return _Pooled(kind, members, strata, np.concatenate(multiples), np.concatenate(shares))


def _of_all_ranks(group: _Pooled, family: int) -> PooledGemm:
    kind, statistics = group.kind, [gemm for _, gemm in group.members]
    every = [gemm.cause.cost_ms_per_step for gemm in statistics]
    costs = [cost for cost in every if cost is not None]
    own = [(facts.gemms, facts.gemms.kind == gemm.index) for facts, gemm in group.members]
    duration = np.concatenate([gemms.duration_ns[chosen] for gemms, chosen in own]) / 1000
    is_overlapped = np.concatenate([gemms.overlap_ns[chosen] > 0 for gemms, chosen in own])
    together, alone = duration[is_overlapped], duration[~is_overlapped]
    multiples, shares = group.multiples, group.shares
    by_share = [(low, high, multiples[(shares > low) & (shares <= high)])
                for low, high in pairwise(SHARES)]  # fmt: skip
    return PooledGemm(
        **_judged(kind, group.strata, (len(alone), len(together)), family),
        kind=kind,
        ranks=tuple(facts.rank for facts, _ in group.members),
        count=len(duration),
        sum_us=sum(gemm.sum_us for gemm in statistics),
        overlapped_count=len(together),
        alone_count=len(alone),
        overlapped_median_us=_median(together),
        alone_median_us=_median(alone),
        cost_ms_per_step=sum(costs) / len(costs) if costs else None,
        dose=dose_response(kind, multiples, shares * multiples),
        by_share=tuple(
            ShareOfOverlap(low=low, high=high, count=len(chosen), slowdown=median(chosen))
            for low, high, chosen in by_share
            if len(chosen)
        ),
    )


def _median(values: Floats) -> float | None:
    return median(values) if len(values) else None
