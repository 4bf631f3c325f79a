"""What of a sweep is missing, damaged or not comparable, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from gemmetry.analysis.sweeps.model import Point, RankFacts
from gemmetry.analysis.sweeps.ranks.worker import RankAnalysis
from gemmetry.domain.units import counted, noun_for

if TYPE_CHECKING:
    from gemmetry.analysis.sweeps.analysis import PointAnalysis

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
