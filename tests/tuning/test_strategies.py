"""The loop of a search, limits, what all strategies keep, and what each of them does."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from gemmetry.domain.dispatch import Configuration, parse_operation, parse_target
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.tuning import strategies
from gemmetry.tuning.search import (
    FULL,
    Limit,
    SearchHistory,
    SearchTrial,
    make_space,
    parse_limit,
    parse_shares,
    search,
)
from gemmetry.tuning.strategies import STRATEGIES, FixedStrategy, make_strategy

from .synthetic import measured

SHAPES = ((16, 4096, 4096), (16, 14336, 4096))
GRID = [Configuration(f"c{i}", {"unroll": 2 ** (i % 8), "order": i // 8}) for i in range(40)]
ROW = [Configuration(f"c{i}", {"unroll": i + 1}) for i in range(100)]


def space(rows=GRID, m=512):
    operation = parse_operation(f"matmul_{m}x512x512_f32t_f32t_f32t")
    return make_space(operation, rows, parse_target("cpu"))


def tried(name, spaces, count, ns=lambda _space, candidate: 1.0 + candidate):
    """The trials of each space in the order in which they were requested."""
    found = [[] for _ in spaces]

    def measure(trials):
        for trial in trials:
            found[trial.space].append(trial)
        return {trial: ns(trial.space, trial.candidate) for trial in trials}

    search(make_strategy(name, spaces, Limit(count=count), 0), measure)
    return found


def candidates(name, spaces, count, *arguments):
    found = tried(name, spaces, count, *arguments)
    return [[one.candidate for one in of_space] for of_space in found]


def test_a_search_ends_where_a_trial_has_no_result():
    history = search(
        FixedStrategy([[0, 1], [2]]),
        lambda trials: {one: 10.0 + one.candidate for one in trials if one.space == 0},
    )
    assert not history.is_complete
    assert (history.ranked(0), history.count(1)) == ([0, 1], 0)


def test_those_with_more_samples_rank_before_those_that_fell_out():
    times = {(0, 0, 0): 5.0, (0, 1, 0): 6.0, (0, 1, FULL): 8.0, (0, 2, FULL): None, (1, 0, FULL): 1}
    history = SearchHistory({SearchTrial(*trial): ns for trial, ns in times.items()})
    assert history.ranked(0) == [1, 0]
    assert (history.count(0), history.failed(0)) == (3, 1)
    assert history.cost(0) == 2 + 2 / 9


def test_limits(data):
    one = data[1].space
    limits = [Limit(), *map(parse_limit, ("40", "5%", "0.01 %", "9999"))]
    assert [limit.of(one) for limit in limits] == [len(one), 40, 4, 1, len(one)]
    assert (str(Limit()), str(Limit(count=4)), str(Limit(share=0.025))) == ("all", "4", "2.5 %")
    assert parse_shares("1%,5%") == [0.01, 0.05]


@pytest.mark.parametrize("text", ["0", "-3", "x", "0%", "101%", "1.5", "nan", "nan%", ""])
def test_limits_that_cannot_be_read(text):
    for parse, given in ((parse_limit, text), (parse_shares, f"1%,{text}")):
        with pytest.raises(RequestError):
            parse(given)


@pytest.mark.parametrize("name", ["models", "random:tpe", "", "optuna:nothing"])
def test_unknown_strategies(name):
    with pytest.raises(UnknownNameError):
        make_strategy(name, [space()], Limit(), 0)


@pytest.fixture(scope="module")
def data():
    return measured(SHAPES)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize(
    "limit", [Limit(count=1), Limit(count=2), Limit(count=7), Limit(share=0.05)], ids=str
)
def test_every_strategy_keeps_its_limit_and_requests_no_trial_twice(name, limit, data):
    spaces = [one.space for one in data]
    requested = []

    def measure(trials):
        requested[-1].extend(trials)
        return {trial: data[trial.space].times_ns[trial.candidate] for trial in trials}

    for _ in range(2):
        requested.append([])
        history = search(make_strategy(name, spaces, limit, 1), measure)
    assert requested[0] == requested[1], "the same seed requests the same"
    assert len(set(requested[0])) == len(requested[0])
    costs = [history.cost(index) for index in range(len(spaces))]
    limits = [limit.of(one) for one in spaces]
    assert sum(costs) <= sum(limits) + 1e-9
    for index, cost in enumerate(costs):
        assert any(t.space == index and t.effort == FULL for t in history.times)
        assert cost <= limits[index] + 1e-9 or name == "model", "it alone moves them"
    assert name == "halving" or sum(costs) == sum(limits)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_space_of_which_nothing_works_ends(name, data):
    strategy = make_strategy(name, [one.space for one in data], Limit(count=6), 0)
    history = search(strategy, dict.fromkeys)
    assert history.ranked(0) == history.ranked(1) == []
    assert history.failed(0) == history.count(0) > 0


@pytest.mark.parametrize(
    ("limit", "rungs"),
    [(1, [0, 0, 1]), (2, [4, 1, 1]), (3, [9, 3, 1]), (9, [27, 9, 3]), (30, [90, 30, 10])],
)
def test_rungs_of_halving(limit, rungs):
    (found,) = tried("halving", [space(ROW)], limit)
    assert [sum(one.effort == effort for one in found) for effort in range(3)] == rungs


def test_the_best_survive_halving_and_failures_do_not():
    (found,) = tried("halving", [space(ROW)], 9, lambda _, one: float(one) if one else None)
    assert [one.candidate for one in found if one.effort == 1] == list(range(1, 10))


def _best_at_five(_space, candidate):
    return 100.0 * (1 + abs(candidate % 8 - 5))


def test_the_work_for_a_shape_does_not_grow_with_the_number_of_shapes(monkeypatch):
    """What one shape shows is tried for the others."""
    used = []
    known = strategies._Posterior._covariance
    monkeypatch.setattr(strategies, "_MOST_KNOWN", 50)
    monkeypatch.setattr(
        strategies._Posterior, "_covariance",
        lambda self, rows: used.append(len(rows)) or known(self, rows),
    )  # fmt: skip
    for count in (3, 12):
        spaces = [space(m=64 * (1 + number)) for number in range(count)]
        for one in candidates("model", spaces, 10, _best_at_five):
            late = one[-2:] if count == 3 else one
            assert any(candidate % 8 == 5 for candidate in late)
    assert max(used) == 50


def test_configurations_like_those_that_failed_are_avoided():
    (found,) = candidates(
        "model", [space()], 15, lambda _, one: None if one % 8 < 6 else 100.0 + one
    )
    assert sum(candidate % 8 >= 6 for candidate in found) >= 8, "of the ten that work"


def test_seeds_are_tried_first():
    (found,) = candidates("model", [replace(space(), seeds=(33, 7))], 10)
    assert found[:2] == [33, 7]


def test_shapes_with_few_configurations_and_with_none():
    for sizes in ((0, 40), (40, 0), (0,), (3,)):
        found = candidates("model", [space(GRID[:size]) for size in sizes], 10)
        assert [len(set(one)) for one in found] == [min(10, size) for size in sizes]


@pytest.mark.parametrize(
    ("rows", "sampler"),
    [
        ([Configuration(f"c{i}", {"a": i, "b": i, "way": "x"}) for i in range(12)], ""),
        ([Configuration(name) for name in ("fast", "slow", "other")], ":random"),
    ],
    ids=["a diagonal of its parameters' grid", "distinguished by their names alone"],
)
def test_optuna_tries_members_of_the_space_alone_and_each_once(rows, sampler):
    pytest.importorskip("optuna")
    (found,) = candidates(
        f"optuna{sampler}", [space(rows)], len(rows), lambda _, one: 1.0 + one if one % 3 else None
    )
    assert sorted(found) == list(range(len(rows)))


def test_optuna_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(RequestError) as caught:
        make_strategy("optuna", [space()], Limit(count=1), 0)
    assert "gemmetry[tune]" in caught.value.hint


@pytest.mark.parametrize(
    ("sampler", "library"), [("qmc", "scipy"), ("gp", "scipy"), ("cmaes", "cmaes")]
)
def test_a_sampler_without_its_library_is_refused_before_anything_runs(
    monkeypatch, sampler, library
):
    pytest.importorskip("optuna")
    monkeypatch.setattr(strategies, "find_spec", lambda name: None if name == library else name)
    with pytest.raises(RequestError, match=library):
        make_strategy(f"optuna:{sampler}", [space()], Limit(count=1), 0)
