from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.statistics.intervals import (
    median,
    median_interval,
    minimum_samples,
    quantile,
    rounds_interval,
)

SAMPLES = st.lists(st.floats(1, 1e9), min_size=11, max_size=60)


def chance_below(count, rank):
    """Probability that fewer than `rank` of `count` values are below the median."""
    return sum(math.comb(count, i) for i in range(rank)) / 2**count


@pytest.mark.parametrize(("count", "rank"), [
    (6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (30, 10), (50, 18), (100, 40), (999, None),
    (1000, None), (1001, None), (2000, None),
])  # fmt: skip
def test_ranks_are_the_tabulated_ones(count, rank):
    """Conover 1999, table A3 read for p = 1/2, and by direct summation."""
    low, high = median_interval(np.arange(1, count + 1))
    assert (low, high) == (rank or low, count + 1 - low)
    assert chance_below(count, int(low)) <= 0.025 < chance_below(count, int(low) + 1)


@settings(max_examples=200)
@given(SAMPLES)
def test_interval_holds_the_median_ignores_order_and_grows_with_confidence(samples):
    intervals = [median_interval(samples, c) for c in (0.5, 0.9, 0.95, 0.99, 0.999)]
    low, high = intervals[2]
    assert min(samples) <= low <= np.median(samples) <= high <= max(samples)
    assert median_interval(samples[::-1]) == (low, high)
    lows, highs = zip(*intervals, strict=True)
    assert list(lows) == sorted(lows, reverse=True)
    assert list(highs) == sorted(highs)


def test_few_samples_have_no_interval_and_equal_ones_no_width():
    assert (minimum_samples(0.95), minimum_samples(0.5)) == (6, 2)
    for count in (1, 2, 3, 4, 5, 6, 7, 50):
        assert median_interval([3.5] * count) == ((3.5, 3.5) if count > 5 else None)
    assert median_interval(range(5)) is median_interval(range(6), 0.98) is None
    assert median_interval(range(6)) == (0, 5)


def test_normal_approximation_continues_the_exact_ranks():
    exact, approximate = (median_interval(np.arange(1, n + 1))[0] for n in (2000, 2001))
    assert abs(approximate - exact) <= 1


def test_coverage_is_what_it_claims():
    """2000 intervals: three standard errors of a share of 0.95 are 0.015. Of ranks alone, so that
    one distribution stands for all."""
    data = np.random.default_rng(7).lognormal(size=(2000, 25))
    covered = np.mean([low <= 1.0 <= high for low, high in map(median_interval, data)])
    assert covered == pytest.approx(1 - 2 * chance_below(25, 8), abs=0.015)


@pytest.mark.parametrize(("function", "arguments", "message"), [
    (median_interval, ([],), "no samples"), (median, ([],), "no samples"),
    (rounds_interval, ([],), "no samples"), (median_interval, ([1.0, 2.0], 1.0), "confidence"),
    (minimum_samples, (0.0,), "confidence"), (quantile, ([1.0], 1.5), "share"),
])  # fmt: skip
def test_what_has_no_answer_is_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def coverage(make_rounds) -> float:
    """Share of 600 intervals that contain the median, 0."""
    covered = 0
    for _ in range(600):
        rounds = make_rounds()
        (low, high), effective = rounds_interval(rounds)
        covered += low <= 0 <= high
        assert 6 <= effective <= sum(map(len, rounds))
    return covered / 600


@pytest.mark.parametrize(("each", "spread"), [(1, 0.0), (25, 0.0), (25, 0.5), (25, 2.0)])
def test_rounds_cover_the_median_however_alike_their_samples_are(each, spread):
    """2·√(0.05·0.95/600) = 1.8 %; samples taken as independent cover 40 % at the last one."""
    rng = np.random.default_rng(11)
    found = coverage(lambda: rng.normal(0, spread, (12, 1)) + rng.normal(0, 1, (12, each)))
    assert found >= 0.932


@pytest.mark.parametrize("each", [1, 20])
def test_rounds_that_resemble_their_neighbours_count_less(histories, monkeypatch, each):
    """As a clock that swings makes them; taken as independent, they cover less than 84 %."""

    def swinging():
        rng = np.random.default_rng(5)
        swings = histories.correlated(0.55)
        return coverage(lambda: swings(rng, (36,))[:, None] + rng.normal(0, 0.1, (36, each)))

    assert swinging() >= 0.9
    monkeypatch.setattr("gemmetry.statistics.intervals.MOST_DEPENDENT", 0.0)
    assert swinging() < 0.84


def test_rounds_count_by_what_they_are_worth() -> None:
    samples = [float(i * 7 % 20) for i in range(20)]
    rounds = [samples], [[value] for value in samples]
    assert [rounds_interval(one) for one in rounds] == [(median_interval(samples), 20.0)] * 2
    assert rounds_interval([[7.0]]) == (None, 1.0)
    # A drift is worth few rounds.
    assert rounds_interval([[float(place)] for place in range(20)]) == ((2.0, 17.0), 6)
    # However many samples each has, a few rounds that differ are worth three.
    apart = [[level + 0.0, level + 0.1, level + 0.2] * 9 for level in (1, 5, 9)]
    assert rounds_interval(apart) == (None, 3.0)
    # As a coarse clock gives them.
    assert rounds_interval([[3.0] * 10] * 4) == ((3.0, 3.0), 40.0)


def test_quantiles_interpolate_between_neighbours():
    """Type seven."""
    samples = [40.0, 10.0, 30.0, 20.0]
    found = [quantile(samples, share) for share in (0.0, 0.25, 0.95, 1.0)]
    assert found == pytest.approx([10.0, 17.5, 38.5, 40.0])
    for numbers, due in (([3.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 3.0], 2.5), ([5.0], 5.0)):
        assert median(numbers) == due
