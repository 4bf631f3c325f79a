from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import timing_proof as proof

from gemmetry.dispatches.results import Results
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import Measurement, Record, ResultSet
from gemmetry.statistics.comparison import Difference, Pairing

ROUNDS = 20


def record(copy: int, rounds: Mapping[int, Sequence[float]]) -> Record:
    samples = np.concatenate(list(rounds.values()))
    return Record(
        dispatch=f"matmul_8x8x8_f32t_f32t_f32t_copy{copy}",
        provider="user",
        target="cpu",
        device="cpu",
        operation="matmul_8x8x8_f32t_f32t_f32t",
        configuration=f"copy{copy}",
        configuration_parameters={"copy": copy},
        outcome=Outcome.OK,
        distribution="normal",
        seed=1,
        flops=1024,
        bytes=768,
        measurement=Measurement(
            median_ns=float(np.median(samples)),
            ci_low_ns=float(samples.min()),
            ci_high_ns=float(samples.max()),
            min_ns=float(samples.min()),
            p95_ns=float(samples.max()),
            sample_count=samples.size,
            launches_per_sample=2,
        ),
    )


def results(slowdowns: Sequence[float]) -> Results:
    """Dispatches whose rounds drift alike, each slower by its own factor."""
    rng = np.random.default_rng(5)
    rounds = {}
    for copy, factor in enumerate(slowdowns):
        rounds[copy] = {
            turn: list(factor * (1000 + 30 * turn) * rng.lognormal(0, 0.002, 8))
            for turn in range(ROUNDS)
        }
    records = [record(copy, of_copy) for copy, of_copy in rounds.items()]
    by_name = {one.dispatch: rounds[copy] for copy, one in enumerate(records)}
    return Results(
        ResultSet(
            title="made up",
            records=records,
            samples=lambda one: np.concatenate(list(by_name[one.dispatch].values())).tolist(),
            rounds=lambda one: by_name[one.dispatch],
        )
    )


def test_pairs_are_judged_as_compare_does_in_spite_of_drift() -> None:
    measured = results([1.0, 1.0, 1.0, 1.06])
    same, slower = proof.judge_pairs(
        measured, [({"copy": 0}, {"copy": 1}), ({"copy": 2}, {"copy": 3})], 0.98
    )
    assert same.verdict is Difference.NONE_SHOWN
    assert slower.verdict is slower.bare_verdict is Difference.SLOWER
    assert slower.low <= 1.06 <= slower.high
    assert slower.pairing is Pairing.ROUNDS
    assert proof.not_paired([slower]) == ""
    assert slower.ratio == pytest.approx(1.06, rel=2e-3)
    backwards = proof.judge_pairs(measured, [({"copy": 3}, {"copy": 2})], 0.98)[0]
    assert backwards.verdict is Difference.FASTER


def test_a_difference_below_the_least_relevant_one_is_shown_by_the_test_alone() -> None:
    (pair,) = proof.judge_pairs(results([1.0, 1.01]), [({"copy": 0}, {"copy": 1})], 0.98)
    assert pair.verdict is Difference.NONE_SHOWN  # below 2 %, the least relevant on a CPU
    assert pair.bare_verdict is Difference.SLOWER


def test_a_failed_dispatch_ends_the_proof() -> None:
    import dataclasses

    measured = results([1.0, 1.0])
    broken = dataclasses.replace(
        measured.records[1], outcome=Outcome.CRASH, reason="signal 11", measurement=None
    )
    together = dataclasses.replace(measured.result_set, records=[measured.records[0], broken])
    with pytest.raises(SystemExit, match="signal 11"):
        proof.judge_pairs(Results(together), [({"copy": 0}, {"copy": 1})], 0.98)


def test_rates_count_what_is_wanted() -> None:
    pairs = proof.judge_pairs(
        results([1.0, 1.01, 1.0, 1.06]),
        [({"copy": 0}, {"copy": 1}), ({"copy": 2}, {"copy": 3})],
        0.98,
    )
    by_rule = {one.rule: one for one in proof.rates(pairs, [Difference.SLOWER], "8x8x8", 0.5)}
    assert by_rule[proof.COMPARE].counted == 1
    assert by_rule[proof.TEST_ALONE].counted == 2
    assert proof.rates(pairs, [Difference.FASTER], "8x8x8", 0.5)[1].counted == 0


def test_group_memory_makes_the_engine_open_that_many() -> None:
    from gemmetry.domain.dispatch import Target, TargetKind, parse_operation
    from gemmetry.domain.settings import RunSettings
    from gemmetry.engine.candidates import job_of
    from gemmetry.engine.slots import Budget

    class Candidate:
        def __init__(self, operation: str) -> None:
            self.operation = parse_operation(operation)

    for shape in ("64x64x64", "256x256x256", "16x8192x8192", "8192x8192x8192"):
        for dtype in ("f32", "bf16"):
            budget = Budget(
                Target(TargetKind.CPU),
                job_of(RunSettings(memory_budget_bytes=proof.group_memory(shape, dtype, 2))),
            )
            name = f"matmul_{shape}_{dtype}t_{dtype}t_{dtype}t"
            needed = budget.needed_bytes(Candidate(name))  # type: ignore[arg-type]
            assert budget.limit_bytes // needed == 2
