from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.statistics.comparison import Difference, cliffs_delta, compare_medians

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
