"""What of a sweep is missing, damaged or not comparable, in sentences.

Everything that a sweep shows, computed from its folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from gemmetry.domain.errors import EnvironmentFailure, GemmetryError, RequestError
from gemmetry.domain.units import counted, noun_for
from gemmetry.sweeps.folder import read_sweep
from gemmetry.sweeps.inspector import read_records, recorded_collectives
from gemmetry.sweeps.model import Point, RankFacts, RankFile, Sweep, SweepConfiguration
from gemmetry.sweeps.nccl_settings import setting_verdicts, sweep_verdicts
from gemmetry.sweeps.parallel import Progress, analyse_ranks, read_rocprofs
from gemmetry.sweeps.points import (
    Best,
    Runs,
    StepTime,
    find_best,
    matched_job,
    point_collectives,
    pooled_gemms,
    setting_effects,
    step_times,
    summarize_point,
)
from gemmetry.sweeps.rank_worker import RankAnalysis, RankFailure, RankTask, RocprofTask
from gemmetry.sweeps.rocprof import PointRocprof
from gemmetry.sweeps.rows import (
    PointCollective,
    PointStraggler,
    PooledGemm,
    RecordedCollective,
    RocprofKernel,
    SettingEffect,
    SettingVerdict,
    StepSummary,
    SweepSetting,
)
from gemmetry.sweeps.stragglers import stragglers
from gemmetry.traces.collectives.matching import JobCollectives

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
    """Of one point: its outcome, missing ranks, differences between ranks, damaged traces.

    Args:
        selected: the ranks that are analysed; None: all.
        lost: those whose trace may be sound, but could not be read here.
    """
    found = [point.reason] if point.reason else []
    facts = [rank.facts for rank in ranks]
    found += _missing_ranks(facts, [one for one in _expected(facts, selected) if one not in lost])
    found += _twice(facts)
    found += _differing("world sizes", facts, lambda one: one.world_size)
    found += _differing("versions of NCCL", facts, lambda one: one.versions.get("nccl_version"))
    found += _differing("numbers of steps", facts, lambda one: len(one.steps))
    if facts and not any(one.steps for one in facts):
        found.append(
            "no trace has steps, so there are no times of steps; record with a schedule and call "
            "step() of torch.profiler.profile in each iteration"
        )
    elif facts and not set.intersection(*({s.number for s in one.steps} for one in facts)):
        found.append("no step was recorded by all ranks, so there are no times of steps")
    for rank in ranks:
        found += _of_trace(rank)
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
    return ["" if not one.steps else _why_left_out(one, least) for one in points]


def _why_left_out(one: PointAnalysis, least: TraceGaps) -> str:
    if one.point.outcome != "ok":
        return "its run failed"
    return "" if one.gaps == least else _gaps_text(one.gaps)


def _gaps_text(gaps: TraceGaps) -> str:
    ranks = [one for one in gaps if isinstance(one, int)]
    parts = [listed_ranks(ranks)] if ranks else []
    parts += [one for one in gaps if isinstance(one, str)]
    return f"no whole trace of {', '.join(parts)}"


def sweep_problems(points: Sequence[PointAnalysis]) -> list[str]:
    """What makes points of one sweep incomparable."""
    found = []
    compared = [one for one in points if one.is_compared]
    if compared and compared[0].gaps:
        found.append(
            f"every point that is compared has {_gaps_text(compared[0].gaps)}: its step may be "
            "longer than the other ranks show"
        )
    for what, value in (
        ("world sizes", lambda one: one.world_size),
        ("versions of NCCL", lambda one: one.versions.get("nccl_version")),
        ("GPUs", lambda one: one.device),
    ):
        values = {
            text
            for point in points
            for text in _values([rank.facts for rank in point.ranks], value)
        }
        if len(values) > 1:
            found.append(f"points differ in their {what}: {', '.join(sorted(values))}")
    counts = {len(point.steps) for point in points if point.ranks}
    if len(counts) > 1:
        listed = ", ".join(map(str, sorted(counts)))
        found.append(f"points differ in the number of steps that all ranks recorded: {listed}")
    return found


def _expected(facts: Sequence[RankFacts], selected: Collection[int] | None) -> set[int]:
    """The ranks that should have a trace."""
    every = set(range(max((one.world_size or 0 for one in facts), default=0)))
    return every if selected is None else every & set(selected)


def _missing_ranks(facts: Sequence[RankFacts], expected: Collection[int]) -> list[str]:
    missing = sorted(set(expected) - {one.rank for one in facts})
    if not missing:
        return []
    size = max(one.world_size or 0 for one in facts)
    has = noun_for(len(missing), "has", "have")
    return [f"{listed_ranks(missing)} of {size} {has} no trace that can be read"]


def listed_ranks(ranks: Sequence[int]) -> str:
    """``ranks 1, 2``; of many the first eight."""
    listed = ", ".join(map(str, ranks[:8]))
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"{noun_for(len(ranks), 'rank')} {listed}{more}"


def _twice(facts: Sequence[RankFacts]) -> list[str]:
    counts = Counter(one.rank for one in facts if one.rank is not None)
    twice = sorted(number for number, count in counts.items() if count > 1)
    return [f"several traces are of rank {number} according to their content" for number in twice]


def _values(facts: Iterable[RankFacts], value: Callable[[RankFacts], object]) -> set[str]:
    return {str(value(one)) for one in facts if value(one) not in (None, "")}


def _differing(
    what: str, facts: Sequence[RankFacts], value: Callable[[RankFacts], object]
) -> list[str]:
    values = _values(facts, value)
    return [f"ranks differ in their {what}: {', '.join(sorted(values))}"] if len(values) > 1 else []


def _of_trace(rank: RankAnalysis) -> list[str]:
    name = rank.facts.file
    found = [f"{name} is partial: events are missing"] if rank.facts.partial else []
    problems = rank.facts.problems
    found += [f"{name}: {problem}" for problem in problems[:_MOST_OF_A_TRACE]]
    if len(problems) > _MOST_OF_A_TRACE:
        found.append(f"{name}: and {counted(len(problems) - _MOST_OF_A_TRACE, 'more problem')}")
    return [*found, *rank.problems]


@dataclass(frozen=True, slots=True)
class PointSelection:
    """Which points and ranks are analysed; None: all."""

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
    """What one point shows."""

    point: Point
    ranks: tuple[RankAnalysis, ...]
    """By rank, those without a number last."""
    job: JobCollectives
    """The collectives of its ranks, matched."""
    pooled: tuple[PooledGemm, ...]
    """The GEMMs over all ranks, those with the most time first."""
    steps: tuple[StepTime, ...]
    summary: StepSummary | None
    """None where not every rank has a step in common."""
    settings: tuple[SettingVerdict, ...] = ()
    stragglers: tuple[PointStraggler, ...] = ()
    recorded: tuple[RecordedCollective, ...] = ()
    """What NCCL Inspector recorded."""
    rocprof: PointRocprof = PointRocprof()
    """What rocprofv3 recorded."""
    problems: tuple[str, ...] = ()
    unreadable: int = 0
    """Number of traces that could not be read."""
    gaps: TraceGaps = ()
    left_out: str = ""
    """Why its steps are not compared with those of other points; "" where they are."""

    @property
    def collectives(self) -> tuple[PointCollective, ...]:
        """Its collectives by operation and size."""
        return point_collectives(self.job)

    @property
    def rocprof_kernels(self) -> tuple[RocprofKernel, ...]:
        """The kernels that rocprofv3 recorded."""
        return self.rocprof.kernels

    @property
    def is_complete(self) -> bool:
        """Whether the run ended well, or there was none, and everything of it could be read."""
        is_whole = not self.unreadable and not any(
            one.facts.partial or one.problems for one in self.ranks
        )
        return is_whole and self.point.outcome in ("ok", "not_run")

    @property
    def is_compared(self) -> bool:
        """Whether it has steps that are compared with those of other points."""
        return bool(self.steps) and not self.left_out

    @property
    def world_size(self) -> int | None:
        """Number of ranks of the run, as its traces record it; of several, the largest."""
        sizes = [one.facts.world_size for one in self.ranks if one.facts.world_size]
        return max(sizes, default=self.point.facts.get("world_size"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAnalysis:
    """What a sweep shows."""

    sweep: Sweep
    points: tuple[PointAnalysis, ...]
    """By configuration and repeat; those that did not run included."""
    best: Best | None
    """None where no point has steps."""
    effects: tuple[SettingEffect, ...]
    """What each setting changes of the step, as far as points differ in nothing else."""
    settings: tuple[SweepSetting, ...] = ()
    """The verdict on each setting with several values, over all points."""
    problems: tuple[str, ...]
    """Of the folder, and what differs between points; those of one point stand there."""

    @property
    def all_problems(self) -> list[str]:
        """Those of the sweep, then those of each point with its name."""
        return [
            *self.problems,
            *(f"{one.point.label}: {text}" for one in self.points for text in one.problems),
        ]


def analyse_sweep(
    folder: Path,
    *,
    selection: PointSelection | None = None,
    workbook_of: Callable[[Sweep, Point], str] | None = None,
    hook: str = "",
    processes: int | None = None,
    progress: Progress | None = None,
) -> SweepAnalysis:
    """Read every trace of a sweep once, in parallel, and compute what they show.

    Args:
        workbook_of: beginning of the paths of the workbooks of a point's traces, which `hook`
            writes while each trace is in memory.
        hook: ``module:function`` of a
            :data:`~gemmetry.sweeps.rank_worker.Hook`; "": none.
        processes: like :func:`~gemmetry.sweeps.parallel.analyse_ranks`.

    Raises:
        RequestError: the folder has no point of a sweep, none is selected, or no trace of those
            that are can be read. EnvironmentFailure: the processes that read them failed.
    """
    whole, selection = read_sweep(folder), selection or PointSelection()
    chosen = _selected(whole, selection)
    sweep = replace(whole, points=tuple(chosen))
    tasks = [
        RankTask(
            str(file.path),
            file.rank,
            file.rank_source,
            "" if workbook_of is None else workbook_of(sweep, point),
            tuple(map(str, file.more)),
        )
        for point in chosen
        for file in point.traces
    ]
    results = iter(analyse_ranks(tasks, hook=hook, processes=processes, progress=progress))
    of_points = [[(file, next(results)) for file in point.traces] for point in chosen]
    ranks = [
        _by_rank([one for _, one in found if isinstance(one, RankAnalysis)]) for found in of_points
    ]
    failures = [
        [_failure(file, one) for file, one in found if isinstance(one, RankFailure)]
        for found in of_points
    ]
    lost = [
        [file.rank for file, one in found if isinstance(one, RankFailure) and one.is_internal]
        for found in of_points
    ]
    counted = _rocprof(chosen, ranks, selection.ranks, processes)
    if not any(ranks) and not any(one.kernels for one in counted):
        texts = [text for of_point in failures for text in of_point]
        raise _nothing_read(sweep, chosen, texts, is_internal=any(lost))
    points = [
        _point_analysis(
            point, found, pooled, rocprof,
            (*texts, *point_problems(point, found, selection.ranks, lost_here)),
            trace_gaps(point, found, selection.ranks),
        )
        for point, found, pooled, rocprof, texts, lost_here in zip(
            chosen, ranks, pooled_gemms(ranks), counted, failures, lost, strict=True
        )
    ]  # fmt: skip
    points = [replace(one, left_out=why) for one, why in zip(points, left_out(points), strict=True)]
    return SweepAnalysis(
        sweep=sweep,
        points=tuple(points),
        best=find_best(_runs(points)),
        effects=setting_effects(_runs(points)),
        settings=tuple(
            sweep_verdicts(
                [(one.point, one.settings, [rank.facts for rank in one.ranks]) for one in points]
            )
        ),
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
        replace(
            point,
            traces=tuple(one for one in point.traces if one.rank is None or one.rank in wanted),
        )
        for point in found
    ]
    traced = sorted({one.rank for point in found for one in point.traces if one.rank is not None})
    if traced and not any(point.traces or point.rocprof for point in chosen):
        raise RequestError(
            f"{sweep.folder} has no trace of the selected {listed_ranks(sorted(wanted))}",
            hint=f"It has traces of {listed_ranks(traced)}.",
        )
    return chosen


def _failure(file: RankFile, failure: RankFailure) -> str:
    """Why the trace could not be read; most reasons name it."""
    path, reason = str(file.path), failure.reason
    return reason if path in reason else f"{path}: {reason}"


def _by_rank(found: list[RankAnalysis]) -> tuple[RankAnalysis, ...]:
    return tuple(sorted(found, key=lambda one: (one.facts.rank is None, one.facts.rank or 0)))


def _nothing_read(
    sweep: Sweep, points: Sequence[Point], failures: Sequence[str], *, is_internal: bool
) -> GemmetryError:
    texts = [f"{one.label}: {one.reason}" for one in points if one.reason] + list(failures)
    listed = "".join(f"\n  {text}" for text in texts[:8])
    more = f"\n  and {len(texts) - 8} more" if len(texts) > 8 else ""
    what = f"{sweep.folder} has {counted(len(points), 'point')}, but no trace "
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
            tuple(map(str, point.rocprof)),
            tuple(
                (one.process, one.host or "", one.rank)
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
        is_serialised = own and any(one.is_serialised for one in found.kernels)
        more = (_SERIALISED,) if is_serialised else ()
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
    steps = step_times(ranks, pooled)
    facts = [rank.facts for rank in ranks]
    job = matched_job(facts)
    damaged: list[str] = []
    recorded = recorded_collectives(read_records(point, damaged), job)
    return PointAnalysis(
        point=point,
        unreadable=len(point.traces) - len(ranks),
        ranks=ranks,
        job=job,
        pooled=pooled,
        steps=steps,
        summary=summarize_point(steps),
        settings=tuple(setting_verdicts(point, facts)),
        stragglers=tuple(stragglers(facts, job)),
        recorded=recorded,
        rocprof=rocprof,
        problems=(*problems, *damaged, *rocprof.problems),
        gaps=gaps,
    )


def _runs(points: Sequence[PointAnalysis]) -> Runs:
    """The steps of those points that are compared, in ms."""
    runs: dict[SweepConfiguration, list[list[float]]] = {}
    for one in points:
        if one.is_compared:
            times = [step.window_ns / 1e6 for step in one.steps]
            runs.setdefault(one.point.configuration, []).append(times)
    return runs
