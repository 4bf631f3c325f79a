"""Theil and Sen's slope."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gemmetry.statistics.change_points import MOST_POINTS, theil_sen


def slopes_of(x, y):
    pairs = itertools.combinations(range(len(x)), 2)
    return sorted((y[b] - y[a]) / (x[b] - x[a]) for a, b in pairs)


def test_the_estimate_is_the_median_of_all_pairs():
    x, y = np.random.default_rng(2).random((2, 12))
    assert theil_sen(x, y).estimate == pytest.approx(np.median(slopes_of(x, y)))
    line = 3.0 * np.arange(10)
    line[4] = 1000.0
    outlier = theil_sen(range(10), line)
    assert (outlier.estimate, outlier.points) == (3.0, 10)


def test_the_interval_lies_between_slopes_by_kendalls_test():
    """For 7 points without ties the variance of Kendall's S is 7 * 6 * 19 / 18 = 44.3."""
    x, y = [1, 2, 3, 4, 10, 12, 18], [9, 15, 19, 20, 45, 55, 78]
    found, slopes = theil_sen(x, y), slopes_of(x, y)
    assert found.estimate == slopes[10] == 4.0
    # (21 - 1.96 * 6.66) / 2 = 3.98: three slopes are left out at each end.
    assert found.interval == (slopes[3], slopes[17])


def test_intervals_of_ties_cover_the_true_slope():
    x = np.repeat([0.0, 1.0], [6, 18])
    noise = 0.05 * np.random.default_rng(5).standard_normal((200, 24))
    intervals = [theil_sen(x, 0.3 * x + one).interval for one in noise]
    assert sum(low <= 0.3 <= high for low, high in intervals) >= 180  # of 190 expected


def test_few_and_many_points():
    found = theil_sen([0.0, 1.0, 2.0], [0.0, 2.0, 4.0])
    assert (found.estimate, found.interval) == (2.0, None)
    x = np.linspace(0, 1, 5 * MOST_POINTS)
    found = theil_sen(x, 2 * x)
    assert (found.estimate, found.points) == (pytest.approx(2.0), MOST_POINTS)
    assert theil_sen([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is theil_sen([], []) is None
    with pytest.raises(ValueError, match="2 values of x, but 1 of y"):
        theil_sen([1.0, 2.0], [1.0])
