from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("nvmath", reason="nvmath-python is not installed")

from gemmetry.domain.dispatch import parse_operation, split_dispatch_name
from gemmetry.providers.cublaslt_provider.algorithms import Algorithm, parse_algorithm

ROW = parse_operation("matmul_64x64x64_bf16t_bf16n_bf16t")
COLUMN = parse_operation("matmul_64x64x64_bf16t_bf16n_bf16n")
SMALL = st.integers(-3, 70)

algorithms = st.builds(
    Algorithm, id=st.integers(0, 500), split_k=st.integers(-1, 64), reduction=st.integers(0, 7),
    tile=st.integers(0, 900),  # more than the bindings have names for
    stages=st.integers(0, 60), swizzle=SMALL, custom=SMALL, inner=st.integers(0, 9),
    cluster=st.integers(0, 90),
)  # fmt: skip


@given(algorithms)
def test_names_parse_back(algorithm):
    assert parse_algorithm(algorithm.name) == algorithm
    for operation in (ROW, COLUMN):
        name = algorithm.configuration(operation).name
        assert name == algorithm.name
        assert split_dispatch_name(f"{operation}_{name}") == (operation, name)


def test_a_name_holds_what_is_unusual():
    assert Algorithm(id=66).name == "algo66"
    full = Algorithm(id=66, tile=23, stages=35, split_k=3, reduction=2, swizzle=1, custom=5,
                     inner=4, cluster=3)  # fmt: skip
    assert full.name == (
        "algo66_tile128x256_stages64xauto_splitk3_reducecompute_swizzle1_custom5_innermma16816"
        "_cluster2x1x1"
    )
    assert Algorithm(id=1, tile=9999, custom=-1).name == "algo1_tileid9999_customm1"


@pytest.mark.parametrize(
    "name",
    [
        "", "best", "algo", "algo066", "tile128x128", "algo66_tile7x7", "algo66_tileid23",
        "algo66_splitk1", "algo66_stages64xauto_tile128x256", "algo66_tile64x64_tile64x64",
        "algo66_swizzlem0", "algo66_", "ALGO66", "algo66_cluster2x1", "algo66_custom0x1",
    ],
)  # fmt: skip
def test_each_algorithm_has_one_name(name):
    assert parse_algorithm(name) is None


def test_parameters_are_along_the_axes_of_the_operation():
    """cuBLASLt's result is column-major, so that its rows are N where C is row-major."""
    algorithm = Algorithm(id=66, tile=23, stages=21, split_k=4, reduction=2, cluster=3)
    for operation, tile, cluster in (
        (ROW, (256, 128, 128), [1, 2]), (COLUMN, (128, 256, 128), [2, 1])
    ):  # fmt: skip
        found = algorithm.configuration(operation)
        assert found.tile == tile
        shown = ("cluster_m", "cluster_n", "stages", "splits", "reduction")
        assert [found.parameters[name] for name in shown] == [*cluster, 3, 4, "compute"]
    assert Algorithm(id=0).configuration(ROW).parameters == {"algorithm": 0}
    assert Algorithm(id=0, tile=9999).configuration(ROW).tile is None
