from __future__ import annotations

import pytest

from gemmetry.statistics.intervals import median, quantile


def test_type_seven_interpolates_between_neighbours():
    samples = [40.0, 10.0, 30.0, 20.0]
    assert quantile(samples, 0.0) == 10.0
    assert quantile(samples, 1.0) == 40.0
    assert quantile(samples, 0.25) == 17.5
    assert quantile(samples, 0.95) == pytest.approx(38.5)


def test_median_of_odd_and_even_counts():
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert median([5.0]) == 5.0


def test_samples_without_a_quantile_are_refused():
    with pytest.raises(ValueError, match="no samples"):
        median([])
    with pytest.raises(ValueError, match="share"):
        quantile([1.0], 1.5)
