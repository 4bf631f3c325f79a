"""How good the choices of a dispatcher's table are for families of shapes that it lacks: each
family (N and K, or squares) of the table is left out in turn, and the regret of the choices at its
shapes is judged by the times of the table itself.

    python benchmarks/dispatcher/left_out.py TABLE [--any-tails] [--trials] [--experiment HELD_OUT]

With ``--any-tails`` each verified candidate counts as verified for all classes of tails, which
shows what the choices would be worth, not what they are. With ``--trials`` it also prints what
trials would choose: the fastest contender by the table's times, each wrong by one percent (standard
deviation). With ``--experiment``, the shapes of an experiment that the table does not have are
judged, too, as ``gemmetry dispatcher evaluate`` does.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import replace
from pathlib import Path

from gemmetry.engine.experiment import Experiment
from gemmetry.statistics.intervals import quantile
from gemmetry.tuning.dispatcher.choosing import Chooser
from gemmetry.tuning.dispatcher.evaluation import evaluate
from gemmetry.tuning.dispatcher.table import (
    ANY_CLASS,
    CUBLAS,
    DispatchTable,
    MatmulProblem,
    TunedShape,
    parts_of,
    read_table,
)

LIBRARIES = ("torch", "cublaslt")
NOISE = 0.01


def family(problem: MatmulProblem) -> tuple[str, int, int]:
    """What is left out together."""
    m, n, k = problem.shape
    return (problem.signature, 0, 0) if m == n == k else (problem.signature, n, k)


def chosen_ns(table: DispatchTable, entry: TunedShape) -> float:
    """Time of the choice at a shape whose family the table lacks, of the candidates that were
    measured there."""
    others = tuple(one for one in table.entries if family(one.problem) != family(entry.problem))
    choices = Chooser(replace(table, entries=others)).choices(entry.problem)
    return next(entry.times_ns[one.candidate] for one in choices if one.candidate in entry.times_ns)


def tried_ns(table: DispatchTable, entry: TunedShape, chance: random.Random) -> float:
    """Time of what a trial would choose at such a shape, of cuBLAS and of contenders that were
    measured there."""
    others = tuple(one for one in table.entries if family(one.problem) != family(entry.problem))
    libraries = [name for name in entry.times_ns if parts_of(name)[0] in LIBRARIES]
    found = Chooser(replace(table, entries=others)).contenders(entry.problem, libraries)
    names = [CUBLAS, *(name for name in found if name in entry.times_ns)]
    return entry.times_ns[min(names, key=lambda n: entry.times_ns[n] * chance.gauss(1, NOISE))]


def show(name: str, regrets: list[float]) -> None:
    mean = math.expm1(sum(map(math.log1p, regrets)) / len(regrets))
    p95 = float(quantile(regrets, 0.95))
    print(
        f"{name}: {len(regrets)} shapes, mean {mean:.2%}, p95 {p95:.1%}, largest {max(regrets):.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--any-tails", action="store_true")
    parser.add_argument("--trials", action="store_true")
    parser.add_argument("--experiment", type=Path)
    given = parser.parse_args()
    table = read_table(given.table)
    if given.any_tails:
        all_tails = (replace(one, classes=(ANY_CLASS,)) for one in table.certificates)
        table = replace(table, certificates=tuple(all_tails))
    for signature in sorted({entry.signature for entry in table.entries}):
        entries = [
            one for one in table.entries if one.signature == signature and CUBLAS in one.times_ns
        ]
        bests = [min(one.times_ns.values()) for one in entries]
        pairs = list(zip(entries, bests, strict=True))
        show(f"{signature}, table", [chosen_ns(table, one) / best - 1 for one, best in pairs])
        if given.trials:
            chance = random.Random(0)
            show(
                f"{signature}, trials",
                [tried_ns(table, one, chance) / best - 1 for one, best in pairs],
            )
        show(f"{signature}, cuBLAS", [one.times_ns[CUBLAS] / best - 1 for one, best in pairs])
    if given.experiment:
        with Experiment.open(given.experiment) as stored:
            found = evaluate(table, stored.result_set())
        show("held out", [one.regret for one in found.replayed])


if __name__ == "__main__":
    main()
