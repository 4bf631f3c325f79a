from __future__ import annotations

import numpy as np

from gemmetry.domain.dispatch import Configuration, parse_target
from gemmetry.domain.names import parse_operation
from gemmetry.tuning.search import make_space
from gemmetry.tuning.strategies import model
from gemmetry.tuning.strategies.model import create

CPU = parse_target("cpu")
RNG = np.random.default_rng(0)


def space(m=512, count=40):
    rows = [Configuration(f"c{i}", {"unroll": 2 ** (i % 8), "order": i // 8}) for i in range(count)]
    return make_space(parse_operation(f"matmul_{m}x512x512_f32t_f32t_f32t"), rows, CPU)


def run(spaces, limits, ns):
    """The configurations of each space in the order in which they were tried."""
    strategy = create(spaces, limits, RNG)
    found = [[] for _ in spaces]
    while trials := strategy.ask():
        for trial in trials:
            found[trial.space].append(trial.candidate)
            strategy.learn(trial, ns(trial.space, trial.candidate))
    return found


def test_what_one_shape_shows_is_tried_for_the_others():
    """One value of a parameter is the fastest on all shapes."""

    def ns(_space, candidate):
        return 100.0 * (1 + abs(candidate % 8 - 5))

    tried = run([space(m) for m in (256, 512, 1024)], [10] * 3, ns)
    for one in tried:
        assert any(candidate % 8 == 5 for candidate in one[-2:])


def test_configurations_like_those_that_failed_are_avoided():
    def ns(_space, candidate):
        return None if candidate % 8 < 6 else 100.0 + candidate

    tried = run([space()], [15], ns)[0]
    assert sum(candidate % 8 >= 6 for candidate in tried) >= 8, "of the ten that work"


def test_seeds_are_tried_first():
    from dataclasses import replace

    seeded = replace(space(), seeds=(33, 7))
    assert run([seeded], [10], lambda *_one: 1.0)[0][:2] == [33, 7]


def test_a_space_smaller_than_its_limit_is_tried_once():
    assert sorted(run([space(count=3)], [3], lambda *_one: 1.0)[0]) == [0, 1, 2]


def test_a_shape_without_a_configuration_does_not_stop_the_others():
    for spaces in ([space(count=0), space()], [space(), space(count=0)], [space(count=0)]):
        tried = run(spaces, [min(10, len(one)) for one in spaces], lambda *_one: 1.0)
        assert [len(one) for one in tried] == [min(10, len(one)) for one in spaces]


def test_the_work_for_a_shape_does_not_grow_with_the_number_of_shapes(monkeypatch):
    used = []
    known = model._Posterior._covariance
    monkeypatch.setattr(model, "_MOST_KNOWN", 50)
    monkeypatch.setattr(
        model._Posterior, "_covariance", lambda self, rows: used.append(rows) or known(self, rows)
    )

    def ns(_space, candidate):
        return 100.0 * (1 + abs(candidate % 8 - 5))

    sizes = [64 * (1 + number) for number in range(12)]
    tried = run([space(m) for m in sizes], [10] * len(sizes), ns)
    assert max(map(len, used)) == 50
    assert all(any(candidate % 8 == 5 for candidate in one) for one in tried)
