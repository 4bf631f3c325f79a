from __future__ import annotations

import math

import numpy as np

from gemmetry.numerics.references import GELU_LIPSCHITZ, erf, gelu


def test_erf_is_accurate_to_float64():
    points = np.concatenate([np.linspace(-7, 7, 20_001), [0.0, -0.0, 1e-300, 5.9999, 6.0, 40.0]])
    expected = np.array([math.erf(point) for point in points])
    assert np.abs(erf(points) - expected).max() < 4e-16


def test_erf_of_special_values_and_shapes():
    values = np.array([[np.inf, -np.inf], [np.nan, 0.0]])
    result = erf(values)
    assert result.shape == (2, 2)
    assert result[0].tolist() == [1.0, -1.0]
    assert np.isnan(result[1, 0])
    assert result[1, 1] == 0.0


def test_gelu_matches_its_definition():
    points = np.linspace(-10, 10, 4001)
    expected = [0.5 * x * math.erfc(-x / math.sqrt(2)) for x in points]
    assert np.abs(gelu(points) - expected).max() < 2e-15
    assert gelu(np.array([-np.inf, np.inf])).tolist() == [0.0, np.inf]


def test_lipschitz_constant_is_tight():
    points = np.linspace(-8, 8, 200_001)
    slopes = np.abs(np.diff(gelu(points)) / np.diff(points))
    assert slopes.max() < GELU_LIPSCHITZ < slopes.max() * 1.002
