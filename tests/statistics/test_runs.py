"""Few runs of each of many settings."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmetry.statistics.comparison import (
    Difference,
    Pairing,
    RunSpread,
    compare_pairs,
    compare_runs,
    run_spread,
)
from gemmetry.statistics.runs import (
    NoiseTail,
    RunNoise,
    _digamma,
    _trigamma,
    latest_steps,
    run_noise,
    student_of_score,
    student_quantile,
)


@pytest.mark.parametrize(("share", "degrees", "value"), [
    (0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 6, 2.4469), (0.995, 3, 5.8409),
    (0.9995, 10, 4.5869), (0.975, 120, 1.9799), (0.5, 4, 0.0),
])  # fmt: skip
def test_quantiles_of_student(share, degrees, value):
    """Abramowitz & Stegun, table 26.10."""
    assert student_quantile(share, degrees) == pytest.approx(value, abs=1e-4)


def test_the_spread_is_pooled_over_settings():
    groups = [[math.exp(1), math.exp(1.2)], [math.exp(3), math.exp(3.4)], [math.exp(9)]]
    found = run_spread(groups)
    assert found.degrees == 2
    assert found.deviation == pytest.approx(math.sqrt((0.02 + 0.08) / 2))
    assert run_spread([[1.0], [2.0]]) == RunSpread(0.0, 0)


@pytest.mark.parametrize(("groups", "ratio", "note"), [
    ([[100.0], [200.0]], 2.0, "repeat the runs"),
    ([[100.0, 160.0], [110.0, 150.0]], None, "repeat them more often"),
])  # fmt: skip
def test_without_a_repeat_or_with_too_much_spread_nothing_is_decided(groups, ratio, note):
    found = compare_runs(*groups, run_spread(groups), relevant=0.01)
    assert found.verdict is Difference.UNDECIDED
    assert note in found.note
    assert (found.interval is None) is (ratio is not None)
    assert ratio is None or found.ratio == pytest.approx(ratio)


def test_one_pair_decides_nothing():
    found = compare_pairs([100], [130])
    assert "1 pair: at least 2 are needed" in found.note
    assert (found.interval, found.verdict) == (None, Difference.UNDECIDED)


def test_no_interval_exceeds_floating_point_numbers():
    """One repeat among many comparisons: Student's quantile has no bound."""
    groups, widths = [[100.0, 160.0], [110.0]], []
    for family in (1, 10, 1000, 100_000):
        found = compare_runs(*groups, run_spread(groups), family=family)
        assert found.verdict is Difference.UNDECIDED
        assert "repeat them more often" in found.note
        assert found.interval[0] < found.ratio < found.interval[1]
        widths.append(found.interval[1] / found.ratio)
    assert widths == sorted(widths)
    assert widths[-1] == pytest.approx(1e6)
    assert compare_pairs([1.0, 1.0], [1e-30, 1e30]).interval == pytest.approx((1e-6, 1e6))


@pytest.mark.parametrize(("function", "arguments", "message"), [
    (student_quantile, (0.4, 3), "no quantile"), (student_quantile, (1.0, 3), "no quantile"),
    (student_quantile, (0.9, 0), "no quantile"),
    (compare_runs, ([], [1.0], RunSpread(0.1, 3)), "without runs"),
    (compare_pairs, ([], []), "as many durations"),
    (compare_pairs, ([1.0], [1.0, 2.0]), "as many durations"),
])  # fmt: skip
def test_what_has_no_answer_is_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def test_two_runs_of_each_of_six_settings_show_a_difference():
    means = np.arange(100, 126, 5)[:, np.newaxis]
    groups = (means * np.exp(0.003 * np.random.default_rng(4).standard_normal((6, 2)))).tolist()
    found = compare_runs(groups[0], groups[1], run_spread(groups), relevant=0.01, family=5)
    assert (found.verdict, found.pairing) == (Difference.SLOWER, Pairing.RUNS)
    assert found.ratio == pytest.approx(1.05, rel=0.01)


def test_halves_of_the_same_runs_rarely_differ():
    runs = 100 * np.exp(0.02 * np.random.default_rng(8).standard_normal((300, 2, 2)))
    found = [compare_runs(*halves, run_spread(halves)).verdict for halves in runs.tolist()]
    # 15 are expected.
    assert found.count(Difference.SLOWER) + found.count(Difference.FASTER) <= 30


def test_pairs_of_settings_show_their_mean_change():
    found = compare_pairs([90, 100, 120], [99.1, 110.0, 131.8], relevant=0.01)
    assert found.ratio == pytest.approx(1.1, rel=0.002)
    assert found.interval[0] < 1.1 < found.interval[1]
    assert (found.verdict, found.pairing) == (Difference.SLOWER, Pairing.RUNS)
    assert (found.observations, found.effect_size) == (3, -1)


def test_an_undecided_mean_whose_interval_leaves_out_1_says_why():
    changes = [1.003, 1.081, 1.112, 1.080, 1.159, 0.997]
    found = compare_pairs([1.0] * 6, changes, relevant=0.01)
    assert found.interval[0] > 1
    assert found.verdict is Difference.UNDECIDED
    assert "1 %" in found.note


def test_intervals_of_pairs_cover_the_mean_change():
    """Of 95 % of 400 samples of 4 pairs, up to chance (4 standard deviations)."""
    samples = np.exp(np.random.default_rng(3).normal(0.1, 0.02, (400, 4))).tolist()
    intervals = [compare_pairs([1.0] * 4, one).interval for one in samples]
    assert abs(sum(low < math.exp(0.1) < high for low, high in intervals) - 380) <= 18


@pytest.mark.parametrize("degrees", [2, 3, 5, 10, 60])
@pytest.mark.parametrize("share", [0.9, 0.975, 0.995, 0.9995])
def test_scores_are_never_less_strict_than_student(degrees, share):
    exact = student_quantile(share, degrees)
    found = student_of_score(NormalDist().inv_cdf(share), degrees)
    assert exact * (1 - 1e-3) <= found <= exact * (1 + 0.7 / degrees)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.floats(0.5, 5), st.floats(0.05, 2), st.sampled_from([0.0, 0.1, 0.5]),
    st.floats(1e-12, 0.99),
)  # fmt: skip
def test_the_score_of_a_p_value_has_it(threshold, scale, shape, p_value):
    """Where the tail begins, a p-value may have a jump: the score is then beyond it."""
    for tail in (NoiseTail(), NoiseTail(threshold, scale, shape)):
        score = tail.score(p_value)
        assert tail.p_value(score * (1 + 1e-9) + 1e-12) <= p_value * (1 + 1e-6)
        assert tail.p_value(1.01 * score) <= tail.p_value(score)
        assert tail.p_value(score * (1 - 1e-6) - 1e-9) >= p_value * (1 - 1e-9)


EULER = 0.57721566490153286


@pytest.mark.parametrize(("value", "digamma", "trigamma"), [
    (1, -EULER, math.pi**2 / 6), (0.5, -EULER - 2 * math.log(2), math.pi**2 / 2),
    (3, 1.5 - EULER, math.pi**2 / 6 - 1.25),
])  # fmt: skip
def test_derivatives_of_the_gamma_function(value, digamma, trigamma):
    """Abramowitz & Stegun 6.3.2, 6.3.3, 6.4.2 and 6.4.4."""
    assert _digamma(value) == pytest.approx(digamma, abs=1e-9)
    assert _trigamma(value) == pytest.approx(trigamma, abs=1e-9)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(-3, 3), st.floats(0.01, 100))
def test_steps_do_not_depend_on_units(seed, shift, scale):
    series = np.random.default_rng(seed).normal(size=(6, 9))
    series[0, -1] += 20
    plain, moved, mirrored = (
        latest_steps(list(one), [1.0] * 6) for one in (series, shift + scale * series, -series)
    )
    after = [one.after for one in plain]
    assert after == [one.after for one in moved] == [one.after for one in mirrored]
    assert [one.p_value for one in plain] == pytest.approx([one.p_value for one in moved], rel=1e-6)
    assert plain[0].p_value == min(one.p_value for one in plain)


@pytest.mark.parametrize(
    ("size", "noise"), [(5, "gaussian"), (20, "gaussian"), (20, "heavy_tails")]
)
def test_steps_of_unchanged_series_are_as_rare_as_their_p_values(histories, size, noise):
    """Of 300 families of 12 series with different spreads, at most 5 % have any p-value below
    5 % / 12, up to chance; heavy tails need more earlier runs to be seen."""
    random = np.random.default_rng(5)
    false = 0
    for _ in range(300):
        spreads = np.exp(random.normal(size=(12, 1)) / 2)
        series = spreads * getattr(histories, noise)(random, (12, size))
        found = latest_steps(list(series), [1.0] * 12)
        false += min(one.p_value for one in found) <= 0.05 / 12
    assert false <= 25


def test_a_family_lends_its_spread_to_short_series():
    random = np.random.default_rng(6)
    series = 0.01 * random.normal(size=(50, 5))
    series[7, -1] += 0.1
    together = latest_steps(list(series), [1.0] * 50)[7]
    alone = latest_steps([series[7]], [1.0])[0]
    assert together.after == alone.after == 1
    assert together.p_value < 1e-4 < alone.p_value
    noise = run_noise(list(np.delete(series, 7, axis=0)))
    assert math.sqrt(noise.variance) == pytest.approx(0.01, rel=0.1)
    different = [row * 100 ** (n % 2) for n, row in enumerate(0.01 * random.normal(size=(50, 5)))]
    assert run_noise(different).degrees < 1 < noise.degrees


def test_power_is_how_often_steps_are_found():
    noise, confidence, margin = RunNoise(variance=1e-4, degrees=20.0), 0.999, math.log(1.02)
    runs = 0.01 * np.random.default_rng(7).normal(size=(400, 9))
    found = [noise.interval(one[:8], one[8:] + 0.08, confidence)[0] > margin for one in runs]
    share = noise.power(0.08, 1e-4, 8, 1, p_value=1e-3, margin=margin, confidence=confidence)
    assert 0.1 < share < 0.99
    assert np.mean(found) == pytest.approx(share, abs=0.1)
