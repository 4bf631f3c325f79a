from __future__ import annotations

from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proportions import interval, lower_bound, upper_bound


def tail(successes: int, trials: int, p: float) -> float:
    """P(at most `successes`), computed from the definition."""
    return sum(comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes + 1))


def test_known_two_sided_interval() -> None:
    """7 of 20, as R's binom.test(7, 20) prints it."""
    assert interval(7, 20) == pytest.approx((0.1539092, 0.5921885), abs=1e-7)


@pytest.mark.parametrize(
    ("successes", "trials"), [(0, 400), (1, 5), (8, 400), (13, 400), (200, 401)]
)
def test_bound_is_where_the_tail_is_the_risk(successes: int, trials: int) -> None:
    assert tail(successes, trials, upper_bound(successes, trials, 0.9)) == pytest.approx(0.1)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
@settings(max_examples=20)
def test_bounds_enclose_the_share_and_mirror_each_other(count: tuple[int, int]) -> None:
    successes, trials = count
    low, high = interval(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    assert low == pytest.approx(1 - interval(trials - successes, trials)[1])
    assert interval(trials, trials)[1] == upper_bound(trials, trials) == 1
    assert lower_bound(trials, trials) == pytest.approx(0.05 ** (1 / trials))
    assert upper_bound(successes, trials, 0.99) >= upper_bound(successes, trials, 0.9)


@pytest.mark.parametrize(
    ("successes", "trials", "confidence"), [(0, 0, 0.9), (3, 2, 0.9), (-1, 2, 0.9), (1, 2, 1.0)]
)
def test_values_that_are_not_shares_are_refused(successes, trials, confidence) -> None:
    with pytest.raises(ValueError, match=r"share|confidence"):
        upper_bound(successes, trials, confidence)
