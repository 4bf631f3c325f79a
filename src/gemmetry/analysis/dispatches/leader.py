"""Determines who is fastest, on how many operations, by how much, and for how many of them this is
shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmetry.analysis.dispatches.baseline import (
    Problem,
    RecordId,
    fastest,
    geometric_mean,
    group_by_problem,
    record_id,
)
from gemmetry.analysis.dispatches.marks import RunMarks
from gemmetry.analysis.dispatches.within import compare_with_baseline
from gemmetry.domain.outcome import Outcome, Verification
from gemmetry.domain.record import Record, ResultSet
from gemmetry.statistics.comparison import Difference

Bests = Mapping[str, Record]
"""Contender -> its fastest record for one problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The contender with the shortest median on most of the operations that several contenders
    measured."""

    name: str
    """A provider; a configuration where only one provider was measured."""
    is_configuration: bool
    operations: int
    """Operations that the leader and at least one other contender measured with the outcome ok; the
    other counts refer to these."""
    fastest: int
    """Operations on which its median is the shortest."""
    shown: int
    """Number of those on which every other contender's best was shown to be slower."""
    ratio: float
    """Geometric mean over the operations of its speed relative to the best of the others."""
    marked: int
    """Operations on which its measurement, or that of the best other contender, has marks that the
    rest of the run does not."""
    unverified: int
    """Operations on which its result was not verified."""
    imported: int = 0
    """Operations on which the best other contender was measured by another benchmark, and not
    verified here."""
    undecided: int = 0
    """Number of the operations on which it is fastest but too little was measured to distinguish it
    from another contender's best."""
    alone: int = 0
    """Operations besides these, measured with a single contender or without the leader."""


def find_leader(result_set: ResultSet, marks: RunMarks) -> Leader | None:
    """The leader of an experiment; None where no operation was measured with two contenders.

    Contenders are providers, or configurations where there is only one provider. The leader's best
    dispatch of each operation is compared with the best ones of the others, all comparisons judged
    together (:func:`compare_with_baseline`).
    """
    measured = [r for r in result_set.records if r.outcome is Outcome.OK and r.measurement]
    is_configuration = len({record.provider for record in measured}) < 2
    name = _configuration if is_configuration else _provider
    problems = group_by_problem(measured)
    contested = {
        problem: bests
        for problem, group in problems.items()
        if len(bests := _bests(group, name)) > 1
    }
    leader = _most_often_fastest(contested)
    if leader is None:
        return None
    contested = {problem: bests for problem, bests in contested.items() if leader in bests}
    verdicts = _judged(result_set, contested, leader, is_configuration)
    rivals = {p: _rival(bests, leader) for p, bests in contested.items()}
    mine = {p: bests[leader] for p, bests in contested.items()}
    won = [p for p in contested if _ns(mine[p]) <= _ns(rivals[p])]
    ratio = geometric_mean(_ns(rivals[p]) / _ns(mine[p]) for p in contested)
    assert ratio is not None
    others = {p: [r for name, r in contested[p].items() if name != leader] for p in won}
    return Leader(
        name=leader,
        is_configuration=is_configuration,
        operations=len(contested),
        alone=len(problems) - len(contested),
        fastest=len(won),
        shown=sum(_is_shown(others[p], verdicts) for p in won),
        ratio=ratio,
        marked=sum(bool(marks.of(mine[p]) or marks.of(rivals[p])) for p in contested),
        unverified=sum(
            record.verdict.status is Verification.NOT_VERIFIED for record in mine.values()
        ),
        imported=sum(record.is_imported for record in rivals.values()),
        undecided=sum(
            any(verdicts.get(record_id(r)) is Difference.UNDECIDED for r in others[p]) for p in won
        ),
    )


def _provider(record: Record) -> str:
    return record.provider


def _configuration(record: Record) -> str:
    return record.configuration


def _bests(group: Sequence[Record], name: Callable[[Record], str]) -> Bests:
    names = dict.fromkeys(map(name, group))
    bests = {one: fastest(r for r in group if name(r) == one) for one in names}
    return {one: record for one, record in bests.items() if record is not None and _ns(record) > 0}


def _most_often_fastest(contested: Mapping[Problem, Bests]) -> str | None:
    """The contender with the most wins; of several, the one with the highest mean ratio to the best
    of the others over all operations that it measured."""
    wins: Counter[str] = Counter()
    ratios: dict[str, list[float]] = {}
    for bests in contested.values():
        wins[min(bests, key=lambda name: _ns(bests[name]))] += 1
        for name, record in bests.items():
            ratios.setdefault(name, []).append(_ns(_rival(bests, name)) / _ns(record))
    return max(
        wins, key=lambda name: (wins[name], geometric_mean(ratios[name]) or 0.0, name), default=None
    )


def _rival(bests: Bests, leader: str) -> Record:
    """The best of the others."""
    return min((record for name, record in bests.items() if name != leader), key=_ns)


def _judged(
    result_set: ResultSet,
    contested: Mapping[Problem, Bests],
    leader: str,
    is_configuration: bool,
) -> Mapping[RecordId, Difference]:
    """The verdict on each other contender's best dispatch compared with the leader's."""
    records = [record for bests in contested.values() for record in bests.values()]
    baseline = f"{records[0].provider}:{leader}" if is_configuration else leader
    (found,) = compare_with_baseline(replace(result_set, records=records), baseline).candidates
    return {
        record_id(change.after): change.difference
        for change in found.changes
        if change.difference is not None
    }


def _is_shown(others: Sequence[Record], verdicts: Mapping[RecordId, Difference]) -> bool:
    return all(verdicts.get(record_id(record)) is Difference.SLOWER for record in others)


def _ns(record: Record) -> float:
    return 0.0 if record.measurement is None else record.measurement.median_ns
