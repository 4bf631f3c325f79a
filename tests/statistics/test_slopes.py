"""Theil and Sen's slope."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gemmetry.statistics.change_points import MOST_POINTS, theil_sen


def test_a_line_with_an_outlier():
    x = list(range(10))
    y = [3.0 * one for one in x]
    y[4] = 1000.0
    found = theil_sen(x, y)
    assert found.estimate == 3.0
    assert found.points == 10


def test_the_estimate_is_the_median_of_all_pairs():
    noise = np.random.default_rng(2)
    x, y = noise.random(12), noise.random(12)
    pairs = itertools.combinations(range(12), 2)
    slopes = [(y[b] - y[a]) / (x[b] - x[a]) for a, b in pairs]
    found = theil_sen(x, y)
    assert found.estimate == pytest.approx(np.median(slopes))


def test_the_interval_lies_between_slopes_by_kendalls_test():
    """For 7 points without ties the variance of Kendall's S is 7 * 6 * 19 / 18 = 44.3."""
    x, y = [1, 2, 3, 4, 10, 12, 18], [9, 15, 19, 20, 45, 55, 78]
    pairs = itertools.combinations(range(7), 2)
    slopes = sorted((y[b] - y[a]) / (x[b] - x[a]) for a, b in pairs)
    found = theil_sen(x, y)
    assert found.estimate == slopes[10] == 4.0
    # (21 - 1.96 * 6.66) / 2 = 3.98: three slopes are left out at each end.
    assert found.interval == (slopes[3], slopes[17])


def test_intervals_of_ties_cover_the_true_slope():
    noise = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        x = np.repeat([0.0, 1.0], [6, 18])
        y = 0.3 * x + 0.05 * noise.standard_normal(24)
        found = theil_sen(x, y)
        covered += found.interval[0] <= 0.3 <= found.interval[1]
    assert covered >= 180  # of 190 expected


def test_few_and_many_points():
    found = theil_sen([0.0, 1.0, 2.0], [0.0, 2.0, 4.0])
    assert (found.estimate, found.interval) == (2.0, None)
    x = np.linspace(0, 1, 5 * MOST_POINTS)
    found = theil_sen(x, 2 * x)
    assert found.estimate == pytest.approx(2.0)
    assert found.points == MOST_POINTS
    assert theil_sen([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert theil_sen([], []) is None
    with pytest.raises(ValueError, match="2 values of x, but 1 of y"):
        theil_sen([1.0, 2.0], [1.0])
