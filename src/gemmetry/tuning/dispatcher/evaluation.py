"""Judges a table by regret: how much longer the chosen candidates take than the best ones, over
shapes that the table has never seen. A replay of stored times; nothing runs.

Tables and JSON of what a table of kernels holds, and of how it does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from gemmetry.dispatches.analysis import geometric_mean, group_by_problem
from gemmetry.domain.dispatch import TargetKind, parse_operation, parse_target
from gemmetry.domain.errors import RequestError
from gemmetry.domain.operation import OperationKind
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.rows import Row, fact
from gemmetry.domain.rows import table as table_of
from gemmetry.domain.tables import Column, ColumnType, Table, grouped
from gemmetry.domain.units import format_ns, format_percent
from gemmetry.statistics.comparison import Difference
from gemmetry.statistics.intervals import quantile
from gemmetry.tuning.dispatcher.building import best_times, candidate_name, is_timed, median_ns
from gemmetry.tuning.dispatcher.choosing import Chooser, Trial, is_library
from gemmetry.tuning.dispatcher.table import (
    CUBLAS,
    DispatchTable,
    MatmulProblem,
    TunedShape,
    parts_of,
    problem_of,
)

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


class Replayed(Row):
    """The choice for one unseen shape."""

    shape: str = fact("M, N and K")
    signature: str = fact("formats, layouts and modifiers")
    choice: str = fact("the candidate that is chosen")
    step: str = fact("the step that found it")
    reason: str = fact("why")
    chosen_ns: float = fact("its median", "ns", format=format_ns)
    best: str = fact("the fastest candidate")
    best_ns: float = fact("its median", "ns", format=format_ns)
    cublas_ns: float = fact("median of cuBLAS", "ns", format=format_ns)
    library_ns: float = fact("median of the best of the vendors' libraries", "ns", format=format_ns)
    regret: float = fact("chosen_ns / best_ns - 1", format=format_percent)
    known_family: bool = fact("the table has the same N and K")
    restricted: bool = fact("the first choice was not measured")
    trial_s: float | None = fact("how long trying took, with compiling; none without trials", "s")


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


@dataclass(frozen=True, slots=True)
class Criterion:
    """A limit of what a table must reach on unseen shapes."""

    name: str
    value: float | None
    """None where there are too few shapes."""
    sign: str
    limit: float

    @property
    def met(self) -> bool | None:
        """None where the value is unknown."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.sign == ">=" else self.value <= self.limit


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
    def criteria(self) -> tuple[Criterion, ...]:
        """What is demanded of the dispatcher."""
        own = self.policies[0]
        least = min(one.library_ns / one.chosen_ns for one in self.replayed)
        return (
            Criterion("smallest share of the best library's speed", least, ">=", 0.98),
            Criterion("geometric mean of the regret", own.geometric_mean, "<=", 0.01),
            Criterion("95 % quantile of the regret", own.p95, "<=", 0.05),
        )

    @property
    def own_choices(self) -> float:
        """Share of the shapes where the first choice was measured."""
        return sum(not one.restricted for one in self.replayed) / len(self.replayed)


class Trials(Protocol):
    """Measures candidates at a problem on the table's device."""

    def tried(self, problem: MatmulProblem) -> Trial | None:
        """What a first call measures; None where kernels do not compute it."""

    def times_ns(self, problem: MatmulProblem, names: Iterable[str]) -> Mapping[str, float]:
        """The times of cuBLAS and these candidates, by which choices are judged."""


_REPEATS = 2
"""Measurements of each shape by which trials are judged; their mean counts, and how they differ is
the noise."""


def evaluate(table: DispatchTable, results: ResultSet, trials: Trials | None = None) -> Evaluation:
    """Replay the choices of `table` on the shapes of an experiment that it does not have.

    A choice that the experiment did not measure cannot be judged; the next one that it did stands
    for it, and the shape is marked as restricted.

    Args:
        trials: tries contenders first, and measures all candidates anew by which choices are
            judged; None: the table alone chooses, and is judged by the times of the experiment.

    Raises:
        RequestError: no shape is new and timed on the table's kind of device.
    """
    known = {entry.problem for entry in table.entries}
    measured: list[_Judged] = []
    seen = unusable = 0
    for group in group_by_problem(_matmuls(results, table.target)).values():
        bests = best_times(filter(is_timed, group))
        times = {name: median_ns(record) for name, record in bests.items()}
        problem = problem_of(parse_operation(group[0].operation))
        if problem in known:
            seen += 1
        elif CUBLAS in times:
            measured.append(_Judged(problem, times))
        else:
            unusable += 1
    if not measured:
        raise RequestError(
            f"{results.title} has no shape for {table.target} with a time of {CUBLAS} that the"
            " table does not have",
            hint="Profile other shapes than those of the table, with torch among the providers.",
        )
    noise = _noise(results, table.target)
    if trials is not None:
        measured = [_measured_anew(one, trials) for one in measured]
        noise = [difference for one in measured for difference in one.differences]
    chooser = Chooser(table)
    replayed = [_replay(table, one) for one in measured]
    own = [(judged.times, one.choice) for judged, one in zip(measured, replayed, strict=True)]
    others = _baselines(table, chooser, measured)
    families = {"new families": False, "known families": True}
    return Evaluation(
        replayed=tuple(replayed),
        policies=(
            summary(str(Policy.DISPATCHER), own),
            *(summary(str(policy), picks) for policy, picks in others.items()),
        ),
        families=tuple(
            summary(name, [pick for pick, one in zip(own, replayed, strict=True)
                           if one.known_family is wanted])
            for name, wanted in families.items()
        ),
        seen=seen,
        unusable=unusable,
        noise=_regret("noise", noise),
    )  # fmt: skip


_Times = Mapping[str, float]
"""Candidate -> median in ns."""
_Pick = tuple[_Times, str]
"""The times of a shape, and the candidate that was chosen."""


class _Judged(NamedTuple):
    """A shape at which the choice is judged."""

    problem: MatmulProblem
    times: _Times
    entry: TunedShape | None = None
    """What a trial measured there."""
    trial_s: float | None = None
    differences: tuple[float, ...] = ()
    """Between repeated measurements of one candidate, relative."""


def _measured_anew(shape: _Judged, trials: Trials) -> _Judged:
    """The shape after a trial, with times that were measured in turns; as it was where kernels do
    not compute it."""
    began = time.monotonic()
    trial = trials.tried(shape.problem)
    trial_s = time.monotonic() - began
    if trial is None:
        return shape
    names = {*shape.times, *trial.turns}
    repeats = [trials.times_ns(shape.problem, names) for _ in range(_REPEATS)]
    times = {name: [one[name] for one in repeats if name in one] for name in repeats[0]}
    differences = (max(ns) / min(ns) - 1 for ns in times.values())
    means = {name: math.fsum(ns) / len(ns) for name, ns in times.items()}
    return _Judged(shape.problem, means, trial.guessed(), trial_s, tuple(differences))


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


def _replay(table: DispatchTable, judged: _Judged) -> Replayed:
    chooser, problem, times = Chooser(table), judged.problem, judged.times
    if judged.entry is not None:
        chooser.learn(judged.entry)
    choices = list(chooser.choices(problem))
    choice = next(choice for choice in choices if choice.candidate in times)
    chosen_ns, best = times[choice.candidate], min(times, key=lambda name: times[name])
    return Replayed(
        shape=_size(problem.shape),
        signature=problem.signature,
        choice=choice.candidate,
        step=str(choice.step),
        reason=choice.reason,
        chosen_ns=chosen_ns,
        best=best,
        best_ns=times[best],
        cublas_ns=times[CUBLAS],
        library_ns=min(ns for name, ns in times.items() if is_library(name)),
        regret=chosen_ns / times[best] - 1,
        known_family=any(_family(entry.problem) == _family(problem) for entry in table.entries),
        restricted=choices[0].candidate not in times,
        trial_s=judged.trial_s,
    )


def _family(problem: MatmulProblem) -> tuple[str, int, int]:
    """Shapes of one weight matrix are alike, and so are squares."""
    m, n, k = problem.shape
    return (problem.signature, 0, 0) if m == n == k else (problem.signature, n, k)


def _baselines(
    table: DispatchTable, chooser: Chooser, measured: Iterable[_Judged]
) -> dict[Policy, list[_Pick]]:
    """What simpler policies choose; cuBLAS where their candidate may not be chosen or has no
    time."""

    def pick(problem: MatmulProblem, times: Mapping[str, float], names: Iterable[str]) -> _Pick:
        fits = (name for name in names if name in times and chooser.is_eligible(problem, name))
        return times, next(fits, CUBLAS)

    found: dict[Policy, list[_Pick]] = {one: [] for one in Policy if one is not Policy.DISPATCHER}
    singles = {one: _single_best(table, one) for one in {e.signature for e in table.entries}}
    for problem, times, *_ in measured:
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
        all_times = (entry.times_ns for entry in entries)
        ratios = (times.get(name, times[CUBLAS]) / min(times.values()) for times in all_times)
        return sum(map(math.log, ratios))

    return min(names, key=cost, default=CUBLAS)


def _noise(results: ResultSet, target: str) -> list[float]:
    """Relative differences between records of one candidate: a configuration that was measured both
    by its name and as ``default``."""
    groups = [
        list(map(median_ns, alike))
        for group in group_by_problem(_matmuls(results, target)).values()
        for alike in grouped(filter(is_timed, group), candidate_name).values()
    ]
    return [max(ns) / min(ns) - 1 for ns in groups if len(ns) > 1]


def _matmuls(results: ResultSet, target: str) -> list[Record]:
    return [
        record
        for record in results.records
        if record.target == target
        and parse_operation(record.operation).kind is OperationKind.MATMUL
    ]


_CUBLAS = "cuBLAS"


def library_name(target: str) -> str:
    """What computes where no candidate is chosen: torch, whose library on NVIDIA is cuBLAS."""
    return _CUBLAS if parse_target(target).kind is TargetKind.CUDA else parts_of(CUBLAS)[0]


def _size(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))


def _why(entry: TunedShape) -> str:
    """Why a shape has its choice."""
    usual = _WHY.get(entry.verdict, entry.verdict)
    return usual if entry.choice == CUBLAS else "shown to be faster"


_WHY = {
    "": "no other is verified",
    Difference.SLOWER: "others are slower",
    Difference.NONE_SHOWN: "no difference shown",
    Difference.UNDECIDED: "undecided",
}
"""Verdict on the fastest other candidate -> why the library computes a shape all the same."""


def entry_table(table: DispatchTable) -> Table:
    """One row for each measured shape."""
    library = library_name(table.target)
    columns = (
        Column("shape", description="M, N and K"),
        Column("signature", description="formats, layouts and modifiers"),
        Column("choice", description="what is run"),
        Column("ratio", ColumnType.NUMBER, format=lambda value: f"{value:.3f}", absent="–",
               description=f"time of the fastest other candidate over that of {library}"),
        Column("why", description="the reason for the choice"),
        Column("verdict", absent="–", description="what the ratio shows"),
    )  # fmt: skip
    rows = [
        [_size(one.shape), one.signature, library if one.choice == CUBLAS else one.choice,
         one.ratio, _why(one), one.verdict or None]
        for one in table.entries
    ]  # fmt: skip
    return Table("choices", columns, rows)


def regret_table(found: Evaluation, library: str = _CUBLAS) -> Table:
    """One row for each policy, and for each kind of family; `library` computes the rest
    (:func:`library_name`)."""

    def share(name: str, heading: str, what: str) -> Column:
        return Column(name, ColumnType.NUMBER, format=format_percent, absent="–", heading=heading,
                      description=what)  # fmt: skip

    columns = (
        Column("policy", description="how kernels are chosen"),
        Column("shapes", ColumnType.INTEGER),
        share("geometric_mean", "mean", "geometric mean of the regret"),
        share("p95", "p95", "95 % quantile of the regret, from 20 shapes on"),
        share("largest", "largest", "largest regret"),
        share("near", "within 5%", "share of the shapes with a regret of at most 5 %"),
        Column("speedup", ColumnType.NUMBER, format=lambda value: f"{value:.3f}x", absent="–",
               heading=f"vs {library}",
               description=f"geometric mean of the speed relative to {library}"),
    )  # fmt: skip
    own, *others = found.policies
    kinds = (replace(one, name=f"  {one.name}") for one in found.families if one.shapes)
    named = (replace(one, name=one.name.replace(_CUBLAS, library)) for one in others)
    return Table("regret", columns, list(map(astuple, (own, *kinds, *named))))


def replay_table(found: Evaluation) -> Table:
    """One row for each unseen shape."""
    return table_of("choices", Replayed, found.replayed)


def evaluation_document(found: Evaluation) -> dict[str, Any]:
    """An evaluation as JSON."""
    return {
        "policies": list(map(asdict, found.policies)),
        "families": list(map(asdict, found.families)),
        "noise": asdict(found.noise),
        "criteria": [{**asdict(one), "met": one.met} for one in found.criteria],
        "coverage": found.own_choices,
        "shapes_in_table": found.seen,
        "shapes_without_cublas": found.unusable,
        "choices": replay_table(found).records(),
    }
