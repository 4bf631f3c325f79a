"""Predicts how a candidate's time compares with that of cuBLAS on a shape that was not measured:
as at the measured shapes, weighted by how near they are. A candidate that was measured at few of
them borrows from the others of its provider.

Correcting the ratios by the waves, L2 cache, memory and launch of
:mod:`gemmetry.providers.launch_model` was tried and chose worse: docs/dispatcher.md.

Chooses the candidate for a problem: the exact entry of the table, the nearest tuned shape, the
ranking by all tuned shapes, cuBLAS. Pure: nothing is built or run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gemmetry.domain.tables import grouped
from gemmetry.providers.base import traits_of
from gemmetry.statistics.comparison import Difference, compare_rounds
from gemmetry.tuning.dispatcher.table import (
    CUBLAS,
    DispatchTable,
    MatmulProblem,
    TunedShape,
    parts_of,
    tail_class,
)

_OCTAVES = (1.0, 2.0, 2.0)
"""Distances along M, N and K at which a measured shape counts for 0.6 of one at the shape itself.
How a kernel does depends on the number of rows first of all. These and the prior below
are those with the least regret where each family of shapes of an H200's table was left out in turn
(docs/dispatcher.md)."""
_FEWEST = 3
"""Measured shapes that a prediction needs, of the candidate itself: it was measured where it was
worth it, so that few shapes speak for it alone."""
_LEAST_WEIGHT = 0.1
"""Shapes with a lower weight are no evidence."""
_PRIOR = 0.25
"""Weight of what all candidates of a provider have in common, in measured shapes."""


def _mean(values: Sequence[tuple[float, float]]) -> float:
    """Of pairs of a weight and a value."""
    return sum(weight * value for weight, value in values) / sum(weight for weight, _ in values)


_NEAR_WEIGHTS = 0.5
"""Octaves of N and of K up to which a tuned shape stands for another one with as many rows."""
_NEAR_ROWS = 0.25
"""The same of M above 128 rows, where buckets are narrow."""
_MANY_ROWS = 128
_WORTH_A_TRIAL = math.log(1.1)
"""Logarithm of the predicted ratio to cuBLAS below which a candidate is tried: predictions err
by several percent (docs/dispatcher.md)."""
_MOST_RANKED = 3
"""Candidates of a trial from the ranking. Five change the regret of an H200's table by
less than 0.1 % (benchmarks/dispatcher/left_out.py --any-tails --trials)."""
_TIE = 0.01
"""Share of cuBLAS' time below which a difference in a trial is none: two times of one kernel
differ by 0.7 % on average (docs/dispatcher.md)."""
_CLEARLY = math.log(0.95)
"""Logarithm of the predicted ratio to cuBLAS that a candidate needs where another card, or other
versions, were measured."""


class ChoiceStep(StrEnum):
    """The step of the choice that found the candidate."""

    EXACT = "exact entry"
    NEAREST = "nearest tuned shape"
    RANKING = "ranking"
    CUBLAS = "cuBLAS"


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate and why it was chosen."""

    candidate: str
    step: ChoiceStep
    reason: str


Permits = Callable[[MatmulProblem, str], bool]
"""Whether a candidate other than cuBLAS may compute a problem here."""


class Chooser:
    """Chooses with one table.

    Args:
        permits: further conditions, next to the certificates of the table.
        trusts_times: False where times may have changed: only the ranking is used then, and only
            for what is predicted to be 5 % faster.
    """

    def __init__(
        self, table: DispatchTable, permits: Permits | None = None, *, trusts_times: bool = True
    ) -> None:
        self.table = table
        self._permits, self._trusts_times = permits, trusts_times
        self._certified = table.certified
        trusted = table.entries if trusts_times else ()
        self._exact = {entry.problem: entry for entry in trusted}
        self._checked: set[tuple[MatmulProblem, str]] = set()
        self._tuned = grouped(trusted, lambda entry: entry.signature)
        self._entries = grouped(table.entries, lambda entry: entry.signature)

    def learn(self, entry: TunedShape) -> None:
        """Add a shape that was measured here, where each candidate with a time was right."""
        self._exact[entry.problem] = entry
        self._checked |= {(entry.problem, name) for name in entry.times_ns}
        for entries in (self._tuned, self._entries):
            entries.setdefault(entry.signature, []).append(entry)

    def choose(self, problem: MatmulProblem) -> Choice:
        """The first choice."""
        return next(self.choices(problem))

    def choices(self, problem: MatmulProblem) -> Iterator[Choice]:
        """Choices in the order in which they are to be tried, should one turn out not to work; the
        last one is cuBLAS. None occurs twice."""
        seen = set()
        for choice in self._all(problem):
            if choice.candidate not in seen and self.is_eligible(problem, choice.candidate):
                seen.add(choice.candidate)
                yield choice
                if choice.candidate == CUBLAS:
                    return

    def measured(self, problem: MatmulProblem) -> TunedShape | None:
        """What was measured at a problem; None: nothing whose times are trusted."""
        return self._exact.get(problem)

    def contenders(self, problem: MatmulProblem, proposed: Iterable[str]) -> list[str]:
        """The candidates whose times at a problem are worth a trial.

        Args:
            proposed: candidates that providers propose for the problem; a library's own take part,
                and those that may be chosen, next to those with the shortest predicted times.
        """
        ranked = sorted(self.predictions(problem).items(), key=lambda one: one[1])
        near = [name for name, value in ranked if value < _WORTH_A_TRIAL]
        picks = [name for name in near if self.is_eligible(problem, name)][:_MOST_RANKED]
        picks += [one for one in proposed if is_library(one) or self.is_eligible(problem, one)]
        return [name for name in dict.fromkeys(picks) if name != CUBLAS]

    def is_eligible(self, problem: MatmulProblem, candidate: str) -> bool:
        """Whether a candidate may be chosen for a problem: cuBLAS always, the others where they
        were right at that very problem, or a verification of that class of shapes has passed."""
        if candidate == CUBLAS or (problem, candidate) in self._checked:
            return True
        certificate = self._certified.get((problem.signature, candidate))
        if certificate is None:
            return False
        tails = tail_class(problem, self.table.configuration(candidate))
        return certificate.covers(tails) and (
            self._permits is None or self._permits(problem, candidate)
        )

    def predictions(self, problem: MatmulProblem) -> dict[str, float]:
        """Candidate -> logarithm of its time over that of cuBLAS; without candidates that were
        measured too seldom nearby."""
        own: dict[str, list[tuple[float, float]]] = {}
        alike: dict[str, list[tuple[float, float]]] = {}
        for entry in self._entries.get(problem.signature, ()):
            pairs = zip(problem.shape, entry.shape, _OCTAVES, strict=True)
            weight = math.exp(-sum((math.log2(a / b) / scale) ** 2 for a, b, scale in pairs) / 2)
            library = entry.times_ns.get(CUBLAS)
            if library is None or weight < _LEAST_WEIGHT:
                continue
            for name, ns in entry.times_ns.items():
                if name != CUBLAS:
                    value = weight, math.log(ns / library)
                    own.setdefault(name, []).append(value)
                    alike.setdefault(parts_of(name)[0], []).append(value)
        return {
            name: _mean([*values, (_PRIOR, _mean(alike[parts_of(name)[0]]))])
            for name, values in own.items()
            if len(values) >= _FEWEST
        }

    def ranked(self, problem: MatmulProblem) -> Iterator[Choice]:
        """What is predicted to be faster than cuBLAS, the best first."""
        least = 0.0 if self._trusts_times else _CLEARLY
        found = [
            (value, candidate)
            for candidate, value in self.predictions(problem).items()
            if value < least and self.is_eligible(problem, candidate)
        ]
        for value, candidate in sorted(found):
            why = f"predicted to take {math.exp(value):.3g} of cuBLAS' time"
            yield Choice(candidate, ChoiceStep.RANKING, why)

    def nearest(self, problem: MatmulProblem) -> TunedShape | None:
        """The nearest tuned shape that stands for `problem`; None if there is none."""
        entries = self._tuned.get(problem.signature, ())
        near = (entry for entry in entries if stands_for(entry.problem, problem))
        return min(near, key=lambda entry: problem.distance(entry.problem), default=None)

    def _all(self, problem: MatmulProblem) -> Iterator[Choice]:
        if found := self.measured(problem) or self.nearest(problem):
            yield from _like(found, is_same=found.problem == problem)
        yield from self.ranked(problem)
        yield Choice(CUBLAS, ChoiceStep.CUBLAS, "nothing that is verified is known to be faster")


@dataclass(frozen=True, slots=True)
class Trial:
    """Times at a problem of cuBLAS and of candidates that took turns with it."""

    problem: MatmulProblem
    turns: Mapping[str, Sequence[float]]
    """Candidate -> its time in each turn, in ns; empty: there was no candidate."""

    @property
    def times_ns(self) -> dict[str, float]:
        """The mean of the middle half of each candidate's turns."""
        return {name: _middle_mean(turns) for name, turns in self.turns.items()}

    def guessed(self) -> TunedShape:
        """The entry whose choice is the fastest candidate, unless it ties with cuBLAS: the best
        guess, whether or not the turns show a difference."""
        times = self.times_ns
        fastest = min(times, key=times.__getitem__, default=CUBLAS)
        is_tie = fastest == CUBLAS or times[fastest] >= (1 - _TIE) * times[CUBLAS]
        return self._entry(CUBLAS if is_tie else fastest, "", None)

    def shown(self, permits: Permits) -> TunedShape:
        """The entry whose choice is the fastest candidate that may be chosen, if the turns show
        that it is faster than cuBLAS; each candidate counts as one of the comparisons."""
        times = self.times_ns
        others = [one for one in times if one != CUBLAS and permits(self.problem, one)]
        if not others:
            return self._entry(CUBLAS, "", None)
        fastest = min(others, key=times.__getitem__)
        library, other = (dict(enumerate([ns] for ns in self.turns[one]))
                          for one in (CUBLAS, fastest))  # fmt: skip
        found = compare_rounds(library, other, relevant=_TIE, family=len(others))
        is_faster = found.verdict is Difference.FASTER
        return self._entry(fastest if is_faster else CUBLAS, str(found.verdict), found.ratio)

    def _entry(self, choice: str, verdict: str, ratio: float | None) -> TunedShape:
        return TunedShape(
            signature=self.problem.signature,
            shape=self.problem.shape,
            choice=choice,
            verdict=verdict,
            ratio=ratio,
            times_ns=self.times_ns,
        )


def _middle_mean(values: Sequence[float]) -> float:
    """The mean of the middle half."""
    quarter = len(values) // 4
    return statistics.fmean(sorted(values)[quarter : len(values) - quarter])


def is_library(candidate: str) -> bool:
    """Whether a candidate belongs to a vendor's library, which supports what it proposes."""
    return traits_of(parts_of(candidate)[0]).baseline_rank is not None


def stands_for(tuned: MatmulProblem, problem: MatmulProblem) -> bool:
    """Whether a tuned shape is in the bucket of another one: as many rows, rounded up to the
    kernels' tiles, and N and K that are equal or nearly so."""
    if tuned.signature != problem.signature:
        return False
    octaves = [abs(math.log2(a / b)) for a, b in zip(tuned.shape, problem.shape, strict=True)]
    near_rows = tuned.row_bucket == problem.row_bucket or (
        min(tuned.m, problem.m) > _MANY_ROWS and octaves[0] <= _NEAR_ROWS
    )
    return near_rows and max(octaves[1:]) <= _NEAR_WEIGHTS


def _like(entry: TunedShape, *, is_same: bool) -> Iterator[Choice]:
    """The candidate that was shown to be faster than cuBLAS at a tuned shape; for another shape
    also the others that took less time there, the fastest first."""
    if is_same:
        yield Choice(entry.choice, ChoiceStep.EXACT, "measured at this shape")
        return
    size, times = "x".join(map(str, entry.shape)), entry.times_ns
    if entry.choice == CUBLAS:
        yield Choice(CUBLAS, ChoiceStep.NEAREST, f"at {size} nothing was shown to be faster")
        return
    for candidate in sorted(times, key=lambda name: times[name]):
        if candidate == CUBLAS:
            return
        yield Choice(candidate, ChoiceStep.NEAREST, f"faster than cuBLAS at {size}")
