"""Everything that a sweep shows, computed from its folder: the steps of its points, the best
configuration, the effects of its settings, and what is missing, damaged or not comparable.

The ranks of a step wait for each other, so its time is the longest window of any rank. Its parts
are those of the rank that the others wait for (:class:`StepTime`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple, TypeAlias

import numpy as np

from gemmetry.domain.errors import EnvironmentFailure, GemmetryError, RequestError
from gemmetry.domain.tables import grouped
from gemmetry.domain.units import noun_for, plural
from gemmetry.statistics.comparison import (
    LEAST_PAIRS,
    Difference,
    compare_pairs,
    compare_runs,
    run_spread,
)
from gemmetry.statistics.intervals import median, median_interval
from gemmetry.sweeps.collectives import (
    matched_job,
    point_collectives,
    rank_waits,
    read_records,
    recorded_collectives,
    stragglers,
)
from gemmetry.sweeps.folder import Point, Sweep, read_sweep
from gemmetry.sweeps.gemms import RELEVANT, excess_ns, members_of, pooled_gemms
from gemmetry.sweeps.nccl_settings import setting_verdicts, sweep_verdicts
from gemmetry.sweeps.ranks import RankFacts, StepFacts
from gemmetry.sweeps.rocprof import PointRocprof, TraceProcess
from gemmetry.sweeps.rows import (
    CONFIDENCE,
    GemmKind,
    PointCollective,
    PointStraggler,
    PooledGemm,
    Ranked,
    RecordedCollective,
    SettingEffect,
    SettingVerdict,
    StepMedian,
    StepSummary,
    SweepConfiguration,
    SweepSetting,
    configuration_entry,
)
from gemmetry.sweeps.workers import (
    Progress,
    RankAnalysis,
    RankFailure,
    RankTask,
    RocprofTask,
    analyse_ranks,
    read_rocprofs,
)
from gemmetry.traces.collectives.matching import JobCollectives

Runs: TypeAlias = Mapping[SweepConfiguration, Sequence[Sequence[float]]]
"""Configuration -> times of the steps of each run."""


class StepTime(NamedTuple):
    """One step of a point: the longest window of any rank, divided into what the awaited rank does.

    The awaited rank waits least for others in its matched collectives of the step. Of ranks that
    wait equally, as without matched collectives, the one with the longest window is chosen. On
    other ranks, a late host or a slow GPU would appear as exposed communication. Ranks that wait
    for each other have almost equal windows, so the longest window does not show who is late."""

    facts: StepFacts
    """The longest window."""
    rank: int | None
    awaited: StepFacts
    """The step on the awaited rank."""
    awaited_rank: int | None
    slowed_ns: int | None
    """Time by which communication lengthened GEMMs (an estimate); None where no GEMM could be
    judged, so that :attr:`compute_ns` may include it."""

    @property
    def compute_ns(self) -> int:
        """Computing, as if nothing were slowed."""
        return self.awaited.compute_ns - (self.slowed_ns or 0)

    @property
    def idle_ns(self) -> int:
        """Nothing runs, so that the parts add up to the longest window."""
        return self.facts.window_ns - self.awaited.busy_ns


def step_times(
    ranks: Sequence[RankAnalysis],
    pooled: Sequence[PooledGemm],
    waits: Mapping[tuple[int | None, int], int],
) -> tuple[StepTime, ...]:
    """The steps that all `ranks` of a point recorded, by number.

    Args:
        pooled: the point's GEMMs: those that are shown to be slowed count as slowed compute.
        waits: those of :func:`~gemmetry.sweeps.collectives.rank_waits`.
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
    numbers = [rank.facts.rank for rank in ranks]
    found = []
    for number in shared:
        steps = [steps[number] for steps in of_ranks]
        longest = max(range(len(ranks)), key=lambda at: steps[at].window_ns)
        awaited = min(
            range(len(ranks)),
            key=lambda at: (waits.get((numbers[at], number), math.inf), -steps[at].window_ns),
        )
        slow = None
        if is_known:
            # GEMMs of several streams may be slowed at the same time, but not for longer than
            # computing.
            slow = min(max(excess[awaited].get(number, 0), 0), steps[awaited].compute_ns)
        found.append(
            StepTime(steps[longest], numbers[longest], steps[awaited], numbers[awaited], slow)
        )
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


def summarize_point(steps: Sequence[StepTime]) -> StepSummary | None:
    """The median step; None without steps."""
    if not steps:
        return None
    low, high = median_interval([step.facts.window_ns / 1e6 for step in steps]) or (None, None)
    ordered = sorted(steps, key=lambda step: step.facts.window_ns)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]

    def mean(part: str) -> float:
        total: int = sum(map(attrgetter(part), middle))
        return total / len(middle) / 1e6

    return StepSummary(
        step_ms=StepMedian(median=mean("facts.window_ns"), ci_low=low, ci_high=high, n=len(steps)),
        compute_ms=mean("compute_ns"),
        slowed_compute_ms=mean("slowed_ns") if steps[0].slowed_ns is not None else None,
        exposed_comm_ms=mean("awaited.exposed_comm_ns"),
        exposed_copy_ms=mean("awaited.exposed_copy_ns"),
        idle_ms=mean("idle_ns"),
    )


class Best(NamedTuple):
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
        """Verdict on the best point and the next: ``faster``, ``no difference shown``,
        ``undecided``; ``the only one``."""
        return self.second.verdict_of_best if self.second else "the only one"

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
        configuration: values
        for configuration, found in runs.items()
        if (values := [median(steps) for steps in found if len(steps)])
    }
    if not medians:
        return None
    means = {one: geometric_mean(found) for one, found in medians.items()}
    order = sorted(means, key=lambda one: (means[one], one.order))
    spread, family = run_spread(list(medians.values())), max(1, len(order) - 1)
    ranked = []
    for one in order:
        comparison = None if one is order[0] else compare_runs(
            medians[order[0]], medians[one], spread, relevant=RELEVANT, family=family
        )  # fmt: skip
        ranked.append(Ranked(
            comparison=comparison, **configuration_entry(one), configuration=one,
            mean_ms=means[one], runs=len(medians[one]), steps=sum(map(len, runs[one])),
            note=comparison.note if comparison else None,
        ))  # fmt: skip
    return Best(tuple(ranked))


def setting_effects(runs: Runs) -> tuple[SettingEffect, ...]:
    """The effect of every value of each setting, compared with its first value.

    Each pair is one observation, the ratio of the two points' means over their runs, so that even
    a sweep without repeats can show what a setting does on average.
    """
    steps = {
        one: geometric_mean(median(times) for times in found if len(times))
        for one, found in runs.items()
        if any(map(len, found))
    }
    by_settings = {}
    values: dict[str, dict[str, None]] = {}
    """Setting -> its values, in the order of the points."""
    for one in sorted(steps, key=lambda c: c.order):
        known = {"threads": one.threads, "channels": one.channels}
        settings = {n: str(v) for n, v in known.items() if v is not None} | dict(one.axes)
        by_settings[frozenset(settings.items())] = steps[one]
        for name, value in settings.items():
            values.setdefault(name, {})[value] = None
    pairs = {}
    for name, (before, *others) in values.items():
        for after in others:
            found = [
                (step, by_settings[other])
                for settings, step in by_settings.items()
                if (name, before) in settings
                and (other := settings - {(name, before)} | {(name, after)}) in by_settings
            ]
            if len(found) >= LEAST_PAIRS:
                pairs[name, before, after] = found
    each = 1 - (1 - CONFIDENCE) / max(1, len(pairs))
    return tuple(
        SettingEffect(
            comparison=compare_pairs(*zip(*found, strict=True), confidence=each, relevant=RELEVANT),
            name=name, before=before, after=after, pairs=len(found),
        )
        for (name, before, after), found in pairs.items()
    )  # fmt: skip


TraceGaps: TypeAlias = tuple[int | str, ...]
"""Ranks without a whole trace, then files of unknown ranks that are not whole."""

_MOST_OF_A_TRACE = 3
"""Problems of one trace that are listed."""


def point_problems(
    point: Point,
    ranks: Sequence[RankAnalysis],
    selected: Collection[int] | None = None,
    lost: Collection[int | None] = (),
) -> list[str]:
    """Problems of one point: outcome, missing ranks, differences between ranks, damaged traces.

    Args:
        selected: the ranks that are analysed; None: all.
        lost: those whose trace may be sound, but could not be read here.
    """
    found = [point.reason] if point.reason else []
    facts = [rank.facts for rank in ranks]
    have = Counter(one.rank for one in facts if one.rank is not None)
    missing = sorted(_expected(facts, selected) - {*lost, *have})
    if missing:
        size = max(one.world_size or 0 for one in facts)
        verb = noun_for(len(missing), "has", "have")
        found.append(f"{listed_ranks(missing)} of {size} {verb} no trace that can be read")
    found += [
        f"several traces are of rank {number} according to their content"
        for number, count in sorted(have.items())
        if count > 1
    ]
    found += _differing("ranks differ in their world sizes", facts, lambda one: one.world_size)
    found += _differing("ranks differ in their versions of NCCL", facts, _nccl)
    found += _differing("ranks differ in their numbers of steps", facts, lambda one: len(one.steps))
    if facts and not any(one.steps for one in facts):
        found.append(
            "no trace has steps, so there are no times of steps; record with a schedule and call "
            "step() of torch.profiler.profile in each iteration"
        )
    elif facts and not set.intersection(*({s.number for s in one.steps} for one in facts)):
        found.append("no step was recorded by all ranks, so there are no times of steps")
    for rank in ranks:
        name, problems = rank.facts.file, rank.facts.problems
        found += [f"{name} is partial: events are missing"] if rank.facts.partial else []
        found += [f"{name}: {problem}" for problem in problems[:_MOST_OF_A_TRACE]]
        if (more := len(problems) - _MOST_OF_A_TRACE) > 0:
            found.append(f"{name}: and {plural(more, 'more problem')}")
        found += rank.problems
    return found


def trace_gaps(
    point: Point, ranks: Sequence[RankAnalysis], selected: Collection[int] | None = None
) -> TraceGaps:
    """The ranks of a point without a whole trace, and the files of unknown ranks that are not
    whole: a step may last longer than the other traces show.

    Args:
        selected: the ranks that are analysed; None: all.
    """
    whole = {rank.facts.file: rank.facts.rank for rank in ranks if not rank.facts.partial}
    needed: set[int | str] = {*_expected([rank.facts for rank in ranks], selected)}
    needed |= {
        file.rank if file.rank is not None else str(file.path)
        for file in point.traces
        if str(file.path) not in whole
    }
    return tuple(sorted(needed - {*whole.values()}, key=lambda one: (isinstance(one, str), one)))


def left_out(points: Sequence[PointAnalysis]) -> list[str]:
    """Why the steps of each point are not compared with those of others; "" where they are, or
    where there are none.

    Those of a run that failed are not, nor those of traces that lack more than another point's do:
    its step could seem shorter because the slowest rank is missing.
    """
    gaps = [one.gaps for one in points if one.steps and one.point.outcome == "ok"]
    least = min(gaps, key=lambda one: (len(one), -gaps.count(one), str(one)), default=())
    return [
        "" if not one.steps
        else "its run failed" if one.point.outcome != "ok"
        else "" if one.gaps == least
        else _gaps_text(one.gaps)
        for one in points
    ]  # fmt: skip


def _gaps_text(gaps: TraceGaps) -> str:
    ranks = [one for one in gaps if isinstance(one, int)]
    parts = [*([listed_ranks(ranks)] if ranks else []), *map(str, gaps[len(ranks) :])]
    return f"no whole trace of {', '.join(parts)}"


def sweep_problems(points: Sequence[PointAnalysis]) -> list[str]:
    """Differences that make points of one sweep incomparable."""
    found = []
    compared = [one for one in points if one.is_compared]
    if compared and compared[0].gaps:
        found.append(
            f"every point that is compared has {_gaps_text(compared[0].gaps)}: its step may be "
            "longer than the other ranks show"
        )
    for what, value in (
        ("world sizes", lambda one: one.world_size),
        ("versions of NCCL", _nccl),
        ("GPUs", lambda one: one.device),
    ):
        facts = [rank.facts for point in points for rank in point.ranks]
        found += _differing(f"points differ in their {what}", facts, value)
    counts = {len(point.steps) for point in points if point.ranks}
    if len(counts) > 1:
        listed = ", ".join(map(str, sorted(counts)))
        found.append(f"points differ in the number of steps that all ranks recorded: {listed}")
    return found


def _expected(facts: Sequence[RankFacts], selected: Collection[int] | None) -> set[int]:
    """The ranks that should have a trace."""
    every = set(range(max((one.world_size or 0 for one in facts), default=0)))
    return every if selected is None else every & set(selected)


def listed_ranks(ranks: Sequence[int]) -> str:
    """``ranks 1, 2``; of many the first eight."""
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"{noun_for(len(ranks), 'rank')} {', '.join(map(str, ranks[:8]))}{more}"


def _nccl(facts: RankFacts) -> str | None:
    return facts.versions.get("nccl_version")


def _differing(
    what: str, facts: Iterable[RankFacts], value: Callable[[RankFacts], object]
) -> list[str]:
    values = {str(found) for one in facts if (found := value(one)) not in (None, "")}
    return [f"{what}: {', '.join(sorted(values))}"] if len(values) > 1 else []


class PointSelection(NamedTuple):
    """Points and ranks to analyse; None: all."""

    threads: Collection[int] | None = None
    channels: Collection[int] | None = None
    ranks: Collection[int] | None = None

    def takes(self, chosen: SweepConfiguration) -> bool:
        """Whether points with this configuration belong to it."""
        return (self.threads is None or chosen.threads in self.threads) and (
            self.channels is None or chosen.channels in self.channels
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PointAnalysis:
    """Analysis of one point."""

    point: Point
    ranks: tuple[RankAnalysis, ...]
    """Ranks by number, those without one last."""
    job: JobCollectives
    """The collectives of its ranks, matched."""
    pooled: tuple[PooledGemm, ...]
    """The GEMMs over all ranks, those with the most time first."""
    steps: tuple[StepTime, ...]
    summary: StepSummary | None
    """Summary; None where not every rank has a step in common."""
    settings: tuple[SettingVerdict, ...] = ()
    stragglers: tuple[PointStraggler, ...] = ()
    recorded: tuple[RecordedCollective, ...] = ()
    """Collectives that NCCL Inspector recorded."""
    rocprof: PointRocprof = PointRocprof()
    problems: tuple[str, ...] = ()
    gaps: TraceGaps = ()
    left_out: str = ""
    """Why its steps are not compared with those of other points; "" where they are."""

    @property
    def collectives(self) -> tuple[PointCollective, ...]:
        """Collectives by operation and size."""
        return point_collectives(self.job)

    @property
    def is_complete(self) -> bool:
        """Whether the run ended well, or there was none, and everything of it could be read."""
        is_read = len(self.ranks) == len(self.point.traces)
        is_whole = not any(one.facts.partial or one.problems for one in self.ranks)
        return is_read and is_whole and self.point.outcome in ("ok", "not_run")

    @property
    def is_compared(self) -> bool:
        """Whether the point has steps that are compared with those of other points."""
        return bool(self.steps) and not self.left_out

    @property
    def world_size(self) -> int | None:
        """Number of ranks of the run, as its traces record it; of several, the largest."""
        sizes = [one.facts.world_size for one in self.ranks if one.facts.world_size]
        return max(sizes, default=self.point.facts.get("world_size"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAnalysis:
    """Analysis of a sweep."""

    sweep: Sweep
    points: tuple[PointAnalysis, ...]
    """Points by configuration and repeat, including those that did not run."""
    best: Best | None
    """Best configuration; None where no point has steps."""
    effects: tuple[SettingEffect, ...]
    """Effect of each setting on the step, among points that differ in nothing else."""
    settings: tuple[SweepSetting, ...] = ()
    """The verdict on each setting with several values, over all points."""
    problems: tuple[str, ...]
    """Problems of the folder, and differences between points, but not problems of one point."""

    @property
    def all_problems(self) -> list[str]:
        """Problems of the sweep, then those of each point with its name."""
        return [
            *self.problems,
            *(f"{one.point.label}: {text}" for one in self.points for text in one.problems),
        ]


def analyse_sweep(
    folder: Path,
    *,
    selection: PointSelection | None = None,
    workbooks: Path | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
) -> SweepAnalysis:
    """Read every trace of a sweep once, in parallel, and compute what they show.

    Args:
        workbooks: the folder of the analysis, below which the workbook of each trace is written
            while the trace is in memory; None: none are.
        processes: like :func:`~gemmetry.sweeps.workers.analyse_ranks`.

    Raises:
        RequestError: the folder has no point of a sweep, none is selected, or no trace of those
            that are can be read. EnvironmentFailure: the processes that read them failed.
    """
    whole, selection = read_sweep(folder), selection or PointSelection()
    chosen = _selected(whole, selection)
    sweep = replace(whole, points=tuple(chosen))
    if workbooks is not None:
        from gemmetry.documents.sweep_workbooks import rank_workbooks
    tasks = [
        RankTask(file, "" if workbooks is None else rank_workbooks(workbooks, sweep, point))
        for point in chosen
        for file in point.traces
    ]
    results = iter(analyse_ranks(tasks, processes=processes, progress=progress))
    ranks, failures, lost = [], [], []
    for point in chosen:
        found = [(file, next(results)) for file in point.traces]
        read = [one for _, one in found if isinstance(one, RankAnalysis)]
        failed = [(file, one) for file, one in found if isinstance(one, RankFailure)]
        # Most reasons name the trace.
        texts = [(str(file.path), one.reason) for file, one in failed]
        read.sort(key=lambda one: (one.facts.rank is None, one.facts.rank or 0))
        ranks.append(tuple(read))
        failures.append([text if path in text else f"{path}: {text}" for path, text in texts])
        lost.append([file.rank for file, one in failed if one.is_internal])
    counters = _rocprof(chosen, ranks, selection.ranks, processes)
    if not any(ranks) and not any(one.kernels for one in counters):
        raise _nothing_read(sweep, [text for of in failures for text in of], any(lost))
    points = [
        _point_analysis(
            point, of, gemms, counted_here,
            (*texts, *point_problems(point, of, selection.ranks, gone)),
            trace_gaps(point, of, selection.ranks),
        )
        for point, of, gemms, counted_here, texts, gone in zip(
            chosen, ranks, pooled_gemms(ranks), counters, failures, lost, strict=True
        )
    ]  # fmt: skip
    points = [replace(one, left_out=why) for one, why in zip(points, left_out(points), strict=True)]
    compared = grouped((one for one in points if one.is_compared),
                       lambda one: one.point.configuration)  # fmt: skip
    runs = {configuration: [[step.facts.window_ns / 1e6 for step in one.steps] for one in ones]
            for configuration, ones in compared.items()}  # fmt: skip
    verdicts = [(one.point, one.settings, [rank.facts for rank in one.ranks]) for one in points]
    return SweepAnalysis(
        sweep=sweep,
        points=tuple(points),
        best=find_best(runs),
        effects=setting_effects(runs),
        settings=tuple(sweep_verdicts(verdicts)),
        problems=(*sweep.problems, *sweep_problems(points)),
    )


def _selected(sweep: Sweep, selection: PointSelection) -> list[Point]:
    found = [point for point in sweep.points if selection.takes(point.configuration)]
    if not found:
        have = "; ".join(dict.fromkeys(point.configuration.label for point in sweep.points))
        raise RequestError(
            f"{sweep.folder} has no point with the selected threads and channels",
            hint=f"It has: {have}.",
        )
    wanted = selection.ranks
    if wanted is None:
        return found
    # Without a number in its path, only the trace knows its rank.
    chosen = [
        replace(point, traces=tuple(f for f in point.traces if f.rank is None or f.rank in wanted))
        for point in found
    ]
    traced = sorted({one.rank for point in found for one in point.traces if one.rank is not None})
    if traced and not any(point.traces or point.rocprof for point in chosen):
        raise RequestError(
            f"{sweep.folder} has no trace of the selected {listed_ranks(sorted(wanted))}",
            hint=f"It has traces of {listed_ranks(traced)}.",
        )
    return chosen


def _nothing_read(sweep: Sweep, failures: Sequence[str], is_internal: bool) -> GemmetryError:
    points = sweep.points
    texts = [f"{one.label}: {one.reason}" for one in points if one.reason] + list(failures)
    listed = "".join(f"\n  {text}" for text in texts[:8])
    more = f"\n  and {len(texts) - 8} more" if len(texts) > 8 else ""
    what = f"{sweep.folder} has {plural(len(points), 'point')}, but no trace "
    if is_internal:
        return EnvironmentFailure(
            f"{what}was read{listed}{more}",
            hint="The traces may be sound: gemmetry failed while it read them, or memory was "
            "short. gemmetry trace summary FILE reads one alone, and shows why.",
        )
    return RequestError(
        f"{what}that can be read{listed}{more}",
        hint="The training has to write a trace per rank into torch_profiler/ of each point, with "
        "torch.profiler and its schedule.",
    )


_SERIALISED = (
    "rocprofv3 collected counters, for which kernels run one after the other: steps, overlap and "
    "slowdowns are not those of the training; run the point without counters for them"
)


def _rocprof(
    points: Sequence[Point],
    ranks: Sequence[Sequence[RankAnalysis]],
    wanted: Collection[int] | None,
    processes: int | None,
) -> list[PointRocprof]:
    """The kernels of the wanted ranks of each point, and of processes whose rank is not known."""
    tasks = [
        RocprofTask(
            point.rocprof,
            tuple(
                TraceProcess(pid=one.process, host=one.host or "", rank=one.rank)
                for one in (rank.facts for rank in found)
                if one.process is not None and one.rank is not None
            ),
        )
        for point, found in zip(points, ranks, strict=True)
    ]
    result = []
    for own, found in zip(ranks, read_rocprofs(tasks, processes=processes), strict=True):
        kernels = tuple(
            one for one in found.kernels
            if wanted is None or one.rank is None or one.rank in wanted
        )  # fmt: skip
        more = (_SERIALISED,) if own and any(one.is_serialised for one in found.kernels) else ()
        result.append(replace(found, kernels=kernels, problems=(*found.problems, *more)))
    return result


def _point_analysis(
    point: Point,
    ranks: tuple[RankAnalysis, ...],
    pooled: tuple[PooledGemm, ...],
    rocprof: PointRocprof,
    problems: tuple[str, ...],
    gaps: TraceGaps,
) -> PointAnalysis:
    facts = [rank.facts for rank in ranks]
    job = matched_job(facts)
    steps = step_times(ranks, pooled, rank_waits(job, facts))
    damaged: list[str] = []
    return PointAnalysis(
        point=point,
        ranks=ranks,
        job=job,
        pooled=pooled,
        steps=steps,
        summary=summarize_point(steps),
        settings=tuple(setting_verdicts(point, facts)),
        stragglers=tuple(stragglers(facts, job)),
        recorded=recorded_collectives(read_records(point, damaged), job),
        rocprof=rocprof,
        problems=(*problems, *damaged, *rocprof.problems),
        gaps=gaps,
    )
