"""Groups of any sizes compared by ranks."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.statistics.comparison import Difference, verdict_of
from gemmetry.statistics.groups import MOST_OF_A_GROUP, can_differ, compare_groups


@pytest.mark.parametrize(
    ("first", "second", "able"),
    [(0, 9, False), (1, 38, False), (1, 39, True), (2, 7, False), (2, 8, True), (3, 5, True),
     (3, 4, False), (3, 3, False), (4, 4, True)],
)  # fmt: skip
def test_sizes_that_can_show_a_difference(first, second, able):
    """1 / C(first + second, first) against 2.5 %: 1/40, 1/36, 1/45, 1/56, 1/35, 1/20, 1/70."""
    assert can_differ(first, second) is able
    assert can_differ(second, first) is able


def test_three_against_twenty_show_a_planted_slowdown():
    noise = np.random.default_rng(1)
    alone = 100 * (1 + 0.005 * noise.standard_normal(3))
    together = 130 * (1 + 0.005 * noise.standard_normal(20))
    found = compare_groups(alone, together, relevant=0.01)
    assert found.verdict is Difference.SLOWER
    assert found.ratio == pytest.approx(1.3, rel=0.02)
    assert found.ratio_low < 1.3 < found.ratio_high
    assert found.effect_size == -1
    assert found.observations == 3


def test_too_few_are_undecided_without_an_interval():
    found = compare_groups([100.0] * 3, [150.0] * 3)
    assert (found.verdict, found.interval, found.ratio) == (Difference.UNDECIDED, None, 1.5)


def test_a_family_needs_more():
    sizes = [100.0 + i for i in range(3)], [150.0 + i for i in range(20)]
    assert compare_groups(*sizes).interval is not None
    assert compare_groups(*sizes, family=200).interval is None


def test_the_interval_contains_the_ratio_and_gives_the_verdict():
    # Two modes: the medians differ by a factor of 2, the shift between the groups does not.
    alone = [100.0] * 11 + [200.0] * 10
    together = [100.0] * 10 + [200.0] * 11
    found = compare_groups(alone, together, relevant=0.01)
    assert found.ratio == 2.0
    assert found.interval is not None
    assert found.ratio_low <= found.ratio <= found.ratio_high
    assert found.verdict is verdict_of(found.interval, 0.01) is Difference.UNDECIDED


def test_equal_groups_rarely_differ():
    noise = np.random.default_rng(7)
    different = 0
    for _ in range(300):
        values = 100 * np.exp(0.03 * noise.standard_normal(24))
        found = compare_groups(values[:4], values[4:])
        different += found.verdict in (Difference.SLOWER, Difference.FASTER)
    # 95 % intervals are wrong in 15 of 300 cases; more than 30 have a probability below 1e-3.
    assert different <= 30


def test_large_groups_are_thinned_without_a_shift():
    noise = np.random.default_rng(3)
    values = 100 * np.exp(0.05 * noise.standard_normal(5 * MOST_OF_A_GROUP))
    found = compare_groups(values, 1.1 * values)
    assert found.verdict is Difference.SLOWER
    assert found.interval == pytest.approx((1.1, 1.1), rel=0.02)


@pytest.mark.parametrize("bad", [[], [1.0, 0.0], [-1.0]])
def test_durations_are_positive(bad):
    with pytest.raises(ValueError, match="positive"):
        compare_groups(bad, [1.0])
