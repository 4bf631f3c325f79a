from __future__ import annotations

import math

import numpy as np

from gemmetry.numerics.references import GELU_LIPSCHITZ, erf, gelu


def test_erf_is_accurate_to_float64():
    ends = [0.0, -0.0, 1e-300, 5.9999, 6.0, 40.0, np.inf, -np.inf, 1.0]
    points = np.concatenate([np.linspace(-7, 7, 20_001), ends]).reshape(-1, 10)
    expected = np.vectorize(math.erf)(points)
    assert np.abs(erf(points) - expected).max() < 4e-16
    assert np.isnan(erf(np.array([np.nan]))[0])


def test_gelu_matches_its_definition():
    points = np.linspace(-10, 10, 4001)
    expected = [0.5 * x * math.erfc(-x / math.sqrt(2)) for x in points]
    assert np.abs(gelu(points) - expected).max() < 2e-15
    assert gelu(np.array([-np.inf, np.inf])).tolist() == [0.0, np.inf]


def test_lipschitz_constant_is_tight():
    points = np.linspace(-8, 8, 200_001)
    slopes = np.abs(np.diff(gelu(points)) / np.diff(points))
    assert slopes.max() < GELU_LIPSCHITZ < slopes.max() * 1.002
