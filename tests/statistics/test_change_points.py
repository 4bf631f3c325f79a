from __future__ import annotations

import numpy as np
import pytest

from gemmetry.statistics.change_points import (
    FALSE_ALARMS,
    LEAST_SEGMENT,
    MOST_VALUES,
    _largest,
    _ranks,
    find_changes,
    null_distribution,
    variance_inflation,
)


def places(series):
    """The places of the changes that are found in each of `series`."""
    return [[change.index for change in one] for one in find_changes(series).changes]


def steps(*levels, size=30, noise=0.1, seed=0):
    """A series with `size` values at each level."""
    random = np.random.default_rng(seed)
    return np.concatenate([level + noise * random.normal(size=size) for level in levels])


def test_changes_are_found_where_they_are():
    series = [steps(0, 1), steps(0, 0), steps(0, 1, 0), steps(0, 1, 3, 1), steps(0, -1)]
    due = [[30], [], [30, 60], [30, 60, 90], [30]]
    assert places(series) == due
    assert places([1e9 + 1e3 * one for one in series]) == due, "units do not matter"
    series[1][30] += 1e6
    assert places(series[1:2]) == [[]], "a single slow run is no change"
    assert find_changes(series) == find_changes(series)
    assert places([[], [1.0], [1.0, 2.0, 3.0], [5.0] * 50]) == [[], [], [], []]
    assert places([]) == []


def test_a_change_is_found_within_a_few_runs():
    """One series of a hundred, whose sixty values end with a few others."""
    series = [steps(0, 0, seed=seed) for seed in range(100)]
    plain = series[17].copy()
    for last, due in (
        ([1, 1, 1, 1], [56]),
        ([0, 0, 1, 1], [58]),
        ([0, 0, 1, 0], []),  # the level returned
        ([0, 0, 0.3, 0.3], []),  # two small ones decide nothing among a hundred
    ):
        series[17] = plain + np.pad(last, (56, 0))
        found = places(series)
        assert found[17] == due
        assert sum(map(bool, found)) <= 3


def test_the_statistic_is_the_energy_distance_of_the_ranks():
    """The definition of Székely and Rizzo, on the ranks divided by their number, over all splits
    and ends."""
    ranks = np.random.default_rng(4).permutation(40)
    values = ranks / 40

    def distance(left, right):
        return np.abs(np.subtract.outer(left, right)).mean()

    def statistic(split, end):
        x, y = values[:split], values[split:end]
        energy = 2 * distance(x, y) - distance(x, x) - distance(y, y)
        return x.size * y.size / (x.size + y.size) * energy / 2

    best, split, end = max(
        (statistic(split, end), split, end)
        for split in range(LEAST_SEGMENT, 41)
        for end in range(split + LEAST_SEGMENT, 41)
    )
    assert _largest(ranks) == (pytest.approx(best, rel=1e-9), split, end)


def test_more_series_need_more_evidence():
    others = [steps(0, 0, size=7, seed=seed) for seed in range(1, 400)]
    changed = steps(0, 0.3, size=7)
    assert (places([changed]), places([changed, *others])[0]) == ([[6]], [])
    alone = find_changes([steps(0, 1)])
    assert 0 < alone.error <= FALSE_ALARMS
    many = find_changes([steps(0, 1), *(steps(0, 0, seed=seed) for seed in range(1, 50))])
    assert 0 < many.error < alone.error / 10


def test_only_the_last_values_are_searched():
    noise = 0.1 * np.random.default_rng(1).normal(size=MOST_VALUES)
    assert places([np.concatenate([steps(0, 5, size=20), 5.0 + noise])]) == [[]]


@pytest.mark.parametrize(("noise", "size"), [
    ("gaussian", 120), ("heavy_tails", 30), ("correlated_0.6", 30), ("correlated_0.6", 120),
])  # fmt: skip
def test_series_without_a_change_rarely_show_one(histories, noise, size):
    """Each of 300 series is judged alone, so that 5 % may show a change: 15, and at most 36 where
    neighbours are correlated, which short series cannot show exactly."""
    name, _, correlation = noise.partition("_0")
    kind = histories.correlated(float(correlation)) if correlation else getattr(histories, name)
    series = kind(np.random.default_rng(11), (300, size))
    assert sum(places([one]) != [[]] for one in series) <= 36
    assert sum(map(bool, places(list(series)))) <= 3


def test_the_null_distribution_is_calibrated():
    null, random = null_distribution(50), np.random.default_rng(77)
    p_values = [null.p_value(_largest(random.permutation(50))[0]) for _ in range(1000)]
    assert np.mean(np.array(p_values) <= 0.05) == pytest.approx(0.05, abs=0.025)
    assert np.mean(np.array(p_values) <= 0.5) == pytest.approx(0.5, abs=0.06)
    assert null.p_value(100.0) < 1e-9
    assert null.p_value(0.0) == 1.0


def test_correlation_is_seen_and_a_change_is_not_taken_for_it(histories):
    random = np.random.default_rng(8)
    for series, split, least, most in (
        (random.normal(size=300), 150, 1, 1.3),
        (histories.correlated(0.6)(random, (300,)), 150, 2.5, 6),
        (steps(0, 1, size=150), 150, 1, 1.3),
        (steps(0, 1, 2, size=100), 100, 1, 1.3),
    ):
        assert least <= variance_inflation(_ranks(series), split) < most


def test_the_simulated_series_of_matteson_and_james():
    """Simulations of univariate changes have 150 normal values, whose middle third has another
    mean. Both places are found within five values in nine of ten series."""
    right = 0
    for seed in range(40):
        series = np.random.default_rng(seed).normal(size=150)
        series[50:100] += 2
        (found,) = find_changes([series]).changes
        assert all(one.p_value <= FALSE_ALARMS for one in found)
        gaps = [abs(one.index - place) for one, place in zip(found, (50, 100), strict=False)]
        right += len(found) == 2 and max(gaps) <= 5
    assert right >= 36
