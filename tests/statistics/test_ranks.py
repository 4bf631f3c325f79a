from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.statistics.intervals import (
    can_shift,
    minimum_a_side,
    rank_sum_shift,
    sign_shift,
    stratified_shift,
)

VALUES = st.floats(-5, 5).map(lambda value: round(value, 1))


LEVELS = st.sampled_from([0.8, 0.95, 0.98, 1 - 0.05 / 7, 1 - 0.05 / 60])


def values(least: int, most: int) -> st.SearchStrategy[list[float]]:
    return st.lists(VALUES, min_size=least, max_size=most)


def _sign_by_hand(differences: list[float]) -> float:
    """Over all signs: how often as few of the differences or fewer are not above 0."""
    against = sum(value <= 0 for value in differences)
    signs = list(itertools.product((0, 1), repeat=len(differences)))
    return sum(sum(one) <= against for one in signs) / len(signs)


def _rank_sum_by_hand(a: list[float], b: list[float]) -> float:
    """Over all orders without ties: how often as few of the gaps or fewer are not above 0."""
    against = sum(y <= x for x in a for y in b)
    places = set(range(len(a) + len(b)))
    found = [
        sum(y < x for x in places.difference(chosen) for y in chosen) <= against
        for chosen in itertools.combinations(places, len(b))
    ]
    return sum(found) / len(found)


@settings(max_examples=60)
@given(values(1, 8))
def test_signs_agree_with_all_signs_counted_out(differences: list[float]) -> None:
    found = sign_shift(differences, confidence=0.95)
    assert found.p_greater == pytest.approx(_sign_by_hand(differences))
    assert found.p_less == pytest.approx(_sign_by_hand([-d for d in differences]))
    assert (found.interval is None) is (len(differences) < 6)


@settings(max_examples=60)
@given(values(1, 5), values(1, 5))
def test_rank_sums_agree_with_all_orders_counted_out(a: list[float], b: list[float]) -> None:
    found = rank_sum_shift(a, b, confidence=0.95)
    assert found.p_greater == pytest.approx(_rank_sum_by_hand(a, b))
    assert found.p_less == pytest.approx(_rank_sum_by_hand([-x for x in a], [-x for x in b]))
    assert (found.interval is None) is (min(len(a), len(b)) < 4)


@settings(max_examples=60)
@given(values(1, 70), values(1, 20), LEVELS, st.sampled_from([0.0, 0.1, 1.05]))
def test_tests_are_their_intervals_turned_around(
    a: list[float], b: list[float], confidence: float, margin: float
) -> None:
    how = {"confidence": confidence, "margin": margin}
    for found in (sign_shift(a, **how), rank_sum_shift(a, b, **how)):
        if found.interval is not None:
            low, high = found.interval
            assert low <= found.estimate <= high
            tail = (1 - confidence) / 2 * (1 + 1e-9)
            assert (found.p_greater <= tail) is (low > margin)
            assert (found.p_less <= tail) is (high < -margin)


def test_sample_sizes_from_which_a_shift_can_be_shown() -> None:
    assert minimum_a_side(0.95) == 4, "of 70 orders two are the extreme ones: 2.9 %"
    assert minimum_a_side(1 - 0.05 / 152) == 8
    for confidence in (0.5, 0.95, 0.98, 0.9999):
        count = minimum_a_side(confidence)
        apart, fewer = (
            rank_sum_shift([0.0] * size, [1.0] * count, confidence=confidence)
            for size in (count, count - 1)
        )
        assert (apart.interval, fewer.interval) == ((1.0, 1.0), None)
        assert 2 * apart.p_greater <= 1 - confidence


@pytest.mark.parametrize(("pairs", "place"), [(6, 1), (9, 2), (12, 3), (20, 6), (60, 22)])
def test_interval_and_test_of_signs_agree(pairs: int, place: int) -> None:
    """The ends are the order statistics of the tables, and the test begins to show a difference
    there."""
    differences = np.arange(1.0, pairs + 1)
    found, below, above = (
        sign_shift(differences, confidence=0.95, margin=margin)
        for margin in (0.0, place - 0.5, place + 0.5)
    )
    assert found.interval == (place, pairs + 1 - place)
    assert below.p_greater <= 0.025 < above.p_greater


def test_interval_of_two_sides_ends_where_tables_say() -> None:
    """Mann and Whitney's U at two-sided 5 % for 10 and 10 is 23."""
    a, b = np.arange(10.0), 1000.0 * np.arange(1, 11)
    gaps = np.sort(np.subtract.outer(b, a).ravel())
    assert rank_sum_shift(a, b, confidence=0.95).interval == (gaps[23], gaps[-24])


def test_a_margin_counts_as_no_shift() -> None:
    differences = 0.010 + 0.001 * np.arange(12)
    assert sign_shift(differences, confidence=0.95).p_greater == pytest.approx(2**-12)
    within = sign_shift(differences, confidence=0.95, margin=0.05)
    assert (within.p_greater, within.p_less) == (1.0, 1.0)
    sides = [0.0] * 8, 0.1 + 0.001 * np.arange(8)
    assert rank_sum_shift(*sides, confidence=0.95).p_greater < 0.001
    assert rank_sum_shift(*sides, confidence=0.95, margin=0.2).p_greater > 0.99


@pytest.mark.parametrize("count", [30, 31])
def test_the_approximation_carries_on_where_counting_ends(count: int) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(0.0, 1.0, 30), rng.normal(0.6, 1.0, 31)[:count]
    found = rank_sum_shift(a, b, confidence=0.95)
    low, high = found.interval
    assert low < 0.6 < high
    assert high - low == pytest.approx(1.05, abs=0.2)
    assert found.p_greater < 0.05
    assert found.p_less == pytest.approx(1 - found.p_greater, abs=0.01)


def test_no_differences_or_too_few_values_are_no_evidence() -> None:
    found = sign_shift([0.0] * 9, confidence=0.95)
    assert (found.p_greater, found.p_less, found.interval) == (1.0, 1.0, (0.0, 0.0))
    with pytest.raises(ValueError, match="nothing to compare"):
        sign_shift([], confidence=0.95)
    for wrong in (0.0, 1.0):
        with pytest.raises(ValueError, match="confidence"):
            sign_shift([1.0], confidence=wrong)
        with pytest.raises(ValueError, match="confidence"):
            minimum_a_side(wrong)


@pytest.mark.parametrize(("sizes", "able"), [
    ([(1, 38)], False), ([(1, 39)], True), ([(2, 7)], False), ([(2, 8)], True),
    ([(3, 4)], False), ([(3, 5)], True), ([(3, 3)], False), ([(4, 4)], True),
    ([(0, 99)], False), ([(1, 5), (1, 5)], False), ([(1, 5), (1, 6)], True),
])  # fmt: skip
def test_sizes_that_can_show_a_shift(sizes, able):
    """The product of C(first + second, first) is at least 40: 39, 40, 36, 45, 35, 56, 20, 70, 1,
    36, 42."""
    assert can_shift(sizes) is able
    assert can_shift([(second, first) for first, second in sizes]) is able


@settings(max_examples=40)
@given(values(4, 40), values(4, 40), st.sampled_from([0.9, 0.95]))
def test_one_stratum_is_the_rank_sum(a: list[float], b: list[float], confidence: float) -> None:
    shift = rank_sum_shift(a, b, confidence=confidence)
    assert stratified_shift([(a, b), ([], [1.0])], confidence) == (shift.estimate, shift.interval)


def test_the_interval_of_two_strata_by_hand():
    """Two strata of 2 and 3 have 10 * 10 orders. U is 0 in one and 1 in two, one of each stratum;
    P(U <= 1) is 3 % exactly. The first two of twelve gaps may be cut off at each end."""
    strata = [([0.0, 1.0], [2.0, 3.5, 5.0]), ([10.0, 11.5], [12.5, 14.0, 17.0])]
    gaps = sorted(y - x for a, b in strata for x in a for y in b)
    assert stratified_shift(strata, 0.94) == (np.median(gaps), (gaps[1], gaps[10]))
    assert stratified_shift(strata, 0.981)[1] is None
