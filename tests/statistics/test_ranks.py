from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.statistics.ranks import holm, rank_sum_shift, sign_shift

VALUES = st.floats(-5, 5).map(lambda value: round(value, 1))


def _ranks(values: list[float]) -> list[float]:
    """Mean ranks by counting."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


def _sign_by_hand(differences: list[float]) -> float:
    kept = [value for value in differences if value != 0]
    above = sum(value > 0 for value in kept)
    signs = list(itertools.product((0, 1), repeat=len(kept)))
    return sum(sum(one) >= above for one in signs) / len(signs)


def _rank_sum_by_hand(a: list[float], b: list[float]) -> float:
    ranks = _ranks([*a, *b])
    observed = sum(ranks[len(a) :])
    sums = [sum(chosen) for chosen in itertools.combinations(ranks, len(b))]
    return sum(total >= observed - 1e-9 for total in sums) / len(sums)


@settings(deadline=None, max_examples=60)
@given(st.lists(VALUES, min_size=1, max_size=8))
def test_signs_agree_with_all_signs_counted_out(differences: list[float]) -> None:
    found = sign_shift(differences, confidence=0.95)
    assert found.p_greater == pytest.approx(_sign_by_hand(differences))
    assert found.p_less == pytest.approx(_sign_by_hand([-d for d in differences]))
    assert found.low <= found.estimate <= found.high


@settings(deadline=None, max_examples=60)
@given(st.lists(VALUES, min_size=1, max_size=5), st.lists(VALUES, min_size=1, max_size=5))
def test_rank_sums_agree_with_all_choices_counted_out(a: list[float], b: list[float]) -> None:
    found = rank_sum_shift(a, b, confidence=0.95)
    assert found.p_greater == pytest.approx(_rank_sum_by_hand(a, b))
    assert found.p_less == pytest.approx(_rank_sum_by_hand([-x for x in a], [-x for x in b]))
    assert found.low <= found.estimate <= found.high


@pytest.mark.parametrize(("pairs", "place"), [(6, 1), (9, 2), (12, 3), (20, 6), (60, 22)])
def test_interval_and_test_of_signs_agree(pairs: int, place: int) -> None:
    """Where tables have the order statistics, and where the test begins to show a difference."""
    differences = [float(i + 1) for i in range(pairs)]
    found = sign_shift(differences, confidence=0.95)
    assert (found.low, found.high) == (place, pairs + 1 - place)
    for margin, is_shown in ((found.low - 0.5, True), (found.low + 0.5, False)):
        assert (sign_shift(differences, confidence=0.95, margin=margin).p_greater <= 0.025) is (
            is_shown
        )


def test_interval_of_two_sides_ends_where_tables_say() -> None:
    """Mann and Whitney's U at two-sided 5 % for 10 and 10 is 23."""
    a, b = np.arange(10.0), np.array([1000.0 * (i + 1) for i in range(10)])
    gaps = np.sort(np.subtract.outer(b, a).ravel())
    found = rank_sum_shift(a, b, confidence=0.95)
    assert (found.low, found.high) == (gaps[23], gaps[-24])


def test_a_margin_counts_as_no_shift() -> None:
    differences = [0.010 + 0.001 * i for i in range(12)]
    assert sign_shift(differences, confidence=0.95).p_greater == pytest.approx(2**-12)
    within = sign_shift(differences, confidence=0.95, margin=0.05)
    assert within.p_greater == 1.0
    assert within.p_less == 1.0
    a = [0.0] * 8
    b = [0.1 + 0.001 * i for i in range(8)]
    assert rank_sum_shift(a, b, confidence=0.95).p_greater < 0.001
    assert rank_sum_shift(a, b, confidence=0.95, margin=0.2).p_greater > 0.99


@pytest.mark.parametrize("count", [30, 31])
def test_the_approximation_carries_on_where_counting_ends(count: int) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(0.0, 1.0, 30), rng.normal(0.6, 1.0, 31)[:count]
    found = rank_sum_shift(a, b, confidence=0.95)
    assert found.low < 0.6 < found.high
    assert found.high - found.low == pytest.approx(1.05, abs=0.2)
    assert found.p_greater < 0.05
    assert found.p_less == pytest.approx(1 - found.p_greater, abs=0.01)


def test_no_differences_at_all_are_no_evidence() -> None:
    found = sign_shift([0.0] * 9, confidence=0.95)
    assert (found.p_greater, found.p_less, found.low, found.high) == (1.0, 1.0, 0.0, 0.0)


def test_too_few_pairs_give_the_whole_range() -> None:
    found = sign_shift([1.0, 3.0], confidence=0.95)
    assert (found.low, found.high) == (1.0, 3.0)
    with pytest.raises(ValueError, match="nothing to compare"):
        sign_shift([], confidence=0.95)
    with pytest.raises(ValueError, match="confidence"):
        sign_shift([1.0], confidence=1.0)


def test_holm_steps_down() -> None:
    """0.01·4, then 0.02·3, then max(0.06, 0.03·2), then 0.04·1 kept at 0.06."""
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
