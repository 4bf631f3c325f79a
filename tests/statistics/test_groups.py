"""Groups of any sizes, also in strata, compared by ranks."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.statistics.comparison import MOST_OF_A_GROUP, Difference, compare_groups, verdict_of


def test_three_against_twenty_show_a_planted_slowdown():
    noise = np.random.default_rng(1)
    alone = 100 * (1 + 0.005 * noise.standard_normal(3))
    together = 130 * (1 + 0.005 * noise.standard_normal(20))
    found = compare_groups([(alone, together)], relevant=0.01)
    assert found.verdict is Difference.SLOWER
    assert found.ratio == np.median(together) / np.median(alone)
    assert found.ratio_low < 1.3 < found.ratio_high
    assert found.effect_size == -1
    assert found.observations == 3


def test_too_few_are_undecided_without_an_interval():
    found = compare_groups([([100.0] * 3, [150.0] * 3)])
    assert (found.verdict, found.interval, found.ratio) == (Difference.UNDECIDED, None, 1.5)
    strata = [([100.0 + i for i in range(3)], [150.0 + i for i in range(20)])]
    assert compare_groups(strata).interval is not None
    assert compare_groups(strata, family=200).interval is None


def test_the_interval_contains_the_ratio_and_gives_the_verdict():
    # Two modes: the medians differ by a factor of 2, the shift between the groups does not.
    alone = [100.0] * 11 + [200.0] * 10
    together = [100.0] * 10 + [200.0] * 11
    found = compare_groups([(alone, together)], relevant=0.01)
    assert found.ratio == 2.0
    assert found.interval is not None
    assert found.ratio_low <= found.ratio <= found.ratio_high
    assert found.verdict is verdict_of(found.interval, 0.01) is Difference.UNDECIDED


def test_equal_groups_rarely_differ():
    noise = np.random.default_rng(7)
    different = 0
    for _ in range(300):
        values = 100 * np.exp(0.03 * noise.standard_normal(24))
        found = compare_groups([(values[:4], values[4:])])
        different += found.verdict in (Difference.SLOWER, Difference.FASTER)
    # 95 % intervals are wrong in 15 of 300 cases; more than 30 have a probability below 1e-3.
    assert different <= 30


def test_levels_of_strata_are_no_difference():
    """Each stratum has its own level, and another mix of both groups."""
    noise = np.random.default_rng(9)
    different = 0
    for _ in range(300):
        strata = []
        for level, few, many in ((100, 3, 20), (120, 12, 12), (140, 20, 3)):
            values = level * np.exp(0.02 * noise.standard_normal(few + many))
            strata.append((values[:few], values[few:]))
        found = compare_groups(strata)
        assert found.interval is not None
        different += found.verdict in (Difference.SLOWER, Difference.FASTER)
    assert different <= 30  # 15 are expected


def test_strata_together_show_what_none_shows_alone():
    noise = np.random.default_rng(2)
    strata = [
        (level * np.exp(0.01 * noise.standard_normal(2)),
         1.2 * level * np.exp(0.01 * noise.standard_normal(3)))
        for level in (100, 150, 200, 250)
    ]  # fmt: skip
    assert all(compare_groups([one]).interval is None for one in strata)
    found = compare_groups(strata, relevant=0.01)
    assert found.verdict is Difference.SLOWER
    assert found.ratio == pytest.approx(1.2, rel=0.02)
    assert found.observations == 8


def test_large_groups_are_thinned_without_a_shift():
    noise = np.random.default_rng(3)
    values = 100 * np.exp(0.05 * noise.standard_normal(5 * MOST_OF_A_GROUP))
    found = compare_groups([(values, 1.1 * values)])
    assert found.verdict is Difference.SLOWER
    assert found.interval == pytest.approx((1.1, 1.1), rel=0.02)


@pytest.mark.parametrize(
    ("strata", "message"),
    [([([1.0, 0.0], [1.0])], "positive"), ([([-1.0], [1.0])], "positive"),
     ([([], [1.0])], "both sides"), ([], "both sides")],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(strata, message):
    with pytest.raises(ValueError, match=message):
        compare_groups(strata)
