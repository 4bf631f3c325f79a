"""Groups of any sizes, also in strata, compared by ranks."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.statistics.comparison import MOST_OF_A_GROUP, Difference, compare_groups, verdict_of


def test_three_against_twenty_show_a_planted_slowdown():
    ((alone, together),) = strata_of(np.random.default_rng(1), 0.005, [(100, 3, 20)])
    together *= 1.3
    found = compare_groups([(alone, together)], relevant=0.01)
    assert (found.verdict, found.effect_size) == (Difference.SLOWER, -1)
    assert found.ratio == np.median(together) / np.median(alone)
    assert found.ratio_low < 1.3 < found.ratio_high
    assert found.observations == 3


def test_too_few_are_undecided_without_an_interval():
    found = compare_groups([([100.0] * 3, [150.0] * 3)])
    assert (found.verdict, found.interval, found.ratio) == (Difference.UNDECIDED, None, 1.5)
    strata = [(np.arange(100.0, 103), np.arange(150.0, 170))]
    assert compare_groups(strata).interval is not None
    assert compare_groups(strata, family=200).interval is None


def test_the_interval_contains_the_ratio_and_gives_the_verdict():
    """Two modes: the medians differ by a factor of 2, the shift between the groups does not."""
    sides = [[100.0] * low + [200.0] * (21 - low) for low in (11, 10)]
    found = compare_groups([tuple(sides)], relevant=0.01)
    assert found.ratio_low <= found.ratio == 2.0 <= found.ratio_high
    assert found.verdict is verdict_of(found.interval, 0.01) is Difference.UNDECIDED


def strata_of(noise, spread, groups):
    """Equal strata of (level, size of the first group, size of the second)."""
    strata = []
    for level, few, many in groups:
        values = level * np.exp(spread * noise.standard_normal(few + many))
        strata.append((values[:few], values[few:]))
    return strata


@pytest.mark.parametrize(("spread", "groups"), [
    (0.03, [(100, 4, 20)]), (0.02, [(100, 3, 20), (120, 12, 12), (140, 20, 3)]),
])  # fmt: skip
def test_equal_groups_rarely_differ_whatever_the_levels_and_mixes_of_strata(spread, groups):
    """95 % intervals are wrong in 15 of 300 cases; more than 30 have a probability below 1e-3."""
    noise = np.random.default_rng(7)
    found = [compare_groups(strata_of(noise, spread, groups)) for _ in range(300)]
    assert all(one.interval is not None for one in found)
    assert sum(one.verdict in (Difference.SLOWER, Difference.FASTER) for one in found) <= 30


def test_strata_together_show_what_none_shows_alone():
    noise = np.random.default_rng(2)
    equal = strata_of(noise, 0.01, [(level, 2, 3) for level in (100, 150, 200, 250)])
    strata = [(few, 1.2 * many) for few, many in equal]
    assert all(compare_groups([one]).interval is None for one in strata)
    found = compare_groups(strata, relevant=0.01)
    assert found.verdict is Difference.SLOWER
    assert found.ratio == pytest.approx(1.2, rel=0.02)
    assert found.observations == 8


def test_large_groups_are_thinned_without_a_shift():
    values = 100 * np.exp(0.05 * np.random.default_rng(3).standard_normal(5 * MOST_OF_A_GROUP))
    found = compare_groups([(values, 1.1 * values)])
    assert found.verdict is Difference.SLOWER
    assert found.interval == pytest.approx((1.1, 1.1), rel=0.02)


@pytest.mark.parametrize(("strata", "message"), [
    ([([1.0, 0.0], [1.0])], "positive"), ([([-1.0], [1.0])], "positive"),
    ([([], [1.0])], "both sides"), ([], "both sides"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(strata, message):
    with pytest.raises(ValueError, match=message):
        compare_groups(strata)
