from __future__ import annotations

import dataclasses

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
    judge_family,
)

SAMPLES = st.lists(st.floats(1, 1e6), min_size=1, max_size=30)


def durations(rng, median, count=60):
    """Like a benchmark: a tight body and a tail to the right."""
    return median * (1 + 0.01 * rng.gamma(2.0, size=count)) / 1.0168


def test_faster_and_slower_are_seen_from_the_second():
    rng = np.random.default_rng(1)
    slow, fast = durations(rng, 100.0), durations(rng, 90.0)
    comparison = compare_medians(slow, fast)
    assert comparison.verdict is Difference.FASTER
    assert comparison.ratio == pytest.approx(0.9, rel=0.01)
    assert comparison.ratio_low < comparison.ratio < comparison.ratio_high < 1
    assert comparison.effect_size == 1.0
    reverse = compare_medians(fast, slow)
    assert reverse.verdict is Difference.SLOWER
    assert reverse.effect_size == -1.0
    assert reverse.ratio == pytest.approx(1 / comparison.ratio)


def test_identical_samples_show_no_difference():
    samples = durations(np.random.default_rng(2), 10.0)
    comparison = compare_medians(samples, samples)
    assert comparison.ratio == 1.0
    assert comparison.verdict is Difference.NONE_SHOWN
    assert comparison.effect_size == 0.0


def test_constant_samples_have_a_zero_width_interval():
    comparison = compare_medians([2.0] * 8, [3.0] * 8)
    assert (comparison.ratio_low, comparison.ratio_high) == (1.5, 1.5)
    assert comparison.verdict is Difference.SLOWER


@pytest.mark.parametrize("sizes", [(7, 7), (8, 12), (1, 30)])
def test_the_interval_is_that_of_resampled_medians(sizes):
    rng = np.random.default_rng(5)
    left, right = (np.round(durations(rng, 10.0, size), 1) for size in sizes)  # With equal ones.
    draw = np.random.default_rng(comparison._SEED)
    medians = [
        np.median(side[draw.integers(0, side.size, (comparison.RESAMPLES, side.size))], axis=1)
        for side in (right, left)
    ]
    found = compare_medians(left, right)
    expected = np.quantile(medians[0] / medians[1], [0.025, 0.975])
    assert [found.ratio_low, found.ratio_high] == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_samples_never_show_a_difference(count):
    comparison = compare_medians([1.0] * 50, [9.0] * count)
    assert comparison.verdict is Difference.NONE_SHOWN
    assert f"{count} samples" in comparison.note


def test_same_samples_say_the_same_twice():
    rng = np.random.default_rng(3)
    a, b = durations(rng, 5.0), durations(rng, 5.01)
    assert compare_medians(a, b) == compare_medians(a, b)


def test_equal_distributions_are_rarely_called_different():
    """400 A/A comparisons at a nominal 5 %: four standard errors of 0.05 are 0.044."""
    rng = np.random.default_rng(4)
    called = sum(
        compare_medians(durations(rng, 1.0, 40), durations(rng, 1.0, 40)).verdict
        is not Difference.NONE_SHOWN
        for _ in range(400)
    )
    assert called / 400 < 0.05 + 0.044


def test_a_small_slowdown_is_found():
    """1 % against a spread of 1.4 %, 100 samples a side: found in nearly all of 60 trials."""
    rng = np.random.default_rng(5)
    found = sum(
        compare_medians(durations(rng, 1.0, 100), durations(rng, 1.01, 100)).verdict
        is Difference.SLOWER
        for _ in range(60)
    )
    assert found >= 57


@settings(deadline=None, max_examples=40)
@given(SAMPLES, SAMPLES)
def test_interval_is_ordered_and_effect_size_counts_pairs(a, b):
    comparison = compare_medians(a, b)
    assert comparison.ratio_low <= comparison.ratio_high
    pairs = [(x > y) - (x < y) for x in a for y in b]
    assert comparison.effect_size == pytest.approx(sum(pairs) / len(pairs))
    assert cliffs_delta(b, a) == pytest.approx(-comparison.effect_size)


def test_refuses_samples_that_are_no_durations():
    for bad in ([], [0.0], [-1.0], [float("nan")], [float("inf")]):
        with pytest.raises(ValueError, match="b has"):
            compare_medians([1.0], bad)


def _rounds(rng, turns, drift, level=1.0, own=0.01, each=20):
    """Rounds whose samples share the machine's drift in that turn and a shift of their own."""
    return {
        turn: level * np.exp(drift[turn] + rng.normal(0, own) + rng.normal(0, 0.01, each))
        for turn in turns
    }


def test_rounds_of_a_turn_are_compared_in_pairs():
    """A drift of 10 % hides 3 % between the medians, but not within the turns."""
    rng = np.random.default_rng(5)
    drift = rng.normal(0, 0.1, 12)
    a = _rounds(rng, range(12), drift, own=0.002)
    b = _rounds(rng, range(12), drift, level=1.03, own=0.002)
    paired = compare_rounds(a, b)
    assert paired.pairing is Pairing.ROUNDS
    assert paired.observations == 12
    assert paired.verdict is Difference.SLOWER
    assert paired.ratio == pytest.approx(1.03, rel=0.005)
    assert paired.ratio_low < paired.ratio < paired.ratio_high
    apart = compare_rounds(a, {turn + 100: samples for turn, samples in b.items()})
    assert apart.pairing is Pairing.UNPAIRED_ROUNDS
    assert apart.verdict is Difference.NONE_SHOWN


def test_few_rounds_show_nothing_however_many_samples():
    rng = np.random.default_rng(6)
    a = _rounds(rng, range(3), np.zeros(3))
    b = _rounds(rng, range(3), np.zeros(3), level=1.2)
    found = compare_rounds(a, b)
    assert found.verdict is Difference.NONE_SHOWN
    assert found.p_value is None
    assert found.ratio == pytest.approx(1.2, rel=0.02)
    assert found.note == "3 rounds: at least 6 a side are needed; raise --time-budget"
    assert compare_rounds({1: a[0]}, {1: b[0]}).note.startswith("1 round: ")
    with pytest.raises(ValueError, match="b has no samples"):
        compare_rounds(a, {})


def test_equal_dispatches_are_rarely_called_different_by_rounds():
    """600 A/A comparisons at a nominal 2 %, with drift and with rounds that differ by more than
    their samples do; samples taken as independent call most of them different."""
    rng = np.random.default_rng(8)
    by_rounds = by_samples = 0
    for _ in range(600):
        drift = rng.normal(0, 0.03, 12)
        a, b = _rounds(rng, range(12), drift, own=0.02), _rounds(rng, range(12), drift, own=0.02)
        by_rounds += compare_rounds(a, b, confidence=0.98).verdict is not Difference.NONE_SHOWN
    for _ in range(40):
        drift = rng.normal(0, 0.03, 12)
        a, b = _rounds(rng, range(12), drift, own=0.02), _rounds(rng, range(12), drift, own=0.02)
        joined = [np.concatenate(list(side.values())) for side in (a, b)]
        by_samples += compare_medians(*joined, confidence=0.98).verdict is not Difference.NONE_SHOWN
    assert by_rounds <= 24, "4 %: over four standard errors above the nominal level"
    assert by_samples >= 10


def test_a_difference_must_exceed_what_is_relevant():
    rng = np.random.default_rng(9)
    drift = np.zeros(12)
    a, b = _rounds(rng, range(12), drift, own=1e-4), _rounds(
        rng, range(12), drift, level=1.015, own=1e-4
    )  # fmt: skip
    assert compare_rounds(a, b).verdict is Difference.SLOWER
    small = compare_rounds(a, b, relevant=0.02)
    assert small.verdict is Difference.NONE_SHOWN
    assert small.note == "differs, but that it does by more than 0.02 is not shown"
    assert compare_rounds(a, b, relevant=0.01).verdict is Difference.SLOWER
    assert compare_rounds(b, a, relevant=0.01).verdict is Difference.FASTER
    together = [np.concatenate(list(side.values())) for side in (a, b)]
    assert compare_medians(*together, relevant=0.02).verdict is Difference.NONE_SHOWN
    assert compare_medians(*together, relevant=0.01).verdict is Difference.SLOWER


def test_a_family_is_judged_together():
    rng = np.random.default_rng(10)
    drift = np.zeros(12)
    clear = compare_rounds(
        _rounds(rng, range(12), drift), _rounds(rng, range(12), drift, level=1.5)
    )
    few = compare_medians([1.0], [2.0])
    weak = dataclasses.replace(clear, p_value=0.03, ratio=1.02)
    judged = judge_family([weak, few, clear, weak])
    assert judged[1] == few, "what cannot be tested does not count"
    assert judged[2].verdict is Difference.SLOWER
    assert judged[2].adjusted_p_value == pytest.approx(3 * clear.p_value)
    assert judged[0].verdict is judged[3].verdict is Difference.NONE_SHOWN
    assert judged[0].note == "shown alone, but not as one of 3 comparisons"
    assert {item.family for item in (judged[0], judged[2])} == {3}
    assert judge_family([]) == []
