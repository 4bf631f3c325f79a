from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.dispatch import Configuration, parse_target
from gemmetry.domain.names import parse_operation
from gemmetry.tuning.search import make_space
from gemmetry.tuning.strategies.halving import create

ROWS = [Configuration(f"c{i}", {"unroll": i + 1}) for i in range(100)]
SPACE = make_space(parse_operation("matmul_8x8x8_f32t_f32t_f32t"), ROWS, parse_target("cpu"))


@pytest.mark.parametrize(
    ("limit", "rungs"),
    [(1, [0, 0, 1]), (2, [4, 1, 1]), (3, [9, 3, 1]), (9, [27, 9, 3]), (30, [90, 30, 10])],
)
def test_rungs(limit, rungs):
    strategy = create([SPACE], [limit], np.random.default_rng(0))
    seen = [0, 0, 0]
    while trials := strategy.ask():
        for trial in trials:
            seen[trial.effort] += 1
            strategy.learn(trial, float(trial.candidate))
    assert seen == rungs


def test_the_best_survive_and_failures_do_not():
    strategy = create([SPACE], [9], np.random.default_rng(0))
    first = strategy.ask()
    for trial in first:
        strategy.learn(trial, None if trial.candidate == 0 else float(trial.candidate))
    assert [one.candidate for one in strategy.ask()] == list(range(1, 10))
