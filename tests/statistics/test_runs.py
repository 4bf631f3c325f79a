"""Few runs of each of many settings."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gemmetry.statistics.comparison import Difference, Pairing
from gemmetry.statistics.runs import RunSpread, compare_runs, run_spread, student_quantile


@pytest.mark.parametrize(
    ("share", "degrees", "value"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 6, 2.4469), (0.995, 3, 5.8409),
     (0.9995, 10, 4.5869), (0.975, 120, 1.9799), (0.5, 4, 0.0)],
)  # fmt: skip
def test_quantiles_of_student(share, degrees, value):
    """Abramowitz & Stegun, table 26.10."""
    assert student_quantile(share, degrees) == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize(("share", "degrees"), [(0.4, 3), (1.0, 3), (0.9, 0)])
def test_quantiles_that_do_not_exist(share, degrees):
    with pytest.raises(ValueError, match="no quantile"):
        student_quantile(share, degrees)


def test_the_spread_is_pooled_over_settings():
    groups = [[math.exp(1), math.exp(1.2)], [math.exp(3), math.exp(3.4)], [math.exp(9)]]
    found = run_spread(groups)
    assert found.degrees == 2
    assert found.deviation == pytest.approx(math.sqrt((0.02 + 0.08) / 2))
    assert run_spread([[1.0], [2.0]]) == RunSpread(0.0, 0)


def test_without_a_repeat_nothing_is_decided():
    found = compare_runs([100.0], [200.0], RunSpread(0.0, 0))
    assert (found.ratio, found.interval, found.verdict) == (
        pytest.approx(2.0), None, Difference.UNDECIDED
    )  # fmt: skip
    assert "repeat the runs" in found.note


def test_two_runs_of_each_of_six_settings_show_a_difference():
    noise = np.random.default_rng(4)
    means = (100, 105, 110, 115, 120, 125)
    groups = [list(mean * np.exp(0.003 * noise.standard_normal(2))) for mean in means]
    found = compare_runs(groups[0], groups[1], run_spread(groups), relevant=0.01, family=5)
    assert (found.verdict, found.pairing) == (Difference.SLOWER, Pairing.RUNS)
    assert found.ratio == pytest.approx(1.05, rel=0.01)


def test_halves_of_the_same_runs_rarely_differ():
    noise = np.random.default_rng(8)
    different = 0
    for _ in range(300):
        runs = 100 * np.exp(0.02 * noise.standard_normal(4))
        groups = [list(runs[:2]), list(runs[2:])]
        found = compare_runs(*groups, run_spread(groups))
        different += found.verdict in (Difference.SLOWER, Difference.FASTER)
    assert different <= 30  # 15 are expected


def test_a_setting_without_runs_is_refused():
    with pytest.raises(ValueError, match="without runs"):
        compare_runs([], [1.0], RunSpread(0.1, 3))
