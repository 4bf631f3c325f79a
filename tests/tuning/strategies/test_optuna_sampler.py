from __future__ import annotations

import sys

import numpy as np
import pytest

from gemmetry.domain.dispatch import Configuration, parse_target
from gemmetry.domain.errors import RequestError
from gemmetry.domain.names import parse_operation
from gemmetry.tuning.search import make_space
from gemmetry.tuning.strategies import optuna_sampler
from gemmetry.tuning.strategies.optuna_sampler import create

OPERATION = parse_operation("matmul_8x8x8_f32t_f32t_f32t")


def space(rows):
    return make_space(OPERATION, rows, parse_target("cpu"))


def run(one, limit, ns=lambda candidate: 1.0 + candidate, sampler=""):
    strategy = create([one], [limit], np.random.default_rng(0), sampler)
    tried = []
    while trials := strategy.ask():
        for trial in trials:
            tried.append(trial.candidate)
            strategy.learn(trial, ns(trial.candidate))
    return tried


def test_only_members_of_the_space_are_tried_and_each_once():
    pytest.importorskip("optuna")
    diagonal = space([Configuration(f"c{i}", {"a": i, "b": i, "way": "x"}) for i in range(12)])
    tried = run(diagonal, 12, lambda candidate: None if candidate % 3 == 0 else 1.0 + candidate)
    assert sorted(tried) == list(range(12))


def test_configurations_that_only_their_names_distinguish():
    pytest.importorskip("optuna")
    plain = space([Configuration(name) for name in ("fast", "slow", "other")])
    assert sorted(run(plain, 3, sampler="random")) == [0, 1, 2]


def test_optuna_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(RequestError, match="needs optuna") as caught:
        run(space([Configuration("a")]), 1)
    assert "gemmetry[tune]" in caught.value.hint


@pytest.mark.parametrize(
    ("sampler", "library"), [("qmc", "scipy"), ("gp", "scipy"), ("cmaes", "cmaes")]
)
def test_a_sampler_without_its_library_is_refused_before_anything_runs(
    monkeypatch, sampler, library
):
    pytest.importorskip("optuna")
    monkeypatch.setattr(
        optuna_sampler, "find_spec", lambda name: None if name == library else object()
    )
    with pytest.raises(RequestError, match=f"sampler {sampler} needs {library}") as caught:
        run(space([Configuration("c", {"a": 1})]), 1, sampler=sampler)
    assert f"pip install {library};" in caught.value.hint
