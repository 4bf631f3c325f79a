"""Compares experiments: one row per dispatch, with an interval and a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from os.path import realpath

from gemmetry.analysis.dispatches.baseline import geometric_mean
from gemmetry.analysis.dispatches.evidence import (
    DEFAULT_THRESHOLD,
    ComparisonEvidence,
    evidence_of,
    judge_together,
)
from gemmetry.domain.errors import RequestError
from gemmetry.domain.outcome import Outcome
from gemmetry.domain.record import Record, ResultSet
from gemmetry.statistics.comparison import Comparison, Difference

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
    """What the comparison rests on."""
    note: str = ""
    """Why there is no comparison, or what weakens it."""
    is_regression: bool = False

    @property
    def ratio(self) -> float | None:
        """Candidate's median duration over the first one's; below 1 is faster."""
        if self.comparison is not None:
            return self.comparison.ratio
        if self.before.measurement is None or self.after.measurement is None:
            return None
        return self.after.measurement.median_ns / self.before.measurement.median_ns

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
    only_first: tuple[JoinKey, ...]
    """Dispatches that the candidate lacks."""
    only_candidate: tuple[JoinKey, ...]
    environment_differences: tuple[str, ...]
    input_differences: tuple[str, ...]
    """Distributions and seeds that differ, where the caller allowed that."""
    is_same: bool = False
    """True if it is the first experiment itself, or a copy of it: nothing can differ."""

    @property
    def geometric_mean(self) -> float | None:
        """Geometric mean of the ratios of duration of all dispatches that both measured; below 1 is
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
        if not counts[Difference.UNDECIDED]:
            del counts[Difference.UNDECIDED]
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


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
    confidence: float = 0.95,
) -> ExperimentComparison:
    """Compare experiments, the first being the one with which the others are compared.

    Dispatches are joined on (target, provider, name). Relative differences up to `threshold` count
    as no difference (None: :func:`default_threshold`). All comparisons of one candidate are judged
    together (Bonferroni), so that all their intervals hold together with `confidence`, and the
    chance of a single false verdict among them stays below 1 - `confidence`. A change is a
    regression if it is shown to be slower, or if a dispatch that was ok no longer is.

    Raises:
        RequestError: fewer than two experiments, none with a dispatch of the first, or inputs of
            different distributions (data changes speed) that were not allowed.
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
    input_differences = _input_differences(pairs)
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
        input_differences=tuple(input_differences),
        is_same=_is_same(first, candidate),
    )


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
    judged = iter(judge_together(found, confidence))
    return tuple(
        change if change.evidence is None else _judged(change, next(judged)) for change in changes
    )


def _judged(change: Change, comparison: Comparison) -> Change:
    return replace(
        change,
        comparison=comparison,
        evidence=None,
        note=_noted(change.before, change.after, comparison.note),
        is_regression=comparison.verdict is Difference.SLOWER,
    )


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
    devices: dict[tuple[str, str, str], set[str]] = {}
    for record in result_set.records:
        devices.setdefault(record.key, set()).add(record.device)
    return any(len(names) > 1 for names in devices.values())


def _refuse_different_inputs(
    first: ResultSet,
    candidate: ResultSet,
    pairs: Iterable[tuple[Record, Record]],
    allowed: bool,
) -> None:
    different = next(
        ((before, after) for before, after in pairs if before.distribution != after.distribution),
        None,
    )
    if different is None or allowed:
        return
    before, after = different
    raise RequestError(
        f"{_title(first)} ran on {before.distribution} inputs and {_title(candidate)} on "
        f"{after.distribution}: data affects speed, so the difference would not show a change of "
        "the code",
        hint="Measure both with one --distribution, or compare anyway with --across-distributions.",
    )


def _input_differences(pairs: Iterable[tuple[Record, Record]]) -> list[str]:
    found: dict[str, None] = {}
    for before, after in pairs:
        if before.distribution != after.distribution:
            found[f"distribution: {before.distribution} vs {after.distribution}"] = None
        if before.seed != after.seed:
            found[f"seed: {before.seed} vs {after.seed}"] = None
    return list(found)


def _environment_differences(
    first: ResultSet, candidate: ResultSet, pairs: Iterable[tuple[Record, Record]]
) -> list[str]:
    """One line per differing field, for every pair of environments in which joined records ran."""
    found: dict[str, None] = {}
    for old, new in {(b.environment_id, a.environment_id): None for b, a in pairs}:
        mine, theirs = first.environments.get(old), candidate.environments.get(new)
        if old == new:
            continue
        if mine is None or theirs is None:
            found["the environment of one side is not stored"] = None
        else:
            found.update(dict.fromkeys(mine.differences(theirs)))
    return list(found)


def _is_same(first: ResultSet, candidate: ResultSet) -> bool:
    """Whether both are the same experiment: one folder under two names, or a copy of it."""
    if first.path and candidate.path and realpath(first.path) == realpath(candidate.path):
        return True
    made = [(one.created, one.command, list(one.records)) for one in (first, candidate)]
    return made[0] == made[1]


def _title(result_set: ResultSet) -> str:
    return result_set.path or result_set.title
