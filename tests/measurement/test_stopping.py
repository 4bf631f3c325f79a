from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.settings import MOST_PROCESSES, RunSettings
from gemmetry.measurement.stopping import (
    DELAY_BUDGETS,
    DISTURBED_ROUNDS,
    GPU_PROCESSES,
    LOOKS,
    MIN_ROUNDS,
    MOST_ROUNDS,
    ROUND_S,
    Round,
    StopPolicy,
    is_outclassed,
    process_count,
    required_width,
    rounds_half_width,
)
from gemmetry.statistics.comparison import Difference, compare_rounds

CPU = Target(TargetKind.CPU)
GPU = Target(TargetKind.CUDA, "sm_90")
NULL = Target(TargetKind.NULL)


def _round(*samples):
    return Round(samples_ns=samples, method="wall_clock")


def _spread(count, share, each=1):
    """Samples around 1000 ns, evenly within ± `share`, in rounds of `each` that are alike."""
    samples = [1000.0 * (1 + share * (2 * i / (count - 1) - 1)) for i in range(count)]
    return [_round(*samples[start :: count // each]) for start in range(count // each)]


def _sampled(policy, samples_of, known_s=0.0):
    """Rounds until the policy has enough; `samples_of(number, count)` of a round, in ns."""
    rounds: list[Round] = []
    spent = 0.0
    for number in range(300):
        count = policy.next_count(rounds, spent, known_s)
        if not count:
            return rounds
        rounds.append(_round(*samples_of(number, count)))
        spent += sum(rounds[-1].samples_ns) / 1e9
    raise AssertionError("sampling did not end in 300 rounds")


def _sizes(policy, seconds_each, known_s=0.0):
    """Sizes of rounds whose samples are all alike."""
    rounds = _sampled(policy, lambda _number, count: [seconds_each * 1e9] * count, known_s)
    return [len(item.samples_ns) for item in rounds]


def _delayed(*delays_s):
    """Samples of 0.3 ms, of which the first of each round waits."""
    return lambda number, count: [
        3e5 + 1e9 * (delays_s[number] if number < len(delays_s) else 0.0), *[3e5] * (count - 1)
    ]  # fmt: skip


@pytest.mark.parametrize(("settings", "target", "processes", "width"), [
    ({}, GPU, GPU_PROCESSES, 0.005),
    ({}, CPU, 1, 0.02),
    ({}, NULL, 1, 0.02),
    ({"processes": 5, "interval_width": 0.1}, CPU, 5, 0.1),
    ({"quick": True}, GPU, 1, 0.03),
    ({"quick": True}, CPU, 1, 0.05),
    ({"quick": True, "processes": 2, "interval_width": 0.1}, GPU, 2, 0.1),
])  # fmt: skip
def test_processes_and_width_depend_on_the_device_unless_they_are_given(
    settings, target, processes, width
):
    assert MOST_PROCESSES <= MIN_ROUNDS, "each of them gets a round"
    assert process_count(RunSettings(**settings), target) == processes
    assert required_width(RunSettings(**settings), target) == width


def test_a_quick_look_takes_as_few_rounds_as_have_an_interval_at_all():
    policy = StopPolicy(RunSettings(quick=True), CPU)
    assert len(_sizes(policy, 0.1)) == 6
    assert policy.next_count(_spread(12, 0.3), 0.0) > 0, "the interval is too wide"


def test_width_is_infinite_where_there_is_no_interval():
    for rounds in ([], [_round(5.0)] * 5, [_round(0.0, 0.0)]):
        assert math.isinf(rounds_half_width(rounds))
    assert rounds_half_width([_round(5.0)] * 6) == 0.0


def test_however_few_samples_suffice_they_take_turns():
    assert _sizes(StopPolicy(RunSettings(), CPU), 0.1) == [1] * MIN_ROUNDS
    assert _sizes(StopPolicy(RunSettings(), NULL), 0.1) == [10]


def test_rounds_of_short_samples_are_worth_their_while():
    usual = RunSettings().max_samples // MOST_ROUNDS
    assert _sizes(StopPolicy(RunSettings(), CPU), 1e-4) == [1, *[usual] * (MIN_ROUNDS - 1)]
    each_s = ROUND_S / 4.5
    assert _sizes(StopPolicy(RunSettings(), CPU), each_s) == [1, *[4] * (MIN_ROUNDS - 1)]
    sizes = _sizes(StopPolicy(RunSettings(min_samples=40), CPU), 0.01)
    assert sizes == [4] * MIN_ROUNDS, "the least number of samples is shared out"


def test_stops_when_the_interval_is_narrow():
    policy = StopPolicy(RunSettings(), CPU)
    rounds = _spread(24, 0.01)
    assert policy.next_count(rounds, 0.1) == 0
    assert policy.reason(rounds, 0.1) == "interval"


@pytest.mark.parametrize(("target", "width", "spread", "gives_up"), [
    (GPU, None, 0.2, True), (GPU, 0.001, 0.2, False), (CPU, None, 0.5, False),
    (GPU, None, 0.06, False),
])  # fmt: skip
def test_what_cannot_become_narrow_is_given_up(target, width, spread, gives_up):
    settings = RunSettings(interval_width=width, max_samples=1000)
    policy = StopPolicy(settings, target)
    rounds = _spread(16 * DISTURBED_ROUNDS, spread, each=16)
    assert (policy.next_count(rounds, 0.1) == 0) is gives_up
    assert (policy.reason(rounds, 0.1) == "out_of_reach") is gives_up
    assert (policy.left_s(rounds, 0.1, 1e-3) == 0) is gives_up
    assert policy.next_count(rounds[:-1], 0.1) > 0


def test_a_round_that_is_off_asks_for_more_of_them():
    """Among sixty comparisons, one contrary pair of twelve decides nothing, but seven of 36 do."""
    policy, steady = StopPolicy(RunSettings(), CPU), _round(*[1000.0, 1001.0] * 8)
    off = _round(*[20_000.0] * 16)
    assert policy.next_count([steady] * 12, 0.01) == 0
    rounds = [off, *[steady] * 11]
    assert rounds_half_width(rounds) < 0.02
    assert policy.next_count(rounds, 0.01) > 0
    assert policy.next_count([off, *[steady] * (DISTURBED_ROUNDS - 1)], 0.01) == 0
    for count, many, is_enough in ((36, 10, False), (50, 10, True), (MOST_ROUNDS, 20, True)):
        mixed = [off if place * many % count < many else steady for place in range(count)]
        assert mixed.count(off) == many
        assert (policy.next_count(mixed, 0.01) == 0) is is_enough
    slow = _round(*[3000.0, 3001.0] * 8)
    a, b = (
        {turn: one.samples_ns for turn, one in enumerate(some)}
        for some in ([off] * 7 + [steady] * 29, [slow] * 36)
    )
    assert compare_rounds(a, b, relevant=0.02, family=60).verdict is Difference.SLOWER


def test_rounds_that_differ_are_not_a_narrow_interval():
    """300 samples, every round tight, but the rounds 10 % apart: only twelve observations."""
    levels = [1000.0 * (1 + 0.1 * (index / 11 - 0.5)) for index in range(12)]
    rounds = [_round(*(level + step for step in range(25))) for level in levels]
    assert rounds_half_width(rounds) > 0.02


@pytest.mark.parametrize(("spread", "missing_at_most"), [(0.3, 1e9), (3.0, 960)])
def test_the_rounds_left_share_what_the_width_needs(spread, missing_at_most):
    policy = StopPolicy(RunSettings(max_samples=10_000), CPU)
    rounds = [
        Round(samples_ns=one.samples_ns, method="wall_clock", launches_per_sample=10_000)
        for one in _spread(480, spread, each=20)
    ]
    width = rounds_half_width(rounds)
    missing = min(math.ceil(480 * (width / 0.02) ** 2) - 480, missing_at_most)
    assert width > 0.02
    assert policy.next_count(rounds, 0.01) == math.ceil(missing / (MOST_ROUNDS - 24))


def test_a_slow_dispatch_continues_with_short_rounds():
    policy = StopPolicy(RunSettings(), CPU)
    rounds = [_round(3e7 * (1 + 0.05 * (-1) ** index)) for index in range(12)]
    assert policy.next_count(rounds, 0.4) == 1


def test_time_budget_ends_sampling_and_limits_rounds():
    policy = StopPolicy(RunSettings(time_budget_s=2.0), CPU)
    rounds = _spread(12, 0.9)
    assert policy.next_count(rounds, 1.5) == 4, "0.125 s a sample, 0.5 s left"
    assert policy.next_count(rounds, 1.95) == 0
    assert policy.reason(rounds, 1.95) == "time_budget"
    assert policy.next_count([_round(1.0, 1.1)], 2.0) == 0, "even below the least of samples"


def test_a_sample_that_waits_for_the_whole_budget_is_not_the_end():
    """On a busy machine one sample in a hundred may wait that long, in the first round or later."""
    policy = StopPolicy(RunSettings(time_budget_s=0.3), CPU)
    for delays_s in ([0.31], [0.0, 0.0, 0.0, 0.28]):
        rounds = _sampled(policy, _delayed(*delays_s), 3e-4)
        assert len(rounds) >= MIN_ROUNDS
        assert rounds_half_width(rounds) <= 0.02


@pytest.mark.parametrize(("delay_s", "rounds_taken"), [(0.1, 12), (0.3, 4), (10.0, 1)])
def test_delays_take_some_budgets_and_no_more(delay_s, rounds_taken):
    policy = StopPolicy(RunSettings(time_budget_s=0.3), CPU)
    rounds = _sampled(policy, _delayed(*[delay_s] * 99), 3e-4)
    assert len(rounds) == rounds_taken
    seconds = sum(sum(item.samples_ns) for item in rounds) / 1e9
    assert seconds <= (1 + DELAY_BUDGETS) * 0.3 + delay_s


def test_the_most_samples_and_exact_repetitions_end_sampling():
    policy, rounds = StopPolicy(RunSettings(max_samples=13), CPU), _spread(13, 0.9)
    assert policy.next_count(rounds[:12], 0.01) == 1
    assert policy.next_count(rounds, 0.01) == 0
    assert policy.reason(rounds, 0.01) == "max_samples"
    policy = StopPolicy(RunSettings(repetitions=30, time_budget_s=0.001), CPU)
    assert _sizes(policy, 100.0) == [3] * 10, "whatever the time"
    assert policy.reason([_round(1.0)], 100.0) == "max_samples"


def test_launches_that_are_long_themselves_are_no_delays():
    policy = StopPolicy(RunSettings(time_budget_s=0.3), CPU)
    assert _sizes(policy, 0.09, 0.09) == [1] * 3
    assert _sizes(policy, 0.4, 0.4) == [1]


@settings(max_examples=40)
@given(
    requested=st.integers(1, 50), sample_s=st.floats(0.01, 100.0), kind=st.sampled_from([CPU, GPU])
)
def test_the_requested_samples_are_taken_however_long_they_last(requested, sample_s, kind):
    policy = StopPolicy(RunSettings(min_samples=requested, time_budget_s=0.5), kind)
    assert sum(_sizes(policy, sample_s)) >= requested
    by_default = StopPolicy(RunSettings(time_budget_s=0.5), kind)
    assert sum(_sizes(by_default, 10.0)) == 1, "no more were requested"
    most = StopPolicy(RunSettings(min_samples=requested, max_samples=7, time_budget_s=0.5), kind)
    assert sum(_sizes(most, sample_s)) <= 7


@settings(max_examples=40)
@given(
    spread=st.floats(0.0, 3.0), sample_ns=st.floats(1.0, 1e9), min_samples=st.integers(1, 50),
    max_samples=st.integers(1, 200), kind=st.sampled_from([CPU, GPU, NULL]),
)  # fmt: skip
def test_sampling_always_ends_within_its_limits(spread, sample_ns, min_samples, max_samples, kind):
    limits = {"min_samples": min_samples, "max_samples": max_samples, "time_budget_s": 0.5}
    policy = StopPolicy(RunSettings(**limits), kind)
    rounds = _sampled(
        policy, lambda _, count: [sample_ns * (1 + spread * (i % 7)) for i in range(count)]
    )
    assert 1 <= sum(len(item.samples_ns) for item in rounds) <= max_samples
    seconds = sum(sum(item.samples_ns) for item in rounds) / 1e9
    reasons = ("interval", "time_budget", "max_samples", "out_of_reach")
    assert policy.reason(rounds, seconds) in reasons


@pytest.mark.parametrize("spent", [0.0, 1e-12])
def test_no_time_spent_causes_no_division_by_zero(spent):
    assert StopPolicy(RunSettings(), CPU).next_count(_spread(12, 0.5), spent) > 0


def test_the_first_round_is_as_long_as_the_others_where_samples_are_known():
    """A first round of one sample, which may be cold, is a pair that decides nothing."""
    usual = RunSettings().max_samples // MOST_ROUNDS
    assert _sizes(StopPolicy(RunSettings(), CPU), 1e-4, 1e-4) == [usual] * MIN_ROUNDS
    assert _sizes(StopPolicy(RunSettings(), CPU), 0.1, 0.1) == [1] * MIN_ROUNDS
    assert StopPolicy(RunSettings(), CPU).next_count([], 0.0, 99.0) == 1, "longer than the budget"
    requested = StopPolicy(RunSettings(min_samples=24), CPU)
    assert requested.next_count([], 0.0, 99.0) == 2, "promised ones however long they last"
    assert StopPolicy(RunSettings(max_samples=5), CPU).next_count([], 0.0, 1e-6) == 1


def test_samples_that_are_few_are_spread_over_many_rounds():
    """What the width needs beyond the most samples does not make rounds longer and fewer."""
    policy = StopPolicy(RunSettings(max_samples=60), CPU)
    rounds = _sampled(
        policy, lambda number, count: [2e5 * (1 + 7 * number % 60 / 30)] * count, 2e-4
    )
    assert [len(item.samples_ns) for item in rounds] == [1] * 60


@pytest.mark.parametrize(
    ("renewal_s", "fewest", "most"), [(0.0, 54, 66), (0.02, 13, 20), (5.0, 12, 15)]
)
def test_rounds_are_as_long_as_changing_their_inputs_takes(renewal_s, fewest, most):
    """As long as the budget suffices for twelve of them; a budget of 300 ms buys 600 samples
    anyway."""
    policy = StopPolicy(RunSettings(time_budget_s=0.3), CPU)
    rounds: list[Round] = []
    while size := policy.next_count(rounds, 5e-4 * sum(len(r.samples_ns) for r in rounds), 5e-4):
        level = 5e5 * (0.5 + (7 * len(rounds) + 30) % 60 / 60)
        rounds.append(Round(samples_ns=(level,) * size, method="graph", renewal_s=renewal_s))
    assert fewest <= len(rounds) <= most
    assert sum(len(item.samples_ns) for item in rounds) >= 590


def _in_turns(rng, launches_ns):
    """Samples of each dispatch by turn, on a busy CPU with 300 ms each. A quarter of the rounds
    takes up to 30 times as long. A quarter of the samples waits for time slices of some
    milliseconds."""
    policy = StopPolicy(RunSettings(time_budget_s=0.3), CPU)
    rounds: list[list[Round]] = [[] for _ in launches_ns]
    turns: list[dict[int, np.ndarray]] = [{} for _ in launches_ns]
    for turn in range(200):
        for taken, found, launch_ns in zip(rounds, turns, launches_ns, strict=True):
            spent = sum(sum(item.samples_ns) for item in taken) / 1e9
            count = policy.next_count(taken, spent, launch_ns / 1e9)
            if not count:
                continue
            level = launch_ns * (1 + 0.03 * rng.standard_normal())
            level *= 30 ** rng.random() if rng.random() < 0.25 else 1.0
            held_up_ns = (rng.random(count) < 0.25) * np.minimum(rng.pareto(1.2, count), 20) * 1e6
            found[turn] = level * np.exp(0.03 * rng.random(count)) + held_up_ns
            taken.append(_round(*found[turn].tolist()))
    return turns


def test_a_busy_machine_decides_what_is_gross_and_nothing_that_is_equal():
    """Of the first 72 such gross differences 69 and 68 are shown among 9 and 60 comparisons. Where
    rounds are sized by their median sample alone, the budget goes into 20 of them: 58 and 42."""
    rng = np.random.default_rng(11)
    groups = [_in_turns(rng, [2e5] * 3 + [6e5, 8e5, 1e6]) for _ in range(5)]
    for family in (9, 60):
        of_equal, of_gross = [], []
        for first, *others in groups:
            found = [compare_rounds(first, one, relevant=0.02, family=family) for one in others]
            of_equal += [one.verdict for one in found[:2]]
            of_gross += [one.verdict for one in found[2:]]
        assert not {Difference.FASTER, Difference.SLOWER} & {*of_equal}
        assert of_gross.count(Difference.SLOWER) >= 12


def _left_after(rng, slower, noise, candidates):
    """Rounds after which a candidate leaves the race, in turns with one on the same drifting clock;
    None: it stays to the end."""
    drift = np.exp(np.cumsum(rng.normal(0, 0.01, LOOKS[-1])))
    best, other = (
        [Round(samples_ns=tuple(1000 * ratio * level * np.exp(rng.normal(0, noise, 5))),
               method="events", turn=turn) for turn, level in enumerate(drift, start=1)]
        for ratio in (1.0, slower)
    )  # fmt: skip
    return next((n for n in LOOKS if is_outclassed(other[:n], best[:n], candidates)), None)


def test_a_race_is_left_by_the_slow_alone():
    """Chance may decide at most 5 % of 100 races of equals, or of candidates 5 % slower."""
    rng = np.random.default_rng(1)
    for slower in (1.0, 1.05):
        left = [_left_after(rng, slower, 0.03, 2) for _ in range(100)]
        assert sum(one is not None for one in left) <= 5
    for candidates in (2, 45):
        left = [_left_after(rng, 1.2, 0.03, candidates) for _ in range(20)]
        assert all(one is not None and one <= 24 for one in left), left
    fast, slow = (
        [Round(samples_ns=(ns,), method="events", turn=turn) for turn in range(12)]
        for ns in (1.0, 9.0)
    )
    left = [is_outclassed(slow[:n], fast[:n], 2) for n in (10, 11, 12)]
    assert left == [True, False, True], "false between two looks"
