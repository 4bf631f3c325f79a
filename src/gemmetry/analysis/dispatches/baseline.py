"""Best dispatches, and how fast providers are relative to one of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gemmetry.analysis.dispatches.marks import find_run_marks
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.record import Record
from gemmetry.providers.traits import baseline_names
from gemmetry.statistics.comparison import Difference

Problem = tuple[str, str, str, str]
"""(target, device, operation, distribution): only dispatches of one problem are compared with
each other, because two devices of a kind differ and the distribution of the inputs changes the
speed."""


RecordId = tuple[Problem, str, str, str]


def record_id(record: Record) -> RecordId:
    """Unique also among merged experiments, where two environments hold the same dispatch."""
    return (problem_of(record), record.provider, record.dispatch, record.environment_id)


def problem_of(record: Record) -> Problem:
    """The problem that the record's dispatch computes."""
    return (record.target, record.device, record.operation, record.distribution)


def group_by_problem(records: Iterable[Record]) -> dict[Problem, list[Record]]:
    """Records of each problem, problems in the order in which they appear."""
    groups: dict[Problem, list[Record]] = {}
    for record in records:
        groups.setdefault(problem_of(record), []).append(record)
    return groups


def duration_ns(record: Record) -> float | None:
    """Median duration of one launch; None without a measurement."""
    return None if record.measurement is None else record.measurement.median_ns


def fastest(records: Iterable[Record]) -> Record | None:
    """The record with the shortest median; None if none was measured."""
    measured = [(ns, record) for record in records if (ns := duration_ns(record)) is not None]
    return min(measured, key=lambda pair: pair[0])[1] if measured else None


def grouped_by_speed(records: Iterable[Record]) -> list[Record]:
    """The records grouped by problem, the fastest of each first and those without a time last."""
    return [
        record for group in group_by_problem(records).values() for record in sorted(group, key=rank)
    ]


def rank(record: Record) -> float:
    """The sort key of dispatches of a problem: the median, or infinity without one."""
    ns = duration_ns(record)
    return math.inf if ns is None else ns


def fastest_per_provider(records: Iterable[Record]) -> dict[str, Record]:
    """The fastest measured record of each provider; meant for the records of one problem."""
    by_provider: dict[str, list[Record]] = {}
    for record in records:
        by_provider.setdefault(record.provider, []).append(record)
    best = {provider: fastest(group) for provider, group in by_provider.items()}
    return {provider: record for provider, record in best.items() if record is not None}


def geometric_mean(values: Iterable[float]) -> float | None:
    """exp(mean(log x)); None without values. It is the mean of ratios that does not depend on which
    side is the baseline (Fleming and Wallace, CACM 29(3), 1986)."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanSpeedup:
    """Geometric mean of the ratios of the best dispatches, over the `problems` problems that both
    sides computed."""

    ratio: float
    problems: int
    marked: int = 0
    """Problems where one of the two measurements carries marks that the rest of the run does not
    (:mod:`gemmetry.analysis.dispatches.marks`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedups:
    """Speed relative to the baseline (its best dispatch of the same problem); above 1 is faster."""

    baseline: str
    """A provider, or ``provider:configuration``."""
    ratios: Mapping[RecordId, float]
    """Record -> baseline's median / record's median."""
    means: Mapping[str, MeanSpeedup]
    """Provider -> mean over the problems that it and the baseline computed. A provider that is the
    baseline is left out; the provider of a configuration that is the baseline is included."""

    verdicts: Mapping[RecordId, Difference] = field(default_factory=dict)
    """Record -> whether it was shown to differ from the baseline; empty if not requested (see
    ``within.py``)."""

    def difference(self, record: Record) -> Difference | None:
        """The verdict on the record compared with the baseline; None if they were not compared."""
        return self.verdicts.get(record_id(record))

    def of(self, record: Record) -> float | None:
        """The record's ratio; None if it or the baseline has no measurement."""
        return self.ratios.get(record_id(record))


def default_baseline(records: Iterable[Record]) -> str | None:
    """The provider to compare with when none is named: a vendor library if one was measured,
    otherwise None. It is also None where only one provider was measured."""
    measured = {record.provider for record in records if record.measurement is not None}
    if len(measured) < 2:
        return None
    return next(iter(baseline_names(measured)), None)


def is_of_baseline(record: Record, baseline: str) -> bool:
    """True if the record is of the provider `baseline`, or of its ``provider:configuration``."""
    provider, colon, configuration = baseline.partition(":")
    return record.provider == provider and (not colon or record.configuration == configuration)


def baseline_label(records: Iterable[Record], baseline: str) -> str:
    """The baseline as texts name it: ``cublaslt:best (best of 8)`` where its provider timed so many
    algorithms to choose one, which a reader has to know of a baseline."""
    tried = {
        record.facts.algorithms_tried
        for record in records
        if ":" in baseline and is_of_baseline(record, baseline)
    } - {None}
    if not tried:
        return baseline
    most = max(filter(None, tried))
    return f"{baseline} (best of {'' if len(tried) == 1 else 'up to '}{most})"


def check_baseline(records: Iterable[Record], baseline: str) -> None:
    """Refuse a baseline to which none of `records` belongs.

    Raises:
        UnknownNameError: no record is of that provider or configuration.
    """
    records = list(records)
    if any(is_of_baseline(record, baseline) for record in records):
        return
    provider, colon, configuration = baseline.partition(":")
    providers = {record.provider for record in records}
    if not colon or provider not in providers:
        raise UnknownNameError("baseline provider", provider, providers)
    known = {record.configuration for record in records if record.provider == provider}
    raise UnknownNameError(f"baseline configuration of {provider}", configuration, known)


def speedups(records: Iterable[Record], baseline: str) -> Speedups:
    """Every measured record's speed relative to the provider `baseline`, or relative to the
    configuration of ``provider:configuration``.

    Raises:
        UnknownNameError: no record is of that provider or configuration.
    """
    records = list(records)
    check_baseline(records, baseline)
    ratios: dict[RecordId, float] = {}
    bests: dict[str, list[float]] = {}
    marked: Counter[str] = Counter()
    marks = find_run_marks(records)
    for group in group_by_problem(records).values():
        best = fastest_per_provider(group)
        base = fastest(record for record in group if is_of_baseline(record, baseline))
        reference = None if base is None else duration_ns(base)
        if base is None or not reference:
            continue
        for record in group:
            ns = duration_ns(record)
            if ns:
                ratios[record_id(record)] = reference / ns
        for provider, record in best.items():
            ns = duration_ns(record)
            if provider != baseline and ns:
                bests.setdefault(provider, []).append(reference / ns)
                marked[provider] += bool(marks.of(record) or marks.of(base))
    means = {
        provider: MeanSpeedup(ratio=mean, problems=len(values), marked=marked[provider])
        for provider, values in bests.items()
        if (mean := geometric_mean(values)) is not None
    }
    return Speedups(baseline=baseline, ratios=ratios, means=means)
