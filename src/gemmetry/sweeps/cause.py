"""Whether communication slows a GEMM: instances next to it compared with instances alone.

The instances of a GEMM (a kernel with a shape, on one rank, at one point) that ran alone are the
control group of those during which communication ran. Both kinds occur in the same run, so the
comparison does not depend on another run; it is still an observation, not an experiment: what runs
next to communication may differ in other ways too, for example in its place in the step. The
dose-response is partial evidence: if communication is the cause, instances that overlap longer
take longer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gemmetry.formats.events import Bools, Int64
from gemmetry.statistics.change_points import theil_sen
from gemmetry.statistics.comparison import Comparison, Difference, compare_groups
from gemmetry.statistics.intervals import can_shift, median, minimum_samples
from gemmetry.sweeps.model import RankFacts
from gemmetry.sweeps.rows import Cause, CollectiveEffect, DoseResponse, GemmKind

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
"""What to do where no instance ran alone."""

NO_SHAPE = (
    "the shape is not known, so the instances may be different problems; record with "
    "record_shapes=True"
)
"""Why a kernel without a shape is not judged."""


def family_size(facts: RankFacts, members: Sequence[Int64]) -> int:
    """How many GEMMs of a trace can be judged, which share the probability of error.

    Args:
        members: the instances of each kind of GEMM.
    """
    overlapped = facts.gemms.overlap_ns > 0
    counts = [(int(overlapped[chosen].sum()), len(chosen)) for chosen in members]
    return family_of([(all_of - n, n)] for n, all_of in counts)


def family_of(sizes: Iterable[Sequence[tuple[int, int]]]) -> int:
    """How many comparisons of strata of these sizes could show a difference, at least 1."""
    return max(1, sum(can_shift(size) for size in sizes))


def cause_of(facts: RankFacts, kind: GemmKind, chosen: Int64, family: int) -> Cause:
    """Of the instances `chosen` of one GEMM, as one of `family` comparisons."""
    duration, overlap = facts.gemms.duration_ns[chosen], facts.gemms.overlap_ns[chosen]
    is_overlapped = overlap > 0
    together, alone = duration[is_overlapped] / 1000, duration[~is_overlapped] / 1000
    comparison = compared(kind, [(alone, together)], family)
    low, high = bounds(comparison)
    verdict, note = verdict_and_note(kind, len(alone), len(together), comparison)
    return Cause(
        overlapped_count=len(together),
        alone_count=len(alone),
        overlapped_median_us=median(together) if len(together) else None,
        alone_median_us=median(alone) if len(alone) else None,
        slowdown=None if comparison is None else comparison.ratio,
        low=low,
        high=high,
        verdict=verdict,
        note=note,
        cost_ms_per_step=_cost(facts, chosen, is_overlapped),
        dose=dose_response(kind, duration / 1.0, overlap / 1.0),
        by_collective=_by_collective(facts, kind, chosen, is_overlapped, comparison, family),
    )


def excess_ns(facts: RankFacts, chosen: Int64) -> Int64:
    """How much longer each of the instances `chosen` of one GEMM took than the median one alone, in
    ns; 0 of instances alone, and of all without a control group."""
    duration, alone = facts.gemms.duration_ns[chosen], facts.gemms.overlap_ns[chosen] == 0
    if not alone.any():
        return np.zeros(len(chosen), np.int64)
    middle = round(median(duration[alone]))
    result: Int64 = np.where(alone, 0, duration - middle)
    return result


def compared(
    kind: GemmKind, strata: Sequence[tuple[Floats, Floats]], family: int
) -> Comparison | None:
    """Durations next to communication compared with those alone.

    Args:
        strata: durations alone and next to communication, of each rank.

    Returns:
        None where no rank has both, or the shape is not known, so that the instances may be
        different problems.
    """
    # A duration of 0 ns, which only damaged traces have, has no ratio.
    valid = [(alone[alone > 0], together[together > 0]) for alone, together in strata]
    valid = [(alone, together) for alone, together in valid if len(alone) and len(together)]
    if kind.m is None or not valid:
        return None
    return compare_groups(valid, relevant=RELEVANT, family=family)


def bounds(comparison: Comparison | None) -> tuple[float | None, float | None]:
    """The ends of the interval."""
    return (None, None) if comparison is None else (comparison.ratio_low, comparison.ratio_high)


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


def _cost(facts: RankFacts, chosen: Int64, is_overlapped: Bools) -> float | None:
    if not facts.steps or is_overlapped.all():
        return None
    in_step = facts.gemms.step[chosen] >= 0
    return float(excess_ns(facts, chosen)[in_step].sum()) / len(facts.steps) / 1e6


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
    low, high = found.interval or (None, None)
    ends = [abs(end) for end in found.interval or ()]
    steepest = max([abs(found.estimate), *(end / _WIDEST for end in ends)])
    note = ""
    if span < LEAST_SHARE:
        note = f"the overlapped shares differ by less than {LEAST_SHARE:.0%}"
    elif steepest * span > np.ptp(logs) * (1 + 1e-9):
        note = "most shares are almost equal, so that a slope would be extrapolated"
    if note:
        return DoseResponse(full_overlap_slowdown=None, low=None, high=None, count=len(logs),
                            highest_share=highest, note=note)  # fmt: skip
    return DoseResponse(
        full_overlap_slowdown=math.exp(found.estimate),
        low=None if low is None else math.exp(low),
        high=None if high is None else math.exp(high),
        count=found.points,
        highest_share=highest,
    )


def _by_collective(
    facts: RankFacts,
    kind: GemmKind,
    chosen: Int64,
    is_overlapped: Bools,
    whole: Comparison | None,
    family: int,
) -> tuple[CollectiveEffect, ...]:
    """One entry for each operation that most of an instance's overlap was with."""
    duration = facts.gemms.duration_ns[chosen] / 1000
    ops = _main_operations(facts, chosen[is_overlapped])
    alone, together = duration[~is_overlapped], duration[is_overlapped]
    distinct = sorted(set(ops), key=lambda op: (-ops.count(op), op))
    found = []
    for op in distinct:
        own = together[np.array([one == op for one in ops])]
        judged = (
            whole if len(distinct) == 1 else compared(kind, [(alone, own)], family * len(distinct))
        )
        low, high = bounds(judged)
        verdict, _ = verdict_and_note(kind, len(alone), len(own), judged)
        found.append(
            CollectiveEffect(
                op=op,
                count=len(own),
                median_us=median(own),
                slowdown=None if judged is None else judged.ratio,
                low=low,
                high=high,
                verdict=verdict,
            )
        )
    return tuple(found)


def _main_operations(facts: RankFacts, chosen: Int64) -> list[str]:
    """The operation that each of the `chosen` instances overlaps longest."""
    pairs = facts.gemms.overlapping
    pairs = pairs[np.isin(pairs[:, 0], chosen)]
    # The last entry of an instance that is written wins: the one with the longest overlap.
    pairs = pairs[np.argsort(pairs[:, 2], kind="stable")]
    longest = dict(zip(pairs[:, 0].tolist(), pairs[:, 1].tolist(), strict=True))
    return [facts.communication[longest[one]].collective.op or "unknown" for one in chosen.tolist()]
