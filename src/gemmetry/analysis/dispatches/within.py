"""Compares the dispatches of one experiment with a baseline among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from gemmetry.analysis.dispatches.baseline import (
    Speedups,
    baseline_label,
    check_baseline,
    fastest,
    group_by_problem,
    is_of_baseline,
    record_id,
    speedups,
)
from gemmetry.analysis.dispatches.comparison import (
    CandidateComparison,
    ExperimentComparison,
    change_between,
    judge_changes,
)
from gemmetry.domain.record import Record, ResultSet


def compare_with_baseline(
    result_set: ResultSet,
    baseline: str,
    *,
    threshold: float | None = None,
    confidence: float = 0.95,
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
    for base, others in _problems(result_set, baseline):
        once = _read_once(result_set, base)
        changes += [change_between(once, base, result_set, record, threshold) for record in others]
    judged = tuple(
        replace(change, is_regression=False) for change in judge_changes(changes, confidence)
    )
    title = result_set.path or result_set.title
    thresholds = {c.comparison.relevant for c in judged if c.comparison is not None}
    candidate = CandidateComparison(
        label="B",
        title=title,
        changes=judged,
        only_first=(),
        only_candidate=(),
        environment_differences=(),
        input_differences=(),
    )
    return ExperimentComparison(
        title=f"{baseline_label(result_set.records, baseline)} of the same problem",
        candidates=(candidate,),
        threshold=max(thresholds, default=threshold or 0.0),
        confidence=confidence,
    )


def judged_speedups(result_set: ResultSet, baseline: str) -> Speedups:
    """Speeds relative to the baseline, with the verdict on each.

    Raises:
        UnknownNameError: no record is of the baseline.
    """
    (candidate,) = compare_with_baseline(result_set, baseline).candidates
    verdicts = {
        record_id(change.after): change.difference
        for change in candidate.changes
        if change.difference is not None
    }
    return replace(speedups(result_set.records, baseline), verdicts=verdicts)


def _problems(result_set: ResultSet, baseline: str) -> Iterator[tuple[Record, list[Record]]]:
    """Each problem's baseline and the others that were measured."""
    for group in group_by_problem(result_set.records).values():
        base = fastest(record for record in group if is_of_baseline(record, baseline))
        if base is not None:
            yield base, [r for r in group if r is not base and r.measurement is not None]


def _read_once(result_set: ResultSet, base: Record) -> ResultSet:
    """A view of `base` that reads its rounds and samples from the store only once."""
    rounds = cache(lambda: result_set.rounds(base))
    samples = cache(lambda: result_set.samples(base))
    return replace(result_set, rounds=lambda _record: rounds(), samples=lambda _record: samples())
