from __future__ import annotations

import numpy as np

from gemmetry.domain.dispatch import Configuration, parse_operation, parse_target
from gemmetry.providers.null_provider.provider import NullProvider
from gemmetry.tuning.search import features, make_space, positions, space_of

from .synthetic import H200, spaces

SQUARE = parse_operation("matmul_4096x4096x4096_bf16t_bf16n_bf16t")


def tile(name, m, n, **others):
    return Configuration(name, {"tile_m": m, "tile_n": n, "tile_k": 64, **others})


def test_a_default_that_names_another_configuration_is_no_member():
    pair = (Configuration("default", {"tile_m": 64}), Configuration("tile_64", {"tile_m": 64}))
    assert [one.name for one in make_space(SQUARE, pair, H200).configurations] == ["tile_64"]
    own = (Configuration("default", {"tile_m": 32}), pair[1])
    assert len(make_space(SQUARE, own, H200)) == 2


def test_configurations_are_ordered_by_predicted_time_after_the_seeds():
    space = make_space(SQUARE, [tile("small", 16, 32), tile("large", 128, 256)], H200)
    assert [space.configurations[one].name for one in space.order] == ["large", "small"]
    cpu = make_space(SQUARE, space.configurations, parse_target("cpu"))
    assert cpu.order == [0, 1], "no model of a CPU: as they are listed"


def test_what_has_no_tile_is_predicted_like_the_usual_one():
    named = (tile("a", 128, 128), Configuration("chosen", {}), tile("b", 16, 32))
    predicted = make_space(SQUARE, named, H200).predicted
    assert predicted[0] < predicted[1] < predicted[2]


def test_a_provider_that_does_not_support_an_operation_has_an_empty_space():
    space = space_of(NullProvider(), SQUARE, parse_target("cpu"))
    assert (len(space), space.order) == (0, [])
    assert [one.shape[0] for one in features([space])] == [0]


def test_features_that_do_not_distinguish_are_left_out():
    """On a CPU there is no model of launches; 'group' is the same everywhere."""
    rows = [Configuration(f"c{m}", {"tile_m": m, "group": 8}) for m in (16, 32, 64)]
    empty, three = features([make_space(SQUARE, own, parse_target("cpu")) for own in ((), rows)])
    assert empty.shape == (0, 1)
    assert np.allclose(three[:, 0], [-1.2247, 0, 1.2247], atol=1e-3)


def test_features_are_of_one_scale_over_all_shapes():
    found = spaces(((16, 4096, 4096), (4096, 4096, 4096)))
    rows = features(found)
    every = np.concatenate(rows)
    assert [len(one) for one in rows] == [len(one) for one in found]
    assert np.allclose(every.mean(axis=0), 0, atol=1e-9)
    assert set(np.round(every.std(axis=0), 6)) <= {0.0, 1.0}
    assert np.isfinite(every).all()


def test_equal_configurations_have_equal_features_but_for_the_predictions_of_their_shape():
    few, many = spaces(((128, 4096, 4096), (4096, 4096, 4096)))
    rows = features([few, many])
    shared = set(positions(few)) & set(positions(many))
    assert len(shared) > 100
    for name in sorted(shared)[:5]:
        one, other = rows[0][positions(few)[name]], rows[1][positions(many)[name]]
        assert np.allclose(one[:-3], other[:-3])
