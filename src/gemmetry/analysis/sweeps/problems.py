"""What of a sweep is missing, damaged or not comparable, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from gemmetry.analysis.sweeps.model import Point, RankFacts
from gemmetry.analysis.sweeps.ranks.worker import RankAnalysis
from gemmetry.domain.units import counted, noun_for

if TYPE_CHECKING:
    from gemmetry.analysis.sweeps.analysis import PointAnalysis

_MOST_OF_A_TRACE = 3
"""Problems of one trace that are listed."""


def point_problems(
    point: Point, ranks: Sequence[RankAnalysis], selected: Collection[int] | None = None
) -> list[str]:
    """Of one point: its outcome, missing ranks, differences between ranks, damaged traces.

    Args:
        selected: the ranks that are analysed; None: all.
    """
    found = [point.reason] if point.reason else []
    facts = [rank.facts for rank in ranks]
    found += _missing_ranks(facts, selected)
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


def sweep_problems(points: Sequence[PointAnalysis]) -> list[str]:
    """What makes points of one sweep incomparable."""
    found = []
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


def _missing_ranks(facts: Sequence[RankFacts], selected: Collection[int] | None) -> list[str]:
    size = max((one.world_size or 0 for one in facts), default=0)
    expected = set(range(size)) if selected is None else set(range(size)) & set(selected)
    missing = sorted(expected - {one.rank for one in facts})
    if not missing:
        return []
    listed = ", ".join(map(str, missing[:8]))
    more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
    which, has = noun_for(len(missing), "rank"), noun_for(len(missing), "has", "have")
    return [f"{which} {listed}{more} of {size} {has} no trace that can be read"]


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
    found = [f"{name} ends early: events are missing"] if rank.facts.partial else []
    problems = rank.facts.problems
    found += [f"{name}: {problem}" for problem in problems[:_MOST_OF_A_TRACE]]
    if len(problems) > _MOST_OF_A_TRACE:
        found.append(f"{name}: and {counted(len(problems) - _MOST_OF_A_TRACE, 'more problem')}")
    return [*found, *rank.problems]
