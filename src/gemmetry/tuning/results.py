"""What a search found: the fastest configuration of each shape, next to the baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gemmetry.dispatches.analysis import fastest, is_of_baseline, record_id
from gemmetry.dispatches.comparison import compare_with_baseline
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Record, ResultSet
from gemmetry.statistics.comparison import Comparison, Difference
from gemmetry.tuning.search import SearchHistory, SearchSpace
from gemmetry.tuning.simulation import median_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstBaseline:
    """The winner of a shape compared with a baseline."""

    baseline: str
    """``provider:configuration``."""
    record: Record | None
    """None where the baseline has no correct result."""
    comparison: Comparison | None
    """Of the winner with the baseline, all shapes judged together; None where too little was
    measured for one."""
    is_winner: bool = False
    """Whether the winner is the baseline."""

    @property
    def verdict(self) -> str:
        """One of :class:`Difference`, or why there is none."""
        if self.record is None:
            return "no baseline"
        if self.is_winner:
            return "the baseline"
        return str(self.comparison.verdict if self.comparison else Difference.UNDECIDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTuning:
    """What was found for one operation."""

    operation: str
    space: int
    """Configurations that there are."""
    tried: int
    failed: int
    """Of those that were tried: those that failed or were wrong."""
    evaluations: float
    """What the search cost, short trials in proportion."""
    winner: Record | None = None
    reason: str = ""
    """Why there is no winner."""
    ties: tuple[Record, ...] = ()
    """Other finalists that are not shown to be slower than the winner."""
    against: tuple[AgainstBaseline, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """All shapes, in the order of the request."""

    provider: str
    strategy: str
    limit: str
    seed: int
    baselines: tuple[str, ...]
    shapes: tuple[ShapeTuning, ...]
    is_complete: bool
    """Whether the search came to its end."""
    device: str = ""
    """Product of the finals' device."""
    experiment: Path | None = None
    """Folder of the finals; None where there were none."""
    proofs: Path | None = None
    """Folder of the verifications at level standard; None where the finals have them."""


def judge(
    results: ResultSet,
    *,
    provider: str,
    operations: Sequence[Operation],
    baselines: Sequence[str],
) -> dict[str, ShapeTuning]:
    """The winner of each operation that has one: the correct configuration with the shortest median
    in the finals, which were measured in turns with the baselines.

    Args:
        results: the finals.
        provider: whose configurations compete.
        baselines: ``provider:configuration`` of each.
    """
    names = [str(operation) for operation in operations]
    right = [record for record in results.records if median_of(record) is not None]
    winners: dict[str, Record] = {}
    for name in names:
        own = [r for r in right if r.operation == name and r.provider == provider]
        best = fastest(own)
        if best is not None:
            winners[name] = best
    compared = [_against(results, right, winners, baseline) for baseline in baselines]
    return {
        name: ShapeTuning(
            operation=name,
            space=0,
            tried=0,
            failed=0,
            evaluations=0.0,
            winner=winner,
            ties=_ties(results, right, winner),
            against=tuple(found[name] for found in compared),
        )
        for name, winner in winners.items()
    }


def _against(
    results: ResultSet, right: Sequence[Record], winners: Mapping[str, Record], baseline: str
) -> dict[str, AgainstBaseline]:
    """The winners compared with a baseline. All finalists are in the family of comparisons, as the
    winners were chosen by the same times."""
    base = {r.operation: r for r in right if is_of_baseline(r, baseline)}
    rivals = [r for r in right if r.operation in base and r.provider in _providers(winners)]
    verdicts: dict[object, Comparison] = {}
    if base and rivals:
        records = list({record_id(r): r for r in (*base.values(), *rivals)}.values())
        (found,) = compare_with_baseline(replace(results, records=records), baseline).candidates
        verdicts = {record_id(c.after): c.comparison for c in found.changes if c.comparison}
    return {
        name: AgainstBaseline(
            baseline=baseline,
            record=base.get(name),
            comparison=verdicts.get(record_id(winner)),
            is_winner=is_of_baseline(winner, baseline),
        )
        for name, winner in winners.items()
    }


def _providers(winners: Mapping[str, Record]) -> set[str]:
    return {record.provider for record in winners.values()}


def _ties(results: ResultSet, right: Sequence[Record], winner: Record) -> tuple[Record, ...]:
    own = [r for r in right
           if r.operation == winner.operation and r.provider == winner.provider]  # fmt: skip
    if len(own) < 2:
        return ()
    name = f"{winner.provider}:{winner.configuration}"
    (found,) = compare_with_baseline(replace(results, records=own), name).candidates
    return tuple(
        change.after for change in found.changes if change.difference is not Difference.SLOWER
    )


def with_search(
    judged: Mapping[str, ShapeTuning],
    spaces: Sequence[SearchSpace],
    history: SearchHistory,
    refusals: Mapping[str, str],
    *,
    has_finals: bool,
) -> tuple[ShapeTuning, ...]:
    """The shapes with what the search of each cost, and why those without a winner have none.

    Args:
        refusals: operation -> why its space is empty.
        has_finals: whether finalists were measured.
    """
    found = []
    for index, space in enumerate(spaces):
        name = str(space.operation)
        tried, failed = history.count(index), history.failed(index)
        if name in refusals:
            reason = refusals[name]
        elif not tried:
            reason = "the time ended before one was tried"
        elif failed == tried:
            reason = f"none of the {tried} that were tried worked"
        elif not has_finals:
            reason = "there were no finals"
        else:
            reason = "no finalist passed the verification at level standard"
        known = judged.get(name)
        empty = ShapeTuning(operation=name, space=0, tried=0, failed=0, evaluations=0.0,
                            reason=reason)  # fmt: skip
        found.append(
            replace(
                known or empty,
                space=len(space),
                tried=tried,
                failed=failed,
                evaluations=history.cost(index),
            )
        )
    return tuple(found)
