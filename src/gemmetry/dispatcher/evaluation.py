"""Judges a table by regret: how much longer the chosen candidates take than the best ones, over
shapes that the table has never seen. A replay of stored times; nothing runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gemmetry.analysis.dispatches.baseline import geometric_mean, group_by_problem
from gemmetry.dispatcher.building import best_times, candidate_name, is_usable
from gemmetry.dispatcher.choosing import Choice, Chooser
from gemmetry.dispatcher.problems import CUBLAS, MatmulProblem, problem_of
from gemmetry.dispatcher.table import DispatchTable
from gemmetry.domain.errors import RequestError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import OperationKind
from gemmetry.domain.record import Record, ResultSet
from gemmetry.statistics.quantiles import quantile

NEAR = 0.05
"""Regret up to which a choice counts as good."""
_P95_SHAPES = 20
"""Shapes from which a 95 % quantile is not simply the largest value."""


class Policy(StrEnum):
    """Ways to choose that are compared."""

    DISPATCHER = "dispatcher"
    CUBLAS = "always cuBLAS"
    SINGLE = "single best configuration"
    NEAREST = "nearest neighbour"
    RANKING = "ranking only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The choice for one unseen shape."""

    problem: MatmulProblem
    choice: Choice
    times_ns: Mapping[str, float]
    """Candidate -> median, of those that the experiment measured."""
    is_known_family: bool
    """Whether the table has the same N and K with another M (or squares, if this is one)."""
    was_restricted: bool
    """Whether the first choice was not measured, and the next one that was stands for it."""

    @property
    def best(self) -> str:
        """The fastest candidate."""
        return min(self.times_ns, key=lambda name: self.times_ns[name])

    @property
    def chosen_ns(self) -> float:
        return self.times_ns[self.choice.candidate]

    @property
    def regret(self) -> float:
        """Time of the choice over that of the best, minus 1."""
        return self.chosen_ns / self.times_ns[self.best] - 1

    @property
    def speedup(self) -> float:
        """Time of cuBLAS over that of the choice."""
        return self.times_ns[CUBLAS] / self.chosen_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """The regrets of one policy, or of one kind of shapes."""

    name: str
    shapes: int
    geometric_mean: float | None
    p95: float | None
    """None below 20 shapes, too few to know it."""
    largest: float | None
    near: float | None
    """Share of the shapes with a regret of at most 5 %."""
    speedup: float | None = None
    """Geometric mean of the time of cuBLAS over that of the choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How a table does on an experiment."""

    replayed: tuple[Replayed, ...]
    policies: tuple[Regret, ...]
    """The dispatcher first, then what it is compared with."""
    families: tuple[Regret, ...]
    """The dispatcher on shapes of new families, and of families that the table has."""
    seen: int
    """Shapes of the experiment that the table has; they are left out."""
    unusable: int
    """Shapes where cuBLAS has no correct result with a time."""
    noise: Regret
    """Differences between two measurements of one kernel at one shape: a smaller regret is none."""

    @property
    def own_choices(self) -> float:
        """Share of the shapes where the first choice was measured."""
        free = sum(not one.was_restricted for one in self.replayed)
        return free / len(self.replayed)


def evaluate(table: DispatchTable, results: ResultSet) -> Evaluation:
    """Replay the choices of `table` on the shapes of an experiment that it does not have.

    A choice that the experiment did not measure cannot be judged; the next one that it did stands
    for it, and the shape is marked as restricted.

    Raises:
        RequestError: no shape is new and timed on the table's kind of device.
    """
    known = {entry.problem for entry in table.entries}
    measured: list[tuple[MatmulProblem, _Times]] = []
    seen = unusable = 0
    for group in group_by_problem(_matmuls(results, table.target)).values():
        usable = [r for r in group if is_usable(r) and r.measurement is not None]
        times = {name: _ns(record) for name, record in best_times(usable).items()}
        problem = problem_of(parse_operation(group[0].operation))
        if problem in known:
            seen += 1
        elif CUBLAS in times:
            measured.append((problem, times))
        else:
            unusable += 1
    if not measured:
        raise RequestError(
            f"{results.title} has no shape for {table.target} with a time of {CUBLAS} that the"
            " table does not have",
            hint="Profile other shapes than those of the table, with torch among the providers.",
        )
    chooser = Chooser(table)
    replayed = [_replay(table, chooser, problem, times) for problem, times in measured]
    own = [(one.times_ns, one.choice.candidate) for one in replayed]
    others = _baselines(table, chooser, measured)
    known_families = [one.is_known_family for one in replayed]
    return Evaluation(
        replayed=tuple(replayed),
        policies=(
            summary(str(Policy.DISPATCHER), own),
            *(summary(str(policy), picks) for policy, picks in others.items()),
        ),
        families=tuple(
            summary(name, [p for p, is_known in zip(own, known_families, strict=True)
                           if is_known is wanted])
            for name, wanted in (("new families", False), ("known families", True))
        ),
        seen=seen,
        unusable=unusable,
        noise=_noise(results, table.target),
    )  # fmt: skip


_Times = Mapping[str, float]
"""Candidate -> median in ns."""
_Pick = tuple[_Times, str]
"""The times of a shape, and the candidate that was chosen."""


def summary(name: str, picks: Sequence[_Pick]) -> Regret:
    """The regrets of some choices."""
    regrets = [times[chosen] / min(times.values()) - 1 for times, chosen in picks]
    speedups = [times[CUBLAS] / times[chosen] for times, chosen in picks]
    return _regret(name, regrets, geometric_mean(speedups))


def _regret(name: str, regrets: Sequence[float], speedup: float | None = None) -> Regret:
    mean = geometric_mean(1 + regret for regret in regrets)
    return Regret(
        name=name,
        shapes=len(regrets),
        geometric_mean=None if mean is None else mean - 1,
        p95=quantile(regrets, 0.95) if len(regrets) >= _P95_SHAPES else None,
        largest=max(regrets, default=None),
        near=sum(one <= NEAR for one in regrets) / len(regrets) if regrets else None,
        speedup=speedup,
    )


def _replay(
    table: DispatchTable, chooser: Chooser, problem: MatmulProblem, times: Mapping[str, float]
) -> Replayed:
    choices = list(chooser.choices(problem))
    return Replayed(
        problem=problem,
        choice=next(choice for choice in choices if choice.candidate in times),
        times_ns=times,
        is_known_family=any(_family(entry.problem) == _family(problem) for entry in table.entries),
        was_restricted=choices[0].candidate not in times,
    )


def _family(problem: MatmulProblem) -> tuple[str, int, int]:
    """Shapes of one weight matrix are alike, and so are squares."""
    m, n, k = problem.shape
    return (problem.signature, 0, 0) if m == n == k else (problem.signature, n, k)


def _baselines(
    table: DispatchTable, chooser: Chooser, measured: Iterable[tuple[MatmulProblem, _Times]]
) -> dict[Policy, list[_Pick]]:
    """What simpler policies choose; cuBLAS where their candidate may not be chosen or has no
    time."""

    def pick(problem: MatmulProblem, times: Mapping[str, float], names: Iterable[str]) -> _Pick:
        fits = (name for name in names if name in times and chooser.is_eligible(problem, name))
        return times, next(fits, CUBLAS)

    found: dict[Policy, list[_Pick]] = {policy: [] for policy in Policy}
    del found[Policy.DISPATCHER]
    singles = {signature: _single_best(table, signature)
               for signature in {entry.signature for entry in table.entries}}  # fmt: skip
    for problem, times in measured:
        tuned = [entry for entry in table.entries if entry.signature == problem.signature]
        by_distance = sorted(tuned, key=lambda entry: problem.distance(entry.problem))
        names = {
            Policy.CUBLAS: [CUBLAS],
            Policy.SINGLE: [singles.get(problem.signature, CUBLAS)],
            Policy.NEAREST: [entry.choice for entry in by_distance[:1]],
            Policy.RANKING: [choice.candidate for choice in chooser.ranked(problem)],
        }
        for policy, wanted in names.items():
            found[policy].append(pick(problem, times, wanted))
    return found


def _single_best(table: DispatchTable, signature: str) -> str:
    """The candidate with the lowest mean regret over the tuned shapes of a signature, where cuBLAS
    stands for it where it was not measured."""
    entries = [e for e in table.entries if e.signature == signature and CUBLAS in e.times_ns]
    names = sorted({name for entry in entries for name in entry.times_ns})

    def cost(name: str) -> float:
        return sum(
            math.log(
                entry.times_ns.get(name, entry.times_ns[CUBLAS]) / min(entry.times_ns.values())
            )
            for entry in entries
        )

    return min(names, key=cost, default=CUBLAS)


def _noise(results: ResultSet, target: str) -> Regret:
    """Regrets between records of one candidate: a configuration that was measured both by its name
    and as ``default``."""
    groups: dict[tuple[object, str], list[float]] = {}
    for problem, group in group_by_problem(_matmuls(results, target)).items():
        for record in group:
            if is_usable(record) and record.measurement is not None:
                key = (problem, candidate_name(record))
                groups.setdefault(key, []).append(_ns(record))
    return _regret("noise", [max(g) / min(g) - 1 for g in groups.values() if len(g) > 1])


def _matmuls(results: ResultSet, target: str) -> list[Record]:
    return [
        record
        for record in results.records
        if record.target == target
        and parse_operation(record.operation).kind is OperationKind.MATMUL
    ]


def _ns(record: Record) -> float:
    assert record.measurement is not None
    return record.measurement.median_ns
