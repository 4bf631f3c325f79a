from __future__ import annotations

from dataclasses import replace

import pytest
from tests.tuned import record, results

from gemmetry.domain.dispatch import parse_operation, parse_target
from gemmetry.domain.errors import Outcome, Verification
from gemmetry.domain.record import Verdict
from gemmetry.tuning.results import (
    TuningResult,
    gain_lines,
    judge,
    tuning_document,
    winner_table,
    with_search,
)
from gemmetry.tuning.search import SearchHistory, SearchTrial, make_space

SHAPES = ("matmul_64x64x64_f32t_f32t_f32t", "matmul_128x64x64_f32t_f32t_f32t")
OPERATIONS = [parse_operation(name) for name in SHAPES]


def found(*records, rounds=12, baselines=("torch:default",)):
    return judge(
        results(*records, count=rounds), provider="own", operations=OPERATIONS,
        baselines=baselines,
    )  # fmt: skip


def test_the_fastest_correct_configuration_wins_and_is_compared_with_the_baseline():
    first, second = SHAPES
    wrong = {"outcome": Outcome.WRONG, "reason": "wrong", "measurement": None}
    judged = found(
        record(first, "torch", "default", 1e6),
        record(first, "own", "fast", 0.8e6),
        record(first, "own", "slow", 1.2e6),
        record(first, "own", "broken", 0.1e6, **wrong),
        record(second, "torch", "default", 1e6),
        record(second, "own", "fast", 1.3e6),
    )
    assert {name: one.winner.configuration for name, one in judged.items()} == dict.fromkeys(
        SHAPES, "fast"
    )
    against = judged[first].against[0]
    assert against.verdict == "faster"
    assert against.comparison.ratio == pytest.approx(0.8, rel=0.01)
    assert against.comparison.family == 3, "all finalists are judged together"
    assert judged[second].against[0].verdict == "slower"
    assert judged[first].ties == ()


def test_a_result_that_was_not_verified_never_wins():
    (name, *_) = SHAPES
    unverified = Verdict(status=Verification.NOT_VERIFIED)
    judged = found(
        record(name, "own", "fast", 0.5e6, verdict=unverified), record(name, "own", "slow", 1e6)
    )
    assert judged[name].winner.configuration == "slow"
    assert judged[name].against[0].verdict == "no baseline"


def test_finalists_that_are_not_shown_to_be_slower_tie():
    (name, *_) = SHAPES
    judged = found(
        record(name, "own", "one", 1e6), record(name, "own", "other", 1.0004e6),
        record(name, "own", "slow", 1.5e6),
    )  # fmt: skip
    assert [one.configuration for one in judged[name].ties] == ["other"]


def test_too_few_rounds_decide_nothing():
    (name, *_) = SHAPES
    judged = found(
        record(name, "torch", "default", 1e6), record(name, "own", "fast", 0.9e6), rounds=2
    )
    assert judged[name].against[0].verdict == "undecided"


def tuning():
    first, second = SHAPES
    history = SearchHistory({SearchTrial(0, 0): 1.0, SearchTrial(0, 1): None})
    spaces = [make_space(one, (), parse_target("cpu")) for one in OPERATIONS]
    judged = found(
        record(first, "torch", "default", 1e6), record(first, "own", "fast", 0.8e6),
        record(first, "own", "same", 0.8001e6),
    )  # fmt: skip
    shapes = with_search(judged, spaces, history, {second: "it is too wide"}, has_finals=True)
    return TuningResult(
        provider="own", strategy="model", limit="5 %", seed=1, baselines=("torch:default",),
        shapes=shapes, is_complete=False,
    )  # fmt: skip


def test_why_a_shape_has_no_winner():
    first, second = tuning().shapes
    assert (first.tried, first.failed, first.reason) == (2, 1, "")
    assert second.reason == "it is too wide"


def test_what_is_printed_and_written():
    result = tuning()
    lines = list(gain_lines(result))
    assert lines[0].startswith("Compared with torch:default, the winners' speed is 1.2")
    assert lines[0].endswith("1 shape: 1 faster.")
    assert "which of them is the fastest is undecided" in lines[1]
    assert "did not come to its end" in lines[2]
    rows = winner_table(result).records()
    assert rows[0]["speed_low"] < rows[0]["speed"] < rows[0]["speed_high"]
    assert rows[0]["ties"] == ["same"]
    assert rows[1]["reason"] == "it is too wide"
    shown = winner_table(result, shown=True)
    assert len(shown.columns) < len(winner_table(result).columns)
    assert "baseline" not in [one.name for one in shown.columns], "the line below names it"
    two = replace(result, baselines=("torch:default", "cublaslt:best"))
    assert "baseline" in [one.name for one in winner_table(two, shown=True).columns]
    document = tuning_document(result)
    assert document["gains"] == [
        {"baseline": "torch:default", "shapes": 1, "speed": pytest.approx(1.25, rel=0.01),
         "faster": 1, "slower": 0, "no_difference_shown": 0, "undecided": 0}
    ]  # fmt: skip


def test_a_baseline_that_wins_is_not_compared_with_itself():
    (name, other) = SHAPES
    judged = found(
        record(name, "own", "default", 1e6), record(name, "own", "slow", 2e6),
        record(other, "own", "default", 1e6), record(other, "own", "slow", 2e6),
        baselines=("own:default",),
    )  # fmt: skip
    assert {one.against[0].verdict for one in judged.values()} == {"the baseline"}
    tuned = TuningResult(
        provider="own", strategy="model", limit="all", seed=1, baselines=("own:default",),
        shapes=tuple(judged.values()), is_complete=True,
    )  # fmt: skip
    assert list(gain_lines(tuned)) == [
        "On 2 shapes own:default itself is the fastest that was tried."
    ]
    (gain,) = tuning_document(tuned)["gains"]
    assert (gain["shapes"], gain["undecided"]) == (0, 0)
