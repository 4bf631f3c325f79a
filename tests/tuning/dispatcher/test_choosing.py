from __future__ import annotations

import math
import random

import pytest

from gemmetry.tuning.dispatcher.choosing import ChoiceStep, Chooser, Trial, stands_for
from gemmetry.tuning.dispatcher.table import CUBLAS, MatmulProblem

from .conftest import SIGNATURE, certificate, entry, table_of

TUNED = [
    entry(16, 4096, 4096, cublas=10.0, a=8.0, b=9.0),
    entry(64, 4096, 4096, cublas=12.0, a=13.0, b=14.0, verdict="slower"),
    *(
        entry(m, 8192, 8192, cublas=m / 10, b=m * share)
        for m, share in ((1024, 0.078), (1536, 0.082), (2048, 0.08), (3072, 0.081), (4096, 0.079))
    ),
]


def problem(m, n=4096, k=4096):
    return MatmulProblem(SIGNATURE, m, n, k)


@pytest.mark.parametrize(
    ("wanted", "candidate", "step"),
    [
        (problem(16), "blocked:a", ChoiceStep.EXACT), (problem(64), CUBLAS, ChoiceStep.EXACT),
        (problem(13), "blocked:a", ChoiceStep.NEAREST), (problem(60), CUBLAS, ChoiceStep.NEAREST),
        (problem(2500, 11600, 5700), "blocked:b", ChoiceStep.RANKING),
        (problem(7, 64, 64), CUBLAS, ChoiceStep.CUBLAS),
        (MatmulProblem("f16t_f16n_f16t", 16, 4096, 4096), CUBLAS, ChoiceStep.CUBLAS),
    ],
)  # fmt: skip
def test_the_steps_follow_one_another(wanted, candidate, step):
    choice = Chooser(table_of(*TUNED)).choose(wanted)
    assert (choice.candidate, choice.step) == (candidate, step)
    assert choice.reason


def test_only_verified_candidates_are_chosen():
    chooser = Chooser(table_of(*TUNED, certified=("b",)))
    assert [one.candidate for one in chooser.choices(problem(16))] == [CUBLAS]
    assert chooser.choose(problem(13)).candidate == "blocked:b", "it was faster, too"


def test_a_verification_without_tails_covers_whole_tiles_only():
    chooser = Chooser(table_of(*TUNED, certificates=(certificate("b", classes=("whole",)),)))
    for m, candidate in ((2048, "blocked:b"), (2047, CUBLAS)):
        assert chooser.choose(problem(m, 8192, 8192)).candidate == candidate


def test_times_that_are_not_trusted_leave_the_ranking():
    chooser = Chooser(table_of(*TUNED), trusts_times=False)
    assert chooser.choose(problem(16)).candidate == CUBLAS
    choice = chooser.choose(problem(2048, 8192, 8192))
    assert (choice.candidate, choice.step) == ("blocked:b", ChoiceStep.RANKING)


def test_what_is_not_permitted_is_never_chosen():
    generator = random.Random(3)
    chooser = Chooser(table_of(*TUNED), lambda _problem, candidate: candidate != "blocked:a")
    for _ in range(300):
        wanted = problem(*(int(2 ** generator.uniform(0, 14)) for _ in range(3)))
        choices = [one.candidate for one in chooser.choices(wanted)]
        assert "blocked:a" not in choices
        assert choices[-1] == CUBLAS
        assert len(set(choices)) == len(choices)


@pytest.mark.parametrize(
    ("tuned", "other", "wanted"),
    [
        ((16,), (9,), True), ((16,), (8,), False), ((16,), (16, 5600), True),
        ((16,), (16, 8192), False), ((2048,), (2304,), True), ((2048,), (4096,), False),
    ],
)  # fmt: skip
def test_buckets(tuned, other, wanted):
    assert stands_for(problem(*tuned), problem(*other)) is wanted


def shapes(cublas, a):
    sizes = (2048, 2560, 3072, 3584, 4096)
    return [entry(m, 4096, 4096, cublas=cublas(m), a=a(m)) for m in sizes]


def predicted(entries, wanted=None):
    """The logarithm of each candidate's time as a share of cuBLAS'."""
    table = table_of(*entries, target="cuda-sm_90", device="NVIDIA H200")
    return Chooser(table).predictions(wanted or problem(2816))


STEADY = shapes(lambda m: 100.0, lambda m: 90.0)


def test_the_nearer_a_measured_shape_the_more_it_counts():
    in_proportion = shapes(lambda m: 100.0 * m, lambda m: 90.0 * m)
    assert math.exp(predicted(in_proportion)["blocked:a"]) == pytest.approx(0.9)
    rising = shapes(lambda m: 100.0, lambda m: m / 30)
    few, many = (math.exp(predicted(rising, problem(m))["blocked:a"]) for m in (2048, 4096))
    assert 2048 / 3000 < few < 1 < many < 4096 / 3000


def test_what_all_of_a_provider_have_in_common_counts_a_little():
    other = [entry(m, 4096, 4096, cublas=100.0, b=300.0) for m in (2049, 2561, 3073, 3585, 4097)]
    assert predicted(STEADY)["blocked:a"] < predicted([*STEADY, *other])["blocked:a"] < 0


def test_a_candidate_needs_measured_shapes_of_its_own():
    few = [entry(m, 4096, 4096, cublas=1.0, b=0.5) for m in (2100, 2200)]
    assert set(predicted([*STEADY, *few])) == {"blocked:a"}


@pytest.mark.parametrize(
    ("count", "wanted"),
    [(2, problem(2816)), (5, problem(1, 128, 128)),
     (5, MatmulProblem("f16t_f16n_f16t", 2816, 4096, 4096))],
)  # fmt: skip
def test_without_measurements_nearby_nothing_is_predicted(count, wanted):
    assert predicted(STEADY[:count], wanted) == {}


def timed(count, noise=0.0, **means):
    """A trial of so many turns, whose clock changes from turn to turn by tens of percent."""
    chance = random.Random(1)
    clocks = [chance.uniform(0.7, 1.3) for _ in range(count)]
    return Trial(problem(16), {
        CUBLAS if name == "cublas" else f"blocked:{name}":
        [mean * clock * math.exp(chance.gauss(0, noise)) for clock in clocks]
        for name, mean in means.items()
    })  # fmt: skip


@pytest.mark.parametrize(
    ("trial", "guess", "verdict", "choice"),
    [
        pytest.param(timed(30, 0.01, cublas=100.0, a=80.0), "a", "faster", "a", id="faster"),
        pytest.param(timed(30, 0.3, cublas=100.0, a=97.0), "a", "undecided", None, id="noise"),
        pytest.param(timed(4, cublas=100.0, a=80.0), "a", "undecided", None, id="few turns"),
        pytest.param(timed(30, 1e-4, cublas=100.0, a=99.5), None, "no difference shown", None,
                     id="tie"),
        pytest.param(timed(30, 0.01, cublas=100.0, a=120.0), None, "slower", None, id="slower"),
        pytest.param(timed(30, 0.01, cublas=100.0, a=90.0, bad=50.0), "bad", "faster", "a",
                     id="not permitted"),
        pytest.param(Trial(problem(16), {}), None, "", None, id="no candidate"),
    ],
)  # fmt: skip
def test_a_table_chooses_what_turns_show_and_a_call_what_they_suggest(
    trial, guess, verdict, choice
):
    shown = trial.shown(lambda _, name: name != "blocked:bad")
    assert (shown.verdict, shown.choice) == (verdict, f"blocked:{choice}" if choice else CUBLAS)
    assert (shown.ratio is None) == (verdict == "")
    assert trial.guessed().choice == (f"blocked:{guess}" if guess else CUBLAS)
    assert trial.guessed().times_ns == shown.times_ns == trial.times_ns


def test_more_candidates_need_more_turns():
    def is_faster(turns, **others):
        trial = timed(turns, 1e-3, cublas=1.0, a=0.9, **others)
        return trial.shown(lambda *_: True).choice != CUBLAS

    fewest = next(turns for turns in range(1, 50) if is_faster(turns))
    others = {f"c{i}": 2.0 for i in range(20)}
    assert [is_faster(turns, **others) for turns in (fewest, 2 * fewest)] == [False, True]
