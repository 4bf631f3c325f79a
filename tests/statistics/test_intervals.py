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


def exact_coverage(count, rank):
    below = sum(math.comb(count, i) for i in range(rank))
    return 1 - 2 * below / 2**count


@pytest.mark.parametrize(
    ("count", "rank"), [(6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (30, 10), (50, 18), (100, 40)]
)
def test_ranks_are_the_tabulated_ones(count, rank):
    """Conover 1999, table A3 read for p = 1/2, and by direct summation."""
    low, high = median_interval(list(range(1, count + 1)))
    assert (low, high) == (rank, count + 1 - rank)
    assert exact_coverage(count, rank) >= 0.95 > exact_coverage(count, rank + 1)


@settings(max_examples=200)
@given(SAMPLES)
def test_interval_holds_the_median_and_ignores_order(samples):
    low, high = median_interval(samples)
    assert min(samples) <= low <= np.median(samples) <= high <= max(samples)
    assert median_interval(samples[::-1]) == (low, high)


@settings(max_examples=100)
@given(SAMPLES)
def test_more_confidence_is_never_narrower(samples):
    intervals = [median_interval(samples, c) for c in (0.5, 0.9, 0.95, 0.99, 0.999)]
    lows, highs = [i[0] for i in intervals], [i[1] for i in intervals]
    assert lows == sorted(lows, reverse=True)
    assert highs == sorted(highs)


def test_few_samples_have_no_interval_and_equal_ones_no_width():
    assert minimum_samples(0.95) == 6
    assert minimum_samples(0.5) == 2
    for count in range(1, 6):
        assert median_interval([3.5] * count) is None
        assert median_interval(range(count)) is None
    for count in (6, 7, 50):
        assert median_interval([3.5] * count) == (3.5, 3.5)
    assert median_interval(range(6)) == (0, 5)
    assert median_interval(range(6), 0.98) is None


@pytest.mark.parametrize("count", [999, 1000, 1001, 2000])
def test_large_counts_are_exact_too(count):
    low, high = median_interval(np.arange(1, count + 1))
    below = [sum(math.comb(count, i) for i in range(j)) for j in (int(low), int(low) + 1)]
    assert below[0] * 40 <= 2**count < below[1] * 40
    assert low + high == count + 1


def test_normal_approximation_continues_the_exact_ranks():
    exact, approximate = (median_interval(np.arange(1, n + 1))[0] for n in (2000, 2001))
    assert abs(approximate - exact) <= 1


def test_coverage_is_what_it_claims():
    """2000 intervals: three standard errors of a share of 0.95 are 0.015. Of ranks alone, so that
    one distribution stands for all."""
    data = np.random.default_rng(7).lognormal(size=(2000, 25))
    covered = sum(low <= 1.0 <= high for low, high in map(median_interval, data))
    assert exact_coverage(25, 8) == pytest.approx(0.9567, abs=1e-3)
    assert abs(covered / 2000 - 0.9567) < 0.015


def test_no_samples_and_impossible_confidence_are_refused():
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])
    with pytest.raises(ValueError, match="confidence"):
        median_interval([1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="confidence"):
        minimum_samples(0.0)


@pytest.mark.parametrize(("each", "spread"), [(1, 0.0), (25, 0.0), (25, 0.5), (25, 2.0)])
def test_rounds_cover_the_median_however_alike_their_samples_are(each: int, spread: float) -> None:
    """2·√(0.05·0.95/600) = 1.8 %; samples taken as independent cover 40 % at the last one."""
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(600):
        rounds = [rng.normal(0, spread) + rng.normal(0, 1, each) for _ in range(12)]
        (low, high), effective = rounds_interval(rounds)
        covered += low <= 0 <= high
        assert 6 <= effective <= 12 * each
    assert covered / 600 >= 0.932


@pytest.mark.parametrize("each", [1, 20])
def test_rounds_that_resemble_their_neighbours_count_less(each: int, monkeypatch) -> None:
    """As a clock that swings makes them; taken as independent, they cover less than 84 %."""

    def coverage() -> float:
        rng, covered = np.random.default_rng(5), 0
        for _ in range(600):
            level = [rng.normal()]
            while len(level) < 36:
                level.append(0.55 * level[-1] + math.sqrt(1 - 0.55**2) * rng.normal())
            rounds = [one + rng.normal(0, 0.1, each) for one in level]
            (low, high), effective = rounds_interval(rounds)
            covered += low <= 0 <= high
            assert 6 <= effective <= 36 * each
        return covered / 600

    assert coverage() >= 0.9
    monkeypatch.setattr("gemmetry.statistics.intervals.MOST_DEPENDENT", 0.0)
    assert coverage() < 0.84


def test_rounds_count_by_what_they_are_worth() -> None:
    samples = [float(i * 7 % 20) for i in range(20)]
    assert rounds_interval([samples]) == (median_interval(samples), 20.0)
    assert rounds_interval([[value] for value in samples]) == (median_interval(samples), 20.0)
    assert rounds_interval([[7.0]]) == (None, 1.0)
    # A drift is worth few rounds.
    drifting = [[float(place)] for place in range(20)]
    assert rounds_interval(drifting) == ((2.0, 17.0), 6)
    # However many samples each has, a few rounds that differ are worth three.
    rounds = [[1.0, 1.1, 1.2] * 9, [5.0, 5.1, 5.2] * 9, [9.0, 9.1, 9.2] * 9]
    assert rounds_interval(rounds) == (None, 3.0)
    # As a coarse clock gives them.
    assert rounds_interval([[3.0] * 10] * 4) == ((3.0, 3.0), 40.0)
    with pytest.raises(ValueError, match="no samples"):
        rounds_interval([])


def test_quantiles_interpolate_between_neighbours():
    """Type seven."""
    samples = [40.0, 10.0, 30.0, 20.0]
    found = [quantile(samples, share) for share in (0.0, 0.25, 0.95, 1.0)]
    assert found == pytest.approx([10.0, 17.5, 38.5, 40.0])
    for numbers, due in (([3.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 3.0], 2.5), ([5.0], 5.0)):
        assert median(numbers) == due
    with pytest.raises(ValueError, match="no samples"):
        median([])
    with pytest.raises(ValueError, match="share"):
        quantile([1.0], 1.5)
