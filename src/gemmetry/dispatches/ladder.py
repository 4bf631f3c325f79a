"""A ladder of kernels from stored results: what each rung gains over the one before, and how far it
is from the vendor library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gemmetry.dispatches.analysis import (
    Problem,
    baseline_label,
    evidence_of,
    fastest,
    group_by_problem,
    is_of_baseline,
    judge_together,
)
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Record, ResultSet
from gemmetry.statistics.comparison import Comparison, Difference
from gemmetry.statistics.intervals import Interval


@dataclass(frozen=True, slots=True)
class LadderStep:
    """One rung: which records are its own, and what it adds to the one before."""

    number: int
    name: str
    adds: str
    provider: str
    key: str
    """What the names of its configurations begin with, before the first ``_``."""

    def is_of(self, record: Record) -> bool:
        """Whether a record is of this rung."""
        return (
            record.provider == self.provider and record.configuration.partition("_")[0] == self.key
        )


@dataclass(frozen=True, slots=True)
class LadderPhase:
    """A gain that was expected before any rung was written."""

    name: str
    first: int
    """The rung from which it is counted."""
    last: int
    """The rung that it leads to."""
    expected: Interval


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times as fast one dispatch is as another."""

    over: str
    """What it is compared with."""
    ratio: float
    interval: Interval | None
    """All intervals of a ladder hold together with the same confidence; None: too little was
    measured."""
    verdict: Difference


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung on one problem: the fastest of its configurations that were measured, or what became
    of one if none was."""

    step: LadderStep
    record: Record
    gain: Gain | None = None
    """Over the highest rung below that was measured on the same problem."""
    of_library: Gain | None = None
    """Relative to the vendor library's fastest dispatch of the problem."""
    of_best: Gain | None = None
    """Relative to the fastest of the library's algorithms, where they were timed."""

    @property
    def tflops(self) -> float | None:
        """10¹² FLOP/s at the median."""
        return None if self.record.gflops is None else self.record.gflops / 1e3

    @property
    def tflops_interval(self) -> Interval | None:
        """The 95 % interval of the median as a speed."""
        found = self.record.measurement
        if found is None or found.ci_low_ns is None or found.ci_high_ns is None:
            return None
        return self.record.flops / found.ci_high_ns / 1e3, self.record.flops / found.ci_low_ns / 1e3


class Expectation(StrEnum):
    """How a measured gain compares with an expected range."""

    MORE = "more"
    AS_EXPECTED = "as expected"
    LESS = "less"
    UNDECIDED = "undecided"
    """The interval reaches over an end of the range."""


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """A phase as it was measured on one problem."""

    phase: LadderPhase
    operation: str
    gain: Gain

    @property
    def expectation(self) -> Expectation:
        """Read from the interval that is shown with it."""
        if self.gain.interval is None:
            return Expectation.UNDECIDED
        (low, high), (least, most) = self.gain.interval, self.phase.expected
        if low > most:
            return Expectation.MORE
        if high < least:
            return Expectation.LESS
        return Expectation.AS_EXPECTED if least <= low and high <= most else Expectation.UNDECIDED


@dataclass(frozen=True, slots=True)
class Ladder:
    """All rungs on all problems."""

    rungs: tuple[Rung, ...]
    """By problem in the order of the results, and by number."""
    libraries: dict[str, Record]
    """Operation -> the vendor library's fastest dispatch."""
    bests: dict[str, Record]
    """Operation -> the fastest of the library's algorithms."""
    phases: tuple[PhaseResult, ...]


@dataclass(frozen=True, slots=True)
class _Compared:
    """Two measured dispatches that are compared."""

    before: Record
    after: Record
    over: str


def build_ladder(
    result_set: ResultSet,
    steps: Sequence[LadderStep],
    phases: Sequence[LadderPhase],
    library: str,
    best_of_library: str = "",
) -> Ladder:
    """The ladder that stored results show. Rungs are only compared on a problem that both ran, and
    all comparisons are judged together.

    Args:
        library: the provider of the vendor library.
        best_of_library: ``provider:configuration`` that is the fastest of the library's algorithms.
    """
    best = {
        problem: dict(_best_of(group, steps))
        for problem, group in group_by_problem(result_set.records).items()
    }
    baselines = [
        _baselines(result_set.records, name) for name in (library, best_of_library) if name
    ]
    libraries, bests = (*baselines, {})[:2]
    gains = _Gains(result_set, list(_pairs(best, baselines, phases)))
    rungs = []
    for problem, found in best.items():
        for step in sorted(found, key=lambda one: one.number):
            record = found[step]
            below, base, stricter = (
                _below(found, step), libraries.get(problem), bests.get(problem),
            )  # fmt: skip
            rungs.append(
                Rung(
                    step,
                    record,
                    gains.of(found[below], record) if below else None,
                    gains.of(base, record) if base else None,
                    gains.of(stricter, record) if stricter else None,
                )
            )
    measured_phases = (
        PhaseResult(phase, problem[2], gain)
        for phase in phases
        for problem, found in best.items()
        if (ends := _ends(found, phase)) and (gain := gains.of(*ends))
    )
    shown, shown_bests = (
        {problem[2]: record for problem, record in found.items() if best.get(problem)}
        for found in (libraries, bests)
    )
    return Ladder(tuple(rungs), shown, shown_bests, tuple(measured_phases))


def library_label(record: Record) -> str:
    """``torch:default``, ``cublaslt:best (best of 8)``."""
    return baseline_label([record], f"{record.provider}:{record.configuration}")


_Best = dict[LadderStep, Record]


def _best_of(
    group: Sequence[Record], steps: Sequence[LadderStep]
) -> Iterator[tuple[LadderStep, Record]]:
    for step in steps:
        own = [record for record in group if step.is_of(record)]
        if own:
            yield step, fastest(filter(_is_measured, own)) or own[0]


def _is_measured(record: Record) -> bool:
    return record.outcome is Outcome.OK and record.measurement is not None


def _baselines(records: Iterable[Record], name: str) -> dict[Problem, Record]:
    found = {}
    for problem, group in group_by_problem(records).items():
        own = fastest(r for r in group if is_of_baseline(r, name) and _is_measured(r))
        if own is not None:
            found[problem] = own
    return found


def _below(found: _Best, step: LadderStep) -> LadderStep | None:
    """The highest measured rung below `step`."""
    lower = (one for one in found if one.number < step.number and _is_measured(found[one]))
    return max(lower, key=lambda one: one.number, default=None)


def _ends(found: _Best, phase: LadderPhase) -> tuple[Record, Record] | None:
    """The measured rungs that a phase leads from and to; None where one is missing."""
    measured = {one.number: record for one, record in found.items() if _is_measured(record)}
    if phase.first in measured and phase.last in measured:
        return measured[phase.first], measured[phase.last]
    return None


def _pairs(
    best: dict[Problem, _Best],
    baselines: Sequence[dict[Problem, Record]],
    phases: Sequence[LadderPhase],
) -> Iterator[_Compared]:
    for problem, found in best.items():
        for step, record in found.items():
            if not _is_measured(record):
                continue
            below = _below(found, step)
            if below is not None:
                yield _Compared(found[below], record, below.name)
            for bases in baselines:
                if base := bases.get(problem):
                    yield _Compared(base, record, library_label(base))
        for phase in phases:
            if ends := _ends(found, phase):
                name = next(one.name for one in found if one.number == phase.first)
                yield _Compared(*ends, name)


class _Gains:
    """All comparisons, judged together."""

    def __init__(self, result_set: ResultSet, pairs: Sequence[_Compared]) -> None:
        unique = {(pair.before.key, pair.after.key): pair for pair in pairs}
        evidence = {
            key: evidence_of(result_set, pair.before, result_set, pair.after)
            for key, pair in unique.items()
        }
        known = {key: one for key, one in evidence.items() if one is not None}
        judged = dict(zip(known, judge_together(list(known.values())), strict=True))
        self._gains = {key: _gain(pair, judged.get(key)) for key, pair in unique.items()}

    def of(self, before: Record, after: Record) -> Gain | None:
        return self._gains.get((before.key, after.key))


def _gain(pair: _Compared, comparison: Comparison | None) -> Gain:
    if comparison is None:
        assert pair.before.measurement is not None and pair.after.measurement is not None
        ratio = pair.before.measurement.median_ns / pair.after.measurement.median_ns
        return Gain(pair.over, ratio, None, Difference.UNDECIDED)
    interval = comparison.interval
    inverse = None if interval is None else (1 / interval[1], 1 / interval[0])
    return Gain(pair.over, 1 / comparison.ratio, inverse, comparison.verdict)
