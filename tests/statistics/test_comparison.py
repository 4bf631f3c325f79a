from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.statistics import comparison
from gemmetry.statistics.comparison import (
    Difference,
    Pairing,
    cliffs_delta,
    compare_medians,
    compare_rounds,
    verdict_of,
    widened,
)

SAMPLES = st.lists(st.floats(1, 1e6), min_size=1, max_size=30)
SHOWN = (Difference.FASTER, Difference.SLOWER)


def durations(rng, median, count=60):
    """Like those of a benchmark: a narrow body and a tail to the right."""
    return median * (1 + 0.01 * rng.gamma(2.0, size=count)) / 1.0168


def test_faster_and_slower_are_seen_from_the_second():
    rng = np.random.default_rng(1)
    slow, fast = durations(rng, 100.0), durations(rng, 90.0)
    found, reverse = compare_medians(slow, fast), compare_medians(fast, slow)
    assert (found.verdict, found.effect_size) == (Difference.FASTER, 1.0)
    assert (reverse.verdict, reverse.effect_size) == (Difference.SLOWER, -1.0)
    assert found.ratio == pytest.approx(0.9, rel=0.01)
    assert found.ratio == pytest.approx(1 / reverse.ratio)
    assert found.ratio_low < found.ratio < found.ratio_high < 1


def test_identical_and_constant_samples():
    samples = durations(np.random.default_rng(2), 10.0)
    found = compare_medians(samples, samples, relevant=0.02)
    assert (found.ratio, found.effect_size) == (1.0, 0.0)
    assert found.verdict is Difference.NONE_SHOWN
    assert compare_medians(samples, samples).verdict is Difference.UNDECIDED, "nothing is none"
    constant = compare_medians([2.0] * 8, [3.0] * 8)
    assert (constant.interval, constant.verdict) == ((1.5, 1.5), Difference.SLOWER)


@pytest.mark.parametrize("sizes", [(7, 7), (8, 12), (6, 30), (101, 64)])
def test_the_interval_is_that_of_resampled_medians(sizes):
    """The computed distribution is that of 40,000 drawn resamples: of odd numbers their median, of
    even ones either value in the middle."""
    rng = np.random.default_rng(5)
    left, right = (np.round(durations(rng, 10.0, size), 1) for size in sizes)  # With equal ones.
    medians = []
    for side in (right, left):
        drawn = np.sort(side[rng.integers(0, side.size, (40_000, side.size))], axis=1)
        places = (side.size - 1) // 2 + rng.integers(0, 2 - side.size % 2, 40_000)
        medians.append(drawn[np.arange(40_000), places])
    ratios = medians[0] / medians[1]
    exact, chances = comparison._ratios_of_medians(left, right)
    assert chances.sum() == pytest.approx(1, abs=1e-9)
    for place in (0.99, 1.0, 1.01):
        share = chances[exact <= place].sum()
        assert (ratios <= place).mean() == pytest.approx(share, abs=4 * 0.5 / math.sqrt(40_000))
    found = compare_medians(left, right)
    for end, sign in zip(found.interval, (-1, 1), strict=True):
        beyond = chances[sign * (exact - end) > 1e-12].sum()
        assert beyond <= 0.025 < chances[sign * (exact - end) > -1e-12].sum()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_samples_are_undecided(count):
    found = compare_medians([1.0] * 50, [9.0] * count)
    assert found.verdict is Difference.UNDECIDED
    assert found.interval is found.p_value is None
    assert found.ratio == 9.0
    samples = "1 sample" if count == 1 else f"{count} samples"
    assert found.note.startswith(f"{samples} a side: at least 6 are needed; raise")


def test_equal_distributions_are_rarely_called_different_and_a_small_slowdown_is_found():
    """400 A/A comparisons at a nominal 5 %: four standard errors of 0.05 are 0.044. 1 % against a
    spread of 1.4 %, 100 samples a side: found in nearly all of 60 trials."""
    rng = np.random.default_rng(4)

    def verdict(level, count):
        return compare_medians(durations(rng, 1.0, count), durations(rng, level, count)).verdict

    assert sum(verdict(1.0, 40) in SHOWN for _ in range(400)) / 400 < 0.05 + 0.044
    assert sum(verdict(1.01, 100) is Difference.SLOWER for _ in range(60)) >= 57


@settings(max_examples=40)
@given(SAMPLES, SAMPLES)
def test_effect_size_counts_pairs(a, b):
    pairs = [(x > y) - (x < y) for x in a for y in b]
    found = compare_medians(a, b).effect_size
    assert found == pytest.approx(sum(pairs) / len(pairs)) == -cliffs_delta(b, a)


def test_refuses_samples_that_are_not_durations():
    for bad in ([], [0.0], [-1.0], [float("nan")], [float("inf")]):
        with pytest.raises(ValueError, match="b has"):
            compare_medians([1.0], bad)


def rounds(rng, turns, *, drift=(0.0,) * 99, level=1.0, own=0.01, each=20):
    """Rounds whose samples share the machine's drift in that turn and a shift of their own."""
    return {
        turn: level * np.exp(drift[turn] + rng.normal(0, own) + rng.normal(0, 0.01, each))
        for turn in range(turns)
    }


def both(rng, turns, levels, **how):
    return [rounds(rng, turns, level=level, **how) for level in levels]


def later(side):
    """The same rounds at turns that the other side does not have."""
    return {turn + 100: samples for turn, samples in side.items()}


def together(*sides):
    return [np.concatenate(list(side.values())) for side in sides]


def test_rounds_of_a_turn_are_compared_in_pairs():
    """A drift of 10 % hides 3 % between the medians, but not within the turns."""
    rng = np.random.default_rng(5)
    a, b = both(rng, 12, (1.0, 1.03), drift=rng.normal(0, 0.1, 12), own=0.002)
    paired, apart = compare_rounds(a, b), compare_rounds(a, later(b))
    assert (paired.pairing, paired.observations) == (Pairing.ROUNDS, 12)
    assert paired.verdict is Difference.SLOWER
    assert paired.ratio == pytest.approx(1.03, rel=0.005)
    assert paired.ratio_low < paired.ratio < paired.ratio_high
    assert (apart.pairing, apart.verdict) == (Pairing.UNPAIRED_ROUNDS, Difference.UNDECIDED)


def test_few_rounds_are_undecided_however_many_samples():
    a, b = both(np.random.default_rng(6), 3, (1.0, 1.2))
    found = compare_rounds(a, b)
    assert found.verdict is Difference.UNDECIDED
    assert found.interval is found.p_value is None
    assert found.ratio == pytest.approx(1.2, rel=0.02)
    assert found.note.startswith("3 rounds a side: at least 4 are needed")
    assert compare_rounds({1: a[0]}, {1: b[0]}).note.startswith("1 round a side: ")
    with pytest.raises(ValueError, match="b has no samples"):
        compare_rounds(a, {})


def test_equal_dispatches_are_rarely_called_different_by_rounds():
    """600 A/A comparisons at a nominal 2 %, with drift and with rounds that differ by more than
    their samples do; samples taken as independent call most of them different."""
    rng = np.random.default_rng(8)
    by_rounds = by_samples = 0
    for trial in range(600):
        a, b = both(rng, 12, (1.0, 1.0), drift=rng.normal(0, 0.03, 12), own=0.02)
        by_rounds += compare_rounds(a, b, confidence=0.98).verdict in SHOWN
        if trial < 40:
            by_samples += compare_medians(*together(a, b), confidence=0.98).verdict in SHOWN
    assert by_rounds <= 24, "4 %: over four standard errors above the nominal level"
    assert by_samples >= 10


def test_a_difference_must_exceed_what_is_relevant():
    a, b = both(np.random.default_rng(9), 12, (1.0, 1.015), own=1e-4)
    samples = together(a, b)
    assert compare_rounds(a, b).verdict is Difference.SLOWER
    small = compare_rounds(a, b, relevant=0.02)
    assert small.note == "differs, but not demonstrably by more than 2 %"
    assert small.verdict is compare_medians(*samples, relevant=0.02).verdict
    assert small.verdict is Difference.NONE_SHOWN
    assert compare_rounds(a, b, relevant=0.01).verdict is Difference.SLOWER
    assert compare_rounds(b, a, relevant=0.01).verdict is Difference.FASTER
    assert compare_medians(*samples, relevant=0.01).verdict is Difference.SLOWER


def test_a_family_has_intervals_that_hold_together():
    """Twelve rounds that are all slower suffice among ninety comparisons, eleven of them among six;
    where pairs cannot show anything any more, ranks of rounds still can."""
    a, slow = both(np.random.default_rng(10), 12, (1.0, 1.5))
    a, slow = ({turn: samples[:1] for turn, samples in side.items()} for side in (a, slow))
    slow[3] = a[3] / 1.1
    found = {m: compare_rounds(a, slow, family=m, relevant=0.02) for m in (1, 6, 8, 90, 103)}
    assert {m: (one.verdict, one.pairing) for m, one in found.items()} == {
        1: (Difference.SLOWER, Pairing.ROUNDS),
        6: (Difference.SLOWER, Pairing.ROUNDS),
        8: (Difference.SLOWER, Pairing.UNPAIRED_ROUNDS),
        90: (Difference.UNDECIDED, Pairing.ROUNDS),
        103: (Difference.SLOWER, Pairing.UNPAIRED_ROUNDS),
    }
    assert "a difference is shown by itself, but not as one of 90 comparisons" in found[90].note
    assert "does not exclude a difference of 10 %:" in found[90].note
    widths = [found[m].ratio_high - found[m].ratio_low for m in (1, 6, 90)]
    assert widths == sorted(widths)
    assert found[6].adjusted_p_value == pytest.approx(6 * found[1].p_value)
    assert all(one.family == family for family, one in found.items())
    few = ({turn: side[turn] for turn in range(5)} for side in (a, slow))
    words = "5 rounds a side: at least 6 are needed among 20 comparisons; "
    assert compare_rounds(*few, family=20).note.startswith(words)


def test_medians_that_are_far_apart_decide_where_rounds_are_off_by_factors():
    """On a machine with more threads than processors some rounds take ten times as long, so that
    of a dozen pairs one is the wrong way round; the medians of all samples are not."""
    rng = np.random.default_rng(11)
    quick, slow = ({turn: rng.normal(at, at / 100, 12) for turn in range(12)} for at in (36, 570))
    quick[4] = quick[4] * 40
    found = compare_rounds(quick, slow, family=11, relevant=0.02)
    assert (found.verdict, found.pairing) == (Difference.SLOWER, Pairing.MEDIANS)
    assert found.ratio_low > 10
    assert found.ratio == pytest.approx(570 / 36, rel=0.2)
    assert (found.p_value, found.note) == (None, "")
    # With half of all rounds disturbed, it is impossible to know which half is the machine's doing.
    quick |= {turn: quick[turn] * 40 for turn in (0, 2, 6, 8, 9)}
    found = compare_rounds(quick, slow, family=11, relevant=0.02)
    assert (found.verdict, found.pairing) == (Difference.UNDECIDED, Pairing.ROUNDS)


def test_rounds_that_only_one_side_has_do_not_count_where_others_were_shared():
    """The clock falls while a baseline whose interval is still too wide takes further rounds."""
    rng = np.random.default_rng(14)
    drift = np.arange(60) / 100
    a, b = (rounds(rng, turns, drift=drift, own=0.0, each=8) for turns in (60, 20))
    found = compare_rounds(a, b, relevant=0.02)
    assert (found.verdict, found.pairing) == (Difference.NONE_SHOWN, Pairing.ROUNDS)
    disturbed = {turn: b[turn] * (2 if turn % 2 else 0.5) for turn in b}
    found = compare_rounds(a, disturbed, relevant=0.02)
    assert (found.verdict, found.observations) == (Difference.UNDECIDED, 20)


def test_medians_of_equal_dispatches_on_a_disturbed_machine_raise_no_alarm():
    rng = np.random.default_rng(12)
    alarms = 0
    for _ in range(400):
        drifts = np.log(np.where(rng.random((2, 15)) < 0.3, 20, 1))
        a, b = (rounds(rng, 15, drift=drift, own=0.0, each=8) for drift in drifts)
        alarms += compare_rounds(a, b, relevant=0.02).verdict in SHOWN
    assert alarms <= 0.05 * 400 + 4 * (0.05 * 0.95 * 400) ** 0.5


@pytest.mark.parametrize(("verdict", "intervals"), [
    (Difference.SLOWER, [(1.021, 1.5)]), (Difference.FASTER, [(0.5, 0.98)]),
    (Difference.NONE_SHOWN, [(0.99, 1.01), (0.92, 1.09), (1.01, 1.10)]),
    (Difference.UNDECIDED, [(1.01, 1.11), (0.90, 1.01), (0.9, 48.0), None]),
])  # fmt: skip
def test_what_is_read_from_an_interval(verdict, intervals):
    assert {verdict_of(interval, 0.02) for interval in intervals} == {verdict}


def test_an_interval_can_be_widened_by_what_the_test_does_not_see():
    a, b = both(np.random.default_rng(11), 12, (1.0, 1.5))
    found = compare_rounds(a, b, relevant=0.02)
    same = widened(found, 1.2, "why")
    assert (same.verdict, same.p_value, same.note) == (found.verdict, found.p_value, "")
    assert same.interval == (1.2, found.ratio_high)
    doubted = widened(found, 1.0, "why")
    assert (doubted.verdict, doubted.p_value, doubted.note) == (Difference.UNDECIDED, None, "why")
    few = compare_rounds({1: a[0]}, {1: b[0]})
    assert widened(few, 9.0, "why") == few
