"""Compares experiments: one row per dispatch, with an interval and a verdict.

Compares the dispatches of one experiment with a baseline among them.

Determines who is fastest, on how many operations, by how much, and for how many of them this is
shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from os.path import realpath

from gemmetry.dispatches.analysis import (
    DEFAULT_THRESHOLD,
    ComparisonEvidence,
    RecordId,
    RunMarks,
    Speedups,
    baseline_label,
    check_baseline,
    evidence_of,
    fastest,
    geometric_mean,
    group_by_problem,
    is_of_baseline,
    rank,
    record_id,
    speedups,
)
from gemmetry.domain.errors import Outcome, RequestError, Verification
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.tables import grouped
from gemmetry.statistics.comparison import Comparison, Difference
from gemmetry.statistics.comparison import compare as judge_pairs

_CONFIDENCE = 0.95

JoinKey = tuple[str, str, str, str]
"""(target, device, provider, dispatch); the device only where an experiment used several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One dispatch of a candidate, compared with the same dispatch of the first experiment."""

    before: Record
    after: Record
    comparison: Comparison | None = None
    """Ratio of the candidate to the first experiment, by rounds where they are known; None where a
    side has no samples."""
    evidence: ComparisonEvidence | None = field(default=None, repr=False, compare=False)
    """Evidence of the comparison."""
    note: str = ""
    """Reason why there is no comparison, or what weakens it."""
    is_regression: bool = False

    @property
    def ratio(self) -> float | None:
        """Candidate's median duration over the first one's; below 1 is faster."""
        if self.comparison is not None:
            return self.comparison.ratio
        if self.before.median_ns is None or self.after.median_ns is None:
            return None
        return self.after.median_ns / self.before.median_ns

    @property
    def difference(self) -> Difference | None:
        """The verdict on two times, undecided where one has no samples; None where a side has no
        time."""
        if self.comparison is not None:
            return self.comparison.verdict
        return None if self.ratio is None else Difference.UNDECIDED

    @property
    def verdict(self) -> str:
        """One of :class:`Difference`, or the outcome of a side that has no time."""
        if self.difference is not None:
            return str(self.difference)
        if self.after.outcome is not self.before.outcome:
            return f"{self.before.outcome} → {self.after.outcome}"
        return "not measured" if self.after.outcome is Outcome.OK else str(self.after.outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateComparison:
    """One candidate compared with the first experiment."""

    label: str
    title: str
    changes: tuple[Change, ...]
    """One for each dispatch that both have, in the order of the first experiment."""
    only_first: tuple[JoinKey, ...] = ()
    """Dispatches that the candidate lacks."""
    only_candidate: tuple[JoinKey, ...] = ()
    environment_differences: tuple[str, ...] = ()
    input_differences: tuple[str, ...] = ()
    """Distributions and seeds that differ, where the caller allowed that."""
    is_same: bool = False
    """Whether this is the first experiment itself, or a copy: nothing can differ."""

    @property
    def geometric_mean(self) -> float | None:
        """Geometric mean of duration ratios over the dispatches that both measured; below 1 is
        faster."""
        return geometric_mean(c.ratio for c in self.changes if c.ratio is not None)

    @property
    def regressions(self) -> list[Change]:
        return [change for change in self.changes if change.is_regression]

    def counted(self, verdict: Difference) -> int:
        """The number of changes with that verdict."""
        return sum(change.difference is verdict for change in self.changes)

    @property
    def summary(self) -> str:
        """``1 faster, 0 slower, 7 no difference shown``, and how many are undecided if any are."""
        counts = {verdict: self.counted(verdict) for verdict in Difference}
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()
                         if count or verdict is not Difference.UNDECIDED)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExperimentComparison:
    """Every candidate compared with the first experiment."""

    title: str
    candidates: tuple[CandidateComparison, ...]
    threshold: float
    confidence: float

    @property
    def has_regression(self) -> bool:
        """True if any candidate is slower by more than the threshold, or lost a dispatch that
        was ok; continuous integration fails on it."""
        return any(candidate.regressions for candidate in self.candidates)

    @property
    def has_undecided(self) -> bool:
        """True if, for any dispatch, too little was measured to decide whether it became slower."""
        return any(candidate.counted(Difference.UNDECIDED) for candidate in self.candidates)

    def __repr__(self) -> str:
        summaries = (f"{one.title}: {one.summary}" for one in self.candidates)
        return f"<ExperimentComparison with {self.title}: {'; '.join(summaries)}>"


def compare(
    result_sets: Sequence[ResultSet],
    *,
    allow_different_inputs: bool = False,
    threshold: float | None = None,
    confidence: float = _CONFIDENCE,
) -> ExperimentComparison:
    """Compare experiments, the first being the one with which the others are compared.

    Dispatches are joined on (target, provider, name). Relative differences up to `threshold` count
    as no difference (None: :func:`default_threshold`). All comparisons of one candidate are judged
    together (Bonferroni), so that all their intervals hold together with `confidence`, and the
    chance of a single false verdict among them stays below 1 - `confidence`. A regression is a
    change that is shown to be slower, or a dispatch that is no longer ok.

    Raises:
        RequestError: fewer than two experiments, none with a dispatch of the first, or inputs of
            different distributions (data changes speed) that were not allowed, or launches that
            were apart in one and back to back in another.
    """
    if len(result_sets) < 2:
        raise RequestError("nothing to compare with", hint="Give two experiments or more.")
    first = result_sets[0]
    candidates = tuple(
        _compare(first, candidate, chr(ord("B") + index), allow_different_inputs,
                 threshold, confidence)
        for index, candidate in enumerate(result_sets[1:])
    )  # fmt: skip
    return ExperimentComparison(
        title=_title(first),
        candidates=candidates,
        threshold=DEFAULT_THRESHOLD if threshold is None else threshold,
        confidence=confidence,
    )


def _compare(
    first: ResultSet,
    candidate: ResultSet,
    label: str,
    allow_different_inputs: bool,
    threshold: float | None,
    confidence: float,
) -> CandidateComparison:
    by_device = _uses_several_devices(first) or _uses_several_devices(candidate)
    before = _by_key(first, by_device)
    after = _by_key(candidate, by_device)
    shared = [key for key in before if key in after]
    if not shared:
        raise RequestError(
            f"{_title(first)} and {_title(candidate)} have no dispatches in common",
            hint="Dispatches are matched by target, provider and name: compare experiments that "
            "share some.",
        )
    pairs = [(before[key], after[key]) for key in shared]
    _refuse_different_inputs(first, candidate, pairs, allow_different_inputs)
    return CandidateComparison(
        label=label,
        title=_title(candidate),
        changes=judge_changes(
            (change_between(first, old, candidate, new, threshold) for old, new in pairs),
            confidence,
        ),
        only_first=tuple(key for key in before if key not in after),
        only_candidate=tuple(key for key in after if key not in before),
        environment_differences=tuple(_environment_differences(first, candidate, pairs)),
        input_differences=tuple(dict.fromkeys(
            f"{name}: {getattr(old, name)} vs {getattr(new, name)}"
            for old, new in pairs for name in ("distribution", "seed")
            if getattr(old, name) != getattr(new, name)
        )),
        is_same=_is_same(first, candidate),
    )  # fmt: skip


def change_between(
    first: ResultSet,
    before: Record,
    second: ResultSet,
    after: Record,
    threshold: float | None = None,
) -> Change:
    """The change of one dispatch, to be judged together with the others (:func:`judge_changes`)."""
    if before.measurement is None or after.measurement is None:
        lost = before.outcome is Outcome.OK and after.outcome is not Outcome.OK
        note = after.reason if lost else ""
        return Change(before=before, after=after, note=note, is_regression=lost)
    evidence = evidence_of(first, before, second, after, threshold=threshold)
    note = "raw samples are missing, so there is no interval" if evidence is None else ""
    return Change(before=before, after=after, evidence=evidence, note=_noted(before, after, note))


def _noted(before: Record, after: Record, note: str) -> str:
    """`note`, and whose results were not verified here because another benchmark measured them."""
    foreign = [record.provider for record in (before, after) if record.is_imported]
    unverified = f"{' and '.join(dict.fromkeys(foreign))}: not verified here" if foreign else ""
    return "; ".join(filter(None, [unverified, note]))


def judge_changes(changes: Iterable[Change], confidence: float) -> tuple[Change, ...]:
    """The changes with verdicts and intervals that hold for all of them together."""
    changes = list(changes)
    found = [change.evidence for change in changes if change.evidence is not None]
    judged = iter(judge_pairs(found, confidence))
    return tuple(
        change if change.evidence is None else
        replace(change, comparison=(one := next(judged)), evidence=None,
                note=_noted(change.before, change.after, one.note),
                is_regression=one.verdict is Difference.SLOWER)
        for change in changes
    )  # fmt: skip


def _by_key(result_set: ResultSet, by_device: bool) -> dict[JoinKey, Record]:
    """Records by the key that joins them; of a dispatch measured in two environments the later
    record counts."""
    return {
        (record.target, record.device if by_device else "", record.provider, record.dispatch):
            record
        for record in result_set.records
    }  # fmt: skip


def _uses_several_devices(result_set: ResultSet) -> bool:
    """Whether a dispatch was measured on several devices. A run that distributes its dispatches
    over devices measures each on one of them, which another run need not choose."""
    places = {(record.key, record.device) for record in result_set.records}
    return len(places) > len({key for key, _ in places})


def _refuse_different_inputs(
    first: ResultSet, candidate: ResultSet, pairs: Sequence[tuple[Record, Record]], allowed: bool
) -> None:
    for before, after in pairs:
        if before.launches and after.launches and before.launches != after.launches:
            raise RequestError(
                f"launches of {before.dispatch} are {before.launches} in {_title(first)} and "
                f"{after.launches} in {_title(candidate)}: the difference would not show a change "
                "of the code",
                hint="Measure both with one --launches: apart or back_to_back.",
            )
    for before, after in () if allowed else pairs:
        if before.distribution != after.distribution:
            raise RequestError(
                f"{_title(first)} ran on {before.distribution} inputs and {_title(candidate)} on "
                f"{after.distribution}: data affects speed, so the difference would not show a "
                "change of the code",
                hint="Measure both with one --distribution, or compare anyway with "
                "--across-distributions.",
            )


def _environment_differences(
    first: ResultSet, candidate: ResultSet, pairs: Iterable[tuple[Record, Record]]
) -> list[str]:
    """One line per differing field, for every pair of environments in which joined records ran."""
    found = []
    for old, new in dict.fromkeys((b.environment_id, a.environment_id) for b, a in pairs):
        mine, theirs = first.environments.get(old), candidate.environments.get(new)
        if old != new and mine is not None and theirs is not None:
            found += mine.differences(theirs)
        elif old != new:
            found.append("the environment of one side is not stored")
    return list(dict.fromkeys(found))


def _is_same(first: ResultSet, candidate: ResultSet) -> bool:
    """Whether both are the same experiment: one folder under two names, or a copy of it."""
    if first.path and candidate.path and realpath(first.path) == realpath(candidate.path):
        return True
    made = [(one.created, one.command, list(one.records)) for one in (first, candidate)]
    return made[0] == made[1]


def _title(result_set: ResultSet) -> str:
    return result_set.path or result_set.title


def compare_with_baseline(
    result_set: ResultSet, baseline: str, *, threshold: float | None = None
) -> ExperimentComparison:
    """Every measured dispatch compared with the baseline's fastest one of the same problem.

    Dispatches of one problem are sampled in turns, so rounds are compared in pairs, and all
    comparisons are judged together. None of them is a regression, as nothing changed.

    Args:
        baseline: a provider, or ``provider:configuration``.
        threshold: relative differences up to it count as none; None: by device.

    Raises:
        UnknownNameError: no record is of the baseline.
    """
    check_baseline(result_set.records, baseline)
    changes = []
    for group in group_by_problem(result_set.records).values():
        base = fastest(record for record in group if is_of_baseline(record, baseline))
        if base is None:
            continue
        once = _read_once(result_set, base)
        changes += [
            change_between(once, base, result_set, record, threshold)
            for record in group
            if record is not base and record.measurement is not None
        ]
    judged = tuple(
        replace(change, is_regression=False) for change in judge_changes(changes, _CONFIDENCE)
    )
    thresholds = {c.comparison.relevant for c in judged if c.comparison is not None}
    return ExperimentComparison(
        title=f"{baseline_label(result_set.records, baseline)} of the same problem",
        candidates=(CandidateComparison(label="B", title=_title(result_set), changes=judged),),
        threshold=max(thresholds, default=threshold or 0.0),
        confidence=_CONFIDENCE,
    )


def judged_speedups(result_set: ResultSet, baseline: str) -> Speedups:
    """Speeds relative to the baseline, with the verdict on each.

    Raises:
        UnknownNameError: no record is of the baseline.
    """
    verdicts = _verdicts(compare_with_baseline(result_set, baseline))
    return speedups(result_set.records, baseline, verdicts)


def _verdicts(comparison: ExperimentComparison) -> dict[RecordId, Difference]:
    (candidate,) = comparison.candidates
    return {
        record_id(change.after): change.difference
        for change in candidate.changes
        if change.difference is not None
    }


def _read_once(result_set: ResultSet, base: Record) -> ResultSet:
    """A view of `base` that reads its rounds and samples from the store only once."""
    rounds = cache(lambda: result_set.rounds(base))
    samples = cache(lambda: result_set.samples(base))
    return replace(result_set, rounds=lambda _record: rounds(), samples=lambda _record: samples())


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
    measured = [r for r in result_set.records if r.outcome is Outcome.OK and r.median_ns]
    is_configuration = len({record.provider for record in measured}) < 2
    name = attrgetter("configuration" if is_configuration else "provider")
    problems = group_by_problem(measured)
    bests = [
        {one: min(own, key=rank) for one, own in grouped(group, name).items()}
        for group in problems.values()
    ]
    contested = [found for found in bests if len(found) > 1]
    leader = _most_often_fastest(contested)
    if leader is None:
        return None
    contested = [found for found in contested if leader in found]
    records = [record for found in contested for record in found.values()]
    baseline = f"{records[0].provider}:{leader}" if is_configuration else leader
    verdicts = _verdicts(compare_with_baseline(replace(result_set, records=records), baseline))
    pairs = [(found[leader], _rival(found, leader)) for found in contested]
    ratio = geometric_mean(rank(rival) / rank(mine) for mine, rival in pairs)
    assert ratio is not None
    shown = [
        [verdicts.get(record_id(record)) for other, record in found.items() if other != leader]
        for found, (mine, rival) in zip(contested, pairs, strict=True)
        if rank(mine) <= rank(rival)
    ]
    return Leader(
        name=leader,
        is_configuration=is_configuration,
        operations=len(contested),
        alone=len(problems) - len(contested),
        fastest=len(shown),
        shown=sum(set(verdicts_of) == {Difference.SLOWER} for verdicts_of in shown),
        ratio=ratio,
        marked=sum(bool(marks.of(mine) or marks.of(rival)) for mine, rival in pairs),
        unverified=sum(m.verdict.status is Verification.NOT_VERIFIED for m, _ in pairs),
        imported=sum(rival.is_imported for _, rival in pairs),
        undecided=sum(Difference.UNDECIDED in verdicts_of for verdicts_of in shown),
    )


def _most_often_fastest(contested: Sequence[Bests]) -> str | None:
    """The contender with the most wins; of several, the one with the highest mean ratio to the best
    of the others over all operations that it measured."""
    wins: Counter[str] = Counter()
    ratios: dict[str, list[float]] = {}
    for bests in contested:
        wins[min(bests, key=lambda name: rank(bests[name]))] += 1
        for name, record in bests.items():
            ratios.setdefault(name, []).append(rank(_rival(bests, name)) / rank(record))
    return max(
        wins, key=lambda name: (wins[name], geometric_mean(ratios[name]) or 0.0, name), default=None
    )


def _rival(bests: Bests, leader: str) -> Record:
    """The best of the others."""
    return min((record for name, record in bests.items() if name != leader), key=rank)
