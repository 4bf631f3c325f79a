"""The effect of communication on each GEMM of a point, over all of its ranks.

GPUs differ by some percent, so that instances are compared within each rank, and the comparisons of
all ranks are combined. A rank whose instances all ran next to communication does not take part.

What the time of a step at one point consists of.

The ranks of a step wait for each other, so the slowest one decides: the step's time is the longest
window of any rank, and its parts are that rank's.

Which configuration of a sweep has the shortest step, and whether that is shown or noise.

Whether a setting changes the time of a step: points that differ in nothing else, in pairs.

The collectives of one point by operation and size: latency and bus bandwidth.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

import numpy as np

from gemmetry.statistics.comparison import (
    LEAST_PAIRS,
    Comparison,
    Difference,
    compare_pairs,
    compare_runs,
    run_spread,
)
from gemmetry.statistics.intervals import median, median_interval
from gemmetry.sweeps.cause import (
    RELEVANT,
    Floats,
    bounds,
    compared,
    dose_response,
    excess_ns,
    family_of,
    verdict_and_note,
)
from gemmetry.sweeps.model import RankFacts, StepFacts, SweepConfiguration
from gemmetry.sweeps.rank_worker import RankAnalysis
from gemmetry.sweeps.ranks import members_of
from gemmetry.sweeps.rows import (
    GemmKind,
    GemmStatistics,
    PointCollective,
    PooledGemm,
    SettingEffect,
    ShareOfOverlap,
    StepMedian,
    StepSummary,
)
from gemmetry.traces.collectives.matching import JobCollectives, JobKind, analyse_job
from gemmetry.traces.jobs import RankTrace, TraceJob, group_jobs

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Bounds of the overlapped shares in :attr:`PooledGemm.by_share`."""


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
            found.append(
                ShareOfOverlap(low=low, high=high, count=len(chosen), slowdown=median(chosen))
            )
    return tuple(found)


def _median(group: _PooledGroup, *, is_overlapped: bool) -> float | None:
    parts = []
    for rank, gemm in group.of_ranks:
        gemms = rank.facts.gemms
        chosen = (gemms.kind == gemm.index) & ((gemms.overlap_ns > 0) == is_overlapped)
        parts.append(gemms.duration_ns[chosen])
    durations = _joined(parts)
    return median(durations) / 1000 if len(durations) else None


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
    return StepSummary(
        step_ms=StepMedian(
            median=mean([step.window_ns for step in middle]), ci_low=low, ci_high=high,
            n=len(steps),
        ),
        compute_ms=mean([step.compute_ns for step in middle]),
        slowed_compute_ms=mean(slowed) if slowed else None,
        exposed_comm_ms=mean([step.exposed_comm_ns for step in middle]),
        exposed_copy_ms=mean([step.exposed_copy_ns for step in middle]),
        idle_ms=mean([step.idle_ns for step in middle]),
    )  # fmt: skip


Runs = Mapping[SweepConfiguration, Sequence[Sequence[float]]]
"""Configuration -> times of the steps of each run."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One configuration compared with the best one."""

    configuration: SweepConfiguration
    mean_ms: float
    """Geometric mean over its runs of the run's median step, so that quotients are the ratios that
    are compared."""
    runs: int
    steps: int
    comparison: Comparison | None
    """Its time compared with that of the best one; None of the best one itself."""


@dataclass(frozen=True, slots=True)
class Best:
    """The configurations of a sweep by the time of a step, the shortest first."""

    ranked: tuple[Ranked, ...]

    @property
    def first(self) -> Ranked:
        """The configuration with the shortest step."""
        return self.ranked[0]

    @property
    def second(self) -> Ranked | None:
        """The next one; None of a sweep of one configuration."""
        return self.ranked[1] if len(self.ranked) > 1 else None

    @property
    def verdict(self) -> str:
        """How the best compares with the next: ``faster``, ``no difference shown``, ``undecided``;
        ``the only one``."""
        if self.second is None:
            return "the only one"
        assert self.second.comparison is not None
        found = self.second.comparison.verdict
        return Difference.FASTER if found is Difference.SLOWER else found

    @property
    def as_good(self) -> tuple[Ranked, ...]:
        """The other configurations that are not shown to be slower than the best."""
        return tuple(
            one
            for one in self.ranked[1:]
            if one.comparison is not None and one.comparison.verdict is not Difference.SLOWER
        )


def find_best(runs: Runs) -> Best | None:
    """The configurations by the time of a step; None where no run has steps.

    Each run is one observation, its median step; the spread between runs is estimated from all
    configurations together (:func:`~gemmetry.statistics.comparison.compare_runs`), and the
    intervals of all comparisons with the best one hold together with 95 %."""
    medians = {
        configuration: [median(steps) for steps in found if len(steps)]
        for configuration, found in runs.items()
    }
    medians = {configuration: found for configuration, found in medians.items() if found}
    if not medians:
        return None
    means = {one: geometric_mean(found) for one, found in medians.items()}
    order = sorted(means, key=lambda one: (means[one], one.order))
    spread, family = run_spread(list(medians.values())), max(1, len(order) - 1)
    ranked = []
    for one in order:
        comparison = None
        if one is not order[0]:
            comparison = compare_runs(
                medians[order[0]], medians[one], spread, relevant=RELEVANT, family=family
            )
        steps = sum(map(len, runs[one]))
        ranked.append(Ranked(one, means[one], len(medians[one]), steps, comparison))
    return Best(tuple(ranked))


CONFIDENCE = 0.95


def setting_effects(
    runs: Mapping[SweepConfiguration, Sequence[Sequence[float]]],
) -> tuple[SettingEffect, ...]:
    """The effect of every value of each setting, compared with its first value.

    Each pair is one observation, the ratio of the two points' means over their runs, so that even
    a sweep without repeats can show what a setting does on average.

    Args:
        runs: configuration -> times of the steps of each run.
    """
    steps = {
        one: geometric_mean(median(times) for times in found if len(times))
        for one, found in runs.items()
        if any(map(len, found))
    }
    pairs = {
        (name, before, after): found
        for name, values in _values(steps).items()
        for before, after in ((values[0], other) for other in values[1:])
        if len(found := _pairs(steps, name, before, after)) >= LEAST_PAIRS
    }
    each = 1 - (1 - CONFIDENCE) / max(1, len(pairs))
    return tuple(
        SettingEffect.of_comparison(
            compare_pairs(*zip(*found, strict=True), confidence=each, relevant=RELEVANT),
            name=name,
            before=before,
            after=after,
            pairs=len(found),
        )
        for (name, before, after), found in pairs.items()
    )


def _settings(one: SweepConfiguration) -> dict[str, str]:
    known = {"threads": one.threads, "channels": one.channels}
    return {name: str(v) for name, v in known.items() if v is not None} | dict(one.axes)


def _values(steps: Mapping[SweepConfiguration, float]) -> dict[str, list[str]]:
    """Setting -> its values, in the order of the points."""
    found: dict[str, dict[str, None]] = {}
    for one in sorted(steps, key=lambda c: c.order):
        for name, value in _settings(one).items():
            found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items()}


def _pairs(
    steps: Mapping[SweepConfiguration, float], name: str, before: str, after: str
) -> list[tuple[float, float]]:
    """The steps of points that differ in that setting only."""
    by_settings = {frozenset(_settings(one).items()): step for one, step in steps.items()}
    return [
        (step, by_settings[other])
        for settings, step in by_settings.items()
        if (name, before) in settings
        and (other := settings - {(name, before)} | {(name, after)}) in by_settings
    ]


def communication_trace(facts: RankFacts) -> RankTrace:
    """What a trace shows of collectives. Copies between GPUs are left out: nothing shows to which
    collective one belongs."""
    kernels = (one.collective for one in facts.communication)
    return RankTrace(
        file=Path(facts.file),
        rank=facts.rank,
        rank_source=facts.rank_source,
        world_size=facts.world_size,
        job=facts.job,
        host=facts.host,
        base_ns=facts.base_ns,
        span=facts.span,
        devices=facts.gpus_of_node,
        collectives=tuple(one for one in kernels if one.op != "copy"),
        partial=facts.partial,
        problems=facts.problems,
    )


def matched_job(ranks: Sequence[RankFacts]) -> JobCollectives:
    """The collectives of a point's ranks, matched.

    Of several traces of one rank, which a damaged sweep may have, the first is used, and of traces
    that belong to different runs those of the run with the most ranks.
    """
    traces: dict[int | None, RankTrace] = {}
    for facts in ranks:
        traces.setdefault(facts.rank, communication_trace(facts))
    jobs = group_jobs(traces.values())
    if not jobs:
        return analyse_job(TraceJob(name="", ranks=(), world_size=None, missing=(), notes=()))
    return analyse_job(max(jobs, key=_size))


def _size(job: TraceJob) -> tuple[int, int]:
    """Ranks that communicate, and all of them."""
    return sum(bool(one.collectives) for one in job.ranks), len(job.ranks)


def point_collectives(job: JobCollectives) -> tuple[PointCollective, ...]:
    """The collectives of a point, those with the most time first; () without any."""
    return tuple(map(_collective, job.kinds))


def _collective(kind: JobKind) -> PointCollective:
    durations = [kernel.duration_ns for one in kind.ones for _, kernel in one.members]
    latencies = [one.latency_ns / 1000 for one in kind.ones if not one.is_lone]
    bandwidths = [one.bus_bandwidth for one in kind.ones]
    return PointCollective(
        op=kind.op,
        dtype=kind.dtype,
        bytes=kind.ones[0].bytes,
        group_size=kind.group_size,
        count=len(kind.ones),
        latency_us=_collectives_median(latencies),
        busbw_gbps=_collectives_median([one for one in bandwidths if one is not None]),
        duration_us=median(durations) / 1000,
        is_complete=all(one.is_complete for one in kind.ones),
    )


def _collectives_median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
