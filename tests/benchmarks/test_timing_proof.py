from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import timing_proof as proof

from gemmetry.dispatches.results import Results
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Record, ResultSet
from gemmetry.statistics.comparison import Difference, Pairing

Measured = Callable[[Sequence[float]], Results]


@pytest.fixture
def results(record: Callable[..., Record]) -> Measured:
    """Dispatches whose rounds drift alike, each slower by its own factor."""

    def make(slowdowns: Sequence[float]) -> Results:
        rng = np.random.default_rng(5)
        records, rounds = [], {}
        for copy, factor in enumerate(slowdowns):
            of_copy = [(factor * (1000 + 30 * turn) * rng.lognormal(0, 0.002, 8)).tolist()
                       for turn in range(20)]  # fmt: skip
            facts = {"configuration": f"copy{copy}", "copy": copy, "launches_per_sample": 2}
            records.append(record(float(np.median(of_copy)), **facts))
            rounds[records[-1].dispatch] = dict(enumerate(of_copy))
        found = ResultSet(
            title="made up", records=records, rounds=lambda one: rounds[one.dispatch],
            samples=lambda one: np.concatenate(list(rounds[one.dispatch].values())).tolist(),
        )  # fmt: skip
        return Results(found)

    return make


PAIRS = [({"copy": 0}, {"copy": 1}), ({"copy": 2}, {"copy": 3})]


def test_pairs_are_judged_as_compare_does_in_spite_of_drift(results: Measured) -> None:
    measured = results([1.0, 1.0, 1.0, 1.06])
    same, slower = proof.judge_pairs(measured, PAIRS, 0.98)
    assert same.verdict is Difference.NONE_SHOWN
    assert slower.verdict is slower.bare_verdict is Difference.SLOWER
    assert slower.low <= 1.06 <= slower.high and slower.pairing is Pairing.ROUNDS
    assert proof.not_paired([slower]) == ""
    assert slower.ratio == pytest.approx(1.06, rel=2e-3)
    backwards = proof.judge_pairs(measured, [({"copy": 3}, {"copy": 2})], 0.98)[0]
    assert backwards.verdict is Difference.FASTER


def test_a_failed_dispatch_ends_the_proof(results: Measured) -> None:
    measured = results([1.0, 1.0])
    broken = dataclasses.replace(
        measured.records[1], outcome=Outcome.CRASH, reason="signal 11", measurement=None
    )
    together = dataclasses.replace(measured.result_set, records=[measured.records[0], broken])
    with pytest.raises(SystemExit, match="signal 11"):
        proof.judge_pairs(Results(together), PAIRS[:1], 0.98)


def test_rates_count_what_is_wanted(results: Measured) -> None:
    pairs = proof.judge_pairs(results([1.0, 1.01, 1.0, 1.06]), PAIRS, 0.98)
    assert pairs[0].verdict is Difference.NONE_SHOWN  # below 2 %, the least relevant on a CPU
    assert pairs[0].bare_verdict is Difference.SLOWER
    by_rule = {one.rule: one for one in proof.rates(pairs, [Difference.SLOWER], "8x8x8", 0.5)}
    assert by_rule[proof.COMPARE].counted == 1
    assert by_rule[proof.TEST_ALONE].counted == 2
    assert proof.rates(pairs, [Difference.FASTER], "8x8x8", 0.5)[1].counted == 0


def test_group_memory_makes_the_engine_open_that_many() -> None:
    from gemmetry.domain.dispatch import Target, TargetKind, parse_operation
    from gemmetry.domain.settings import RunSettings
    from gemmetry.engine.candidates import job_of
    from gemmetry.engine.slots import Budget

    for shape in ("64x64x64", "256x256x256", "16x8192x8192", "8192x8192x8192"):
        for dtype in ("f32", "bf16"):
            settings = RunSettings(memory_budget_bytes=proof.group_memory(shape, dtype, 2))
            budget = Budget(Target(TargetKind.CPU), job_of(settings))
            operation = parse_operation(f"matmul_{shape}_{dtype}t_{dtype}t_{dtype}t")
            needed = budget.needed_bytes(SimpleNamespace(operation=operation))  # type: ignore[arg-type]
            assert budget.limit_bytes // needed == 2
