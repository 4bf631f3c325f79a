from __future__ import annotations

from gemmetry.tuning.search import FULL, SearchHistory, SearchTrial, search
from gemmetry.tuning.strategies.fixed import FixedStrategy


def test_a_search_ends_where_a_trial_has_no_result():
    history = search(
        FixedStrategy([[0, 1], [2]]),
        lambda trials: {one: 10.0 + one.candidate for one in trials if one.space == 0},
    )
    assert not history.is_complete
    assert history.ranked(0) == [0, 1]
    assert history.count(1) == 0


def test_those_with_more_samples_rank_before_those_that_fell_out():
    history = SearchHistory(
        {
            SearchTrial(0, 0, 0): 5.0,
            SearchTrial(0, 1, 0): 6.0,
            SearchTrial(0, 1, FULL): 8.0,
            SearchTrial(0, 2, FULL): None,
            SearchTrial(1, 0, FULL): 1.0,
        }
    )
    assert history.ranked(0) == [1, 0]
    assert (history.count(0), history.failed(0)) == (3, 1)
    assert history.cost(0) == 2 + 2 / 9
