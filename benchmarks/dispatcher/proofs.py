"""Writes the spec that verifies, with every check of level standard, what a dispatcher's table may
choose: each candidate of an experiment that was nearly as fast as cuBLAS at some shape, at small
shapes with tails and without.

    python benchmarks/dispatcher/proofs.py EXPERIMENT > proofs.yaml
    gemmetry verify run --spec proofs.yaml --device cuda:0 --experiment proofs

The experiment itself has compared one launch of each with a reference, at its own size.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from gemmetry.dispatches.analysis import group_by_problem
from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import Record
from gemmetry.engine.experiment import Experiment
from gemmetry.tuning.dispatcher.building import best_times, is_usable
from gemmetry.tuning.dispatcher.table import CUBLAS, parts_of, problem_of

NEARLY = 1.03
"""Time over that of cuBLAS up to which a candidate is worth verifying: it may be faster at other
shapes."""


def dispatches(records: Iterable[Record]) -> list[str]:
    """Names of dispatches."""
    measured = [one for one in records if is_usable(one) and one.measurement is not None]
    found: list[str] = []
    for group in group_by_problem(measured).values():
        problem = problem_of(parse_operation(group[0].operation))
        best = best_times(group).items()
        times = {name: one.measurement.median_ns for name, one in best if one.measurement}
        for name, ns in times.items():
            if name != CUBLAS and ns <= NEARLY * times.get(CUBLAS, 0.0):
                found += [f"{one.name}_{parts_of(name)[1]}" for one in problem.for_proof]
    return list(dict.fromkeys(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", type=Path)
    opened = Experiment.open(parser.parse_args().experiment)
    records = opened.result_set().records
    opened.close()
    providers = sorted({one.provider for one in records})
    print("name: dispatcher_proofs")
    print(f"providers: [{', '.join(providers)}]")
    print("distribution: normal\nverification_level: standard\ndispatches:")
    for name in dispatches(records):
        print(f"  - {name}")


if __name__ == "__main__":
    main()
