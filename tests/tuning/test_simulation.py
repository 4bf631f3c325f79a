from __future__ import annotations

import math
from pathlib import Path

import pytest

from gemmetry.tuning.simulation import MeasuredSpace, read_compact, simulate

from .synthetic import measured

SHAPES = ((16, 4096, 4096), (256, 4096, 4096), (2048, 2048, 2048))


@pytest.fixture(scope="module")
def data():
    return measured(SHAPES)


def test_an_exhaustive_search_finds_the_best(data):
    (share,) = simulate(data, ["exhaustive"], [1.0], seeds=2)
    assert (share.mean, share.lowest, share.highest, share.by_shape) == (1, 1, 1, (1, 1, 1))
    assert share.evaluations == pytest.approx(sum(len(one.space) for one in data) / 3)


def test_shares_are_geometric_means_over_the_shapes(data):
    (share,) = simulate(data, ["random"], [0.02], seeds=1)
    assert share.mean == pytest.approx(math.prod(share.by_shape) ** (1 / 3))
    assert 0 < share.lowest == share.mean == share.highest < 1


def test_more_evaluations_find_more_and_seeds_differ(data):
    found = simulate(data, ["random"], [0.01, 0.3], seeds=8)
    assert found[0].mean < found[1].mean
    assert found[0].lowest < found[0].mean < found[0].highest


def test_a_strategy_that_finds_nothing_that_works_has_the_share_0(data):
    broken = MeasuredSpace(data[0].space, (None,) * (len(data[0].space) - 1) + (1.0,),
                           data[0].errors)  # fmt: skip
    (share,) = simulate([broken], ["exhaustive"], [0.01], seeds=1)
    assert share.mean == 0


def test_configurations_that_fail_do_not_hide_those_like_them():
    """A tenth of this space fails without a reason."""
    shares = [simulate(measured(seed=seed), ["model"], [0.05], seeds=1)[0] for seed in range(12)]
    # 0.981 here; the same seeds found 0.983 in the space before its last 26 configurations.
    assert sum(share.mean for share in shares) / 12 > 0.975


def stored(name):
    """A file from which a table of docs/tuner.md is made."""
    return read_compact(Path(__file__).parents[1] / f"data/tuning/{name}.json").measured()


def test_a_search_on_an_h200():
    """A twentieth of a real GPU's space comes within 1 % of its best, by strategies that learn."""
    data = stored("h200_triton")
    assert len(data) == 12 and sum(len(one.space) for one in data) == 2120
    found = simulate(data, ["model", "halving", "exhaustive", "random"], [0.05], seeds=2)
    shares = {one.strategy: one.mean for one in found}
    assert min(shares["model"], shares["halving"]) > 0.985 > shares["exhaustive"]
    assert min(shares["model"] - 0.03, shares["halving"]) > shares["random"]


def test_a_search_on_a_cpu():
    data = stored("iree_cpu")
    assert [len(one.space) for one in data] == [104, 55, 141]
    assert sum(ns is None for one in data for ns in one.times_ns) == 0
    found = simulate(data, ["exhaustive", "model"], [0.05, 1.0], seeds=1)
    assert [share.mean for share in found[1::2]] == [1.0, 1.0]
    assert found[0].mean < found[2].mean < 1
