from __future__ import annotations

import pytest

from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.tuning.search import (
    FULL,
    STRATEGIES,
    Limit,
    SearchTrial,
    make_strategy,
    parse_limit,
    parse_shares,
    search,
)

from .synthetic import measured

SHAPES = ((16, 4096, 4096), (16, 14336, 4096))
LIMITS = (Limit(count=1), Limit(count=2), Limit(count=7), Limit(share=0.05))


def test_limits():
    space = measured(SHAPES)[1].space
    assert parse_limit("40").of(space) == 40
    assert parse_limit("5%") == Limit(share=0.05)
    assert parse_limit("5%").of(space) == 4
    assert parse_limit("0.01 %").of(space) == 1
    assert Limit().of(space) == parse_limit("9999").of(space) == len(space)
    assert (str(Limit()), str(Limit(count=4)), str(Limit(share=0.025))) == ("all", "4", "2.5 %")
    assert parse_shares("1%,5%") == [0.01, 0.05]


@pytest.mark.parametrize("text", ["0", "-3", "x", "0%", "101%", "1.5", "nan", "nan%", ""])
def test_limits_that_cannot_be_read(text):
    with pytest.raises(RequestError, match="number of evaluations"):
        parse_limit(text)


def test_a_simulation_needs_shares():
    with pytest.raises(RequestError, match="shares"):
        parse_shares("1%,5")


@pytest.mark.parametrize("name", ["models", "random:tpe", "", "optuna:nothing"])
def test_unknown_strategies(name):
    with pytest.raises(UnknownNameError):
        make_strategy(name, [one.space for one in measured(SHAPES)], Limit(), 0)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(
    "limit", [Limit(count=1), Limit(count=2), Limit(count=7), Limit(share=0.05)]
)
def test_every_strategy_keeps_its_limit_and_requests_no_trial_twice(name, limit):
    data = measured(SHAPES)
    spaces = [one.space for one in data]
    requested = []

    def measure(trials):
        requested.extend(trials)
        return {trial: data[trial.space].times_ns[trial.candidate] for trial in trials}

    history = search(make_strategy(name, spaces, limit, 1), measure)
    assert len(set(requested)) == len(requested)
    costs = [history.cost(index) for index in range(len(spaces))]
    limits = [limit.of(space) for space in spaces]
    assert sum(costs) <= sum(limits) + 1e-9
    for index, cost in enumerate(costs):
        assert any(t.space == index and t.effort == FULL for t in history.times)
        assert cost <= limits[index] + 1e-9 or name == "model", "it alone moves them"
    if name != "halving":
        assert sum(costs) == sum(limits)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_same_seed_requests_the_same(name):
    data = measured(SHAPES)

    def requested(seed):
        found = []

        def measure(trials):
            found.extend(trials)
            return {t: data[t.space].times_ns[t.candidate] for t in trials}

        search(make_strategy(name, [one.space for one in data], Limit(count=6), seed), measure)
        return found

    assert requested(3) == requested(3)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_space_of_which_nothing_works_ends(name):
    spaces = [one.space for one in measured(SHAPES)]
    history = search(
        make_strategy(name, spaces, Limit(count=6), 0), lambda trials: dict.fromkeys(trials)
    )
    assert history.ranked(0) == history.ranked(1) == []
    assert history.failed(0) == history.count(0) > 0


def test_the_cost_of_a_short_trial_is_its_share_of_the_samples():
    assert [SearchTrial(0, 0, effort).cost for effort in (0, 1, FULL)] == [1 / 9, 1 / 3, 1]
