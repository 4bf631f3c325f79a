from __future__ import annotations

import pytest

from gemmetry.domain.errors import Outcome, RequestError
from gemmetry.domain.record import BuildFacts
from gemmetry.tuning.dispatcher.choosing import Trial
from gemmetry.tuning.dispatcher.evaluation import (
    Policy,
    evaluate,
    evaluation_document,
    regret_table,
    summary,
)
from gemmetry.tuning.dispatcher.table import CUBLAS

from .conftest import entry, table_of
from .test_building import experiment, record

TABLE = table_of(
    entry(16, 4096, 4096, cublas=10.0, a=8.0, b=9.0),
    entry(64, 4096, 4096, cublas=12.0, a=13.0, verdict="slower"),
)


def results(**times):
    """Shape -> the times of cuBLAS and of configurations of ``blocked``."""
    rows = [(shape, name, ns) for shape, row in times.items() for name, ns in row.items()]
    names = {"cublas": CUBLAS}
    return experiment(*(record(m, names.get(one, f"blocked:{one}"), ns) for m, one, ns in rows))


def test_regret_is_against_the_best_of_all_candidates():
    found = evaluate(TABLE, results(**{
        "13x4096x4096": {"cublas": 100.0, "a": 80.0, "b": 60.0},
        "60x4096x4096": {"cublas": 100.0, "a": 80.0},
        "7x64x64": {"cublas": 100.0, "b": 110.0},
    }))  # fmt: skip
    assert [one.choice for one in found.replayed] == ["blocked:a", CUBLAS, CUBLAS]
    assert [one.regret for one in found.replayed] == pytest.approx([1 / 3, 0.25, 0])
    own = found.policies[0]
    always = next(one for one in found.policies if one.name == Policy.CUBLAS)
    means = [one.geometric_mean for one in (own, always)]
    assert means == pytest.approx([(x * 1.25) ** (1 / 3) - 1 for x in (4 / 3, 5 / 3)])
    assert (own.largest, own.near, own.p95) == (pytest.approx(1 / 3), pytest.approx(1 / 3), None)
    assert (own.speedup, always.speedup) == (pytest.approx(1.25 ** (1 / 3)), 1)
    families = {one.name: one.shapes for one in found.families}
    assert families == {"new families": 1, "known families": 2}


def test_shapes_of_the_table_and_shapes_without_cublas_are_left_out():
    found = evaluate(TABLE, results(**{
        "16x4096x4096": {"cublas": 100.0, "a": 1.0},
        "5x64x64": {"a": 1.0},
        "7x64x64": {"cublas": 100.0},
    }))  # fmt: skip
    assert (len(found.replayed), found.seen, found.unusable) == (1, 1, 1)
    with pytest.raises(RequestError, match="no shape for cpu"):
        evaluate(TABLE, results(**{"16x4096x4096": {"cublas": 100.0}}))


def test_a_choice_that_was_not_measured_gives_way_and_is_marked():
    found = evaluate(TABLE, results(**{"13x4096x4096": {"cublas": 100.0, "b": 60.0}}))
    (one,) = found.replayed
    assert (one.choice, one.restricted, found.own_choices) == ("blocked:b", True, 0)
    wrong = record("13x4096x4096", "blocked:a", None, outcome=Outcome.WRONG, reason="wrong")
    found = evaluate(TABLE, experiment(record("13x4096x4096", CUBLAS, 100.0), wrong))
    assert found.replayed[0].best == CUBLAS, "wrong results have no time"


def test_two_times_of_one_kernel_are_the_noise():
    shape, facts = "13x4096x4096", BuildFacts(default_configuration="a")
    alias = record(shape, "blocked:default", 82.0, facts=facts)
    rows = results(**{shape: {"cublas": 100.0, "a": 80.0}}).records
    found = evaluate(TABLE, experiment(*rows, alias))
    assert (found.noise.shapes, found.noise.geometric_mean) == (1, pytest.approx(82 / 80 - 1))
    assert found.replayed[0].regret == 0, "the better one of them stands for the candidate"


class Fakes:
    """Trials whose times differ by 10 % from one measurement to the next."""

    def __init__(self):
        self.asked = []

    def tried(self, problem):
        turns = {CUBLAS: [100.0], "blocked:a": [90.0], "blocked:c": [70.0]}
        return Trial(problem, turns) if problem.m > 8 else None

    def times_ns(self, problem, names):
        self.asked.append(set(names))
        slower = 1.1 if len(self.asked) % 2 else 1
        times = {CUBLAS: 100.0, "blocked:a": 60.0, "blocked:c": 50.0}
        return {name: ns * slower for name, ns in times.items()}


def test_trials_are_judged_by_times_that_are_measured_in_turns():
    stored = results(
        **{"300x64x64": {"cublas": 100.0, "a": 80.0, "b": 20.0}, "8x64x64": {"cublas": 100.0}}
    )
    fakes = Fakes()
    found = evaluate(TABLE, stored, fakes)
    tried, other = found.replayed
    assert fakes.asked == [{CUBLAS, "blocked:a", "blocked:b", "blocked:c"}] * 2
    assert (tried.choice, tried.best, tried.restricted) == ("blocked:c", "blocked:c", False)
    assert tried.chosen_ns == pytest.approx(52.5)
    assert tried.trial_s is not None
    assert (other.choice, other.chosen_ns, other.trial_s) == (CUBLAS, 100.0, None)
    assert (found.noise.shapes, found.noise.largest) == (3, pytest.approx(0.1))


def test_a_quantile_needs_twenty_shapes():
    picks = [({CUBLAS: 1.0 + i / 100, "x:y": 1.0}, CUBLAS) for i in range(20)]
    assert summary("x", picks[:19]).p95 is None
    assert summary("x", picks).p95 == pytest.approx(0.18, abs=0.011)


def test_criteria_are_judged_by_the_best_library_and_the_regret():
    found = evaluate(TABLE, results(**{
        f"{m}x4096x4096": {"cublas": 100.0, "a": 80.0 if m < 16 else 103.0} for m in range(9, 30)
        if m != 16
    }))  # fmt: skip
    share, mean, p95 = found.criteria
    worst = max(one.chosen_ns / one.library_ns for one in found.replayed)
    assert share.value == pytest.approx(1 / worst)
    assert (share.met, mean.met) == (worst <= 1 / 0.98, mean.value <= 0.01)
    assert p95.value is not None
    few = evaluate(TABLE, results(**{"60x4096x4096": {"cublas": 100.0, "a": 80.0}}))
    assert [one.met for one in few.criteria] == [True, False, None]
    document = evaluation_document(few)
    assert [one["met"] for one in document["criteria"]] == [True, False, None]
    assert document["policies"][0]["geometric_mean"] == pytest.approx(0.25)
    assert document["coverage"] == 1
    expected = {"shape": "60x4096x4096", "choice": CUBLAS, "step": "nearest tuned shape"}
    assert expected.items() <= document["choices"][0].items()
    rows = regret_table(few).records()
    assert [row["policy"] for row in rows][:2] == ["dispatcher", "  known families"]
    assert rows[0]["speedup"] == pytest.approx(1)
