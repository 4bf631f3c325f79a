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


FIRST, SECOND = SHAPES
TORCH = ("torch", "default", 1e6)


def found(*rows, rounds=12, baselines=("torch:default",)):
    """What is judged of rows of a shape, a provider, a configuration, a time, and other fields."""
    records = [record(*row[:4], **dict(*row[4:])) for row in rows]
    return judge(
        results(*records, count=rounds), provider="own", operations=OPERATIONS,
        baselines=baselines,
    )  # fmt: skip


def test_the_fastest_correct_configuration_wins_and_is_compared_with_the_baseline():
    wrong = {"outcome": Outcome.WRONG, "reason": "wrong", "measurement": None}
    judged = found(
        (FIRST, *TORCH), (FIRST, "own", "fast", 0.8e6), (FIRST, "own", "slow", 1.2e6),
        (FIRST, "own", "broken", 0.1e6, wrong), (SECOND, *TORCH), (SECOND, "own", "fast", 1.3e6),
    )  # fmt: skip
    assert [judged[name].winner.configuration for name in SHAPES] == ["fast", "fast"]
    against = judged[FIRST].against[0]
    assert (against.verdict, judged[SECOND].against[0].verdict) == ("faster", "slower")
    assert against.comparison.ratio == pytest.approx(0.8, rel=0.01)
    assert against.comparison.family == 3, "all finalists are judged together"
    assert judged[FIRST].ties == ()


def test_a_result_that_was_not_verified_never_wins():
    unverified = {"verdict": Verdict(status=Verification.NOT_VERIFIED)}
    judged = found((FIRST, "own", "fast", 0.5e6, unverified), (FIRST, "own", "slow", 1e6))
    assert judged[FIRST].winner.configuration == "slow"
    assert judged[FIRST].against[0].verdict == "no baseline"


def test_finalists_that_are_not_shown_to_be_slower_tie():
    times = {"one": 1e6, "other": 1.0004e6, "slow": 1.5e6}
    judged = found(*((FIRST, "own", name, ns) for name, ns in times.items()))
    assert [one.configuration for one in judged[FIRST].ties] == ["other"]


def test_too_few_rounds_decide_nothing():
    judged = found((FIRST, *TORCH), (FIRST, "own", "fast", 0.9e6), rounds=2)
    assert judged[FIRST].against[0].verdict == "undecided"


def tuning():
    history = SearchHistory({SearchTrial(0, 0): 1.0, SearchTrial(0, 1): None})
    spaces = [make_space(one, (), parse_target("cpu")) for one in OPERATIONS]
    judged = found((FIRST, *TORCH), (FIRST, "own", "fast", 0.8e6), (FIRST, "own", "same", 0.8001e6))
    shapes = with_search(judged, spaces, history, {SECOND: "it is too wide"}, has_finals=True)
    return TuningResult(
        provider="own", strategy="model", limit="5 %", seed=1, baselines=("torch:default",),
        shapes=shapes, is_complete=False,
    )  # fmt: skip


def test_what_is_printed_and_written():
    result = tuning()
    first = result.shapes[0]
    assert (first.tried, first.failed, first.reason) == (2, 1, "")
    gain, ties, end = gain_lines(result)
    assert gain.startswith("Compared with torch:default, the winners' speed is 1.2")
    assert gain.endswith("1 shape: 1 faster.")
    assert "which of them is the fastest is undecided" in ties
    assert "did not come to its end" in end
    rows = winner_table(result).records()
    assert rows[0]["speed_low"] < rows[0]["speed"] < rows[0]["speed_high"]
    assert (rows[0]["ties"], rows[1]["reason"]) == (["same"], "it is too wide")
    two = replace(result, baselines=("torch:default", "cublaslt:best"))
    of_one, of_two = (winner_table(one, shown=True).names for one in (result, two))
    assert len(of_one) < len(winner_table(result).columns)
    assert "baseline" not in of_one, "the line below names it"
    assert "baseline" in of_two
    assert tuning_document(result)["gains"] == [
        {"baseline": "torch:default", "shapes": 1, "speed": pytest.approx(1.25, rel=0.01),
         "faster": 1, "slower": 0, "no_difference_shown": 0, "undecided": 0}
    ]  # fmt: skip


def test_a_baseline_that_wins_is_not_compared_with_itself():
    rows = [(shape, "own", *one) for shape in SHAPES for one in (("default", 1e6), ("slow", 2e6))]
    judged = found(*rows, baselines=("own:default",))
    assert {one.against[0].verdict for one in judged.values()} == {"the baseline"}
    tuned = replace(tuning(), baselines=("own:default",), shapes=tuple(judged.values()),
                    is_complete=True)  # fmt: skip
    assert list(gain_lines(tuned)) == [
        "On 2 shapes own:default itself is the fastest that was tried."
    ]
    (gain,) = tuning_document(tuned)["gains"]
    assert (gain["shapes"], gain["undecided"]) == (0, 0)
