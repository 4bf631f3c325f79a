"""How the strategies do on made-up times that no model of theirs predicts."""

from __future__ import annotations

import pytest

from gemmetry.tuning.simulation import compact, read_compact, simulate

from .synthetic import measured
from .synthetic_gpu import measured_gpu, stored_gpu


@pytest.fixture(scope="module")
def data():
    return measured_gpu(seed=1)


def test_a_search_begins_with_short_predicted_times(data):
    """One or four configurations of a shape: chance finds slower ones."""
    found = simulate(data, ["exhaustive", "random"], [0.01], seeds=4)
    assert found[0].mean > found[1].mean + 0.05


def test_the_default_strategy_finds_nearly_the_best(data):
    shares = {
        (one.strategy, one.budget): one.mean
        for one in simulate(data, ["model", "exhaustive", "random"], [0.05, 0.1], seeds=1)
    }
    assert shares["model", 0.05] > 0.96
    assert shares["model", 0.1] > 0.99
    for budget in (0.05, 0.1):
        others = shares["exhaustive", budget], shares["random", budget]
        assert shares["model", budget] > max(others) + 0.03


def test_configurations_that_fail_do_not_hide_those_like_them():
    """A tenth of this space fails without a reason."""
    shares = [simulate(measured(seed=seed), ["model"], [0.05], seeds=1)[0] for seed in range(4)]
    assert sum(share.mean for share in shares) / 4 > 0.985


def test_the_file_of_these_times_is_the_same_search(data, tmp_path):
    path = tmp_path / "space.json"
    path.write_bytes(compact(stored_gpu(seed=1)))
    for read, made in zip(read_compact(path).measured(), data, strict=True):
        assert read.space.configurations == made.space.configurations
        assert read.times_ns.count(None) == made.times_ns.count(None)
        assert read.best_ns == pytest.approx(made.best_ns, rel=1e-4)
        assert read.errors[0] == pytest.approx(0.004, rel=0.1)
