from __future__ import annotations

import pytest

from gemmetry.counters.comparison import match_variants, variants_of
from gemmetry.counters.gates import diagnose

_BF16 = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"


def _variants(launches):
    return variants_of(launches, [diagnose(one) for one in launches])


@pytest.fixture
def kernel(counter_launches):
    def make(name, grid=1, operations=None):
        values = counter_launches.metrics()
        if operations is not None:
            values[_BF16] = operations
        return counter_launches.launch(values, name, grid=(grid, 1, 1), block=(128, 1, 1))

    return make


def _matched(first, second):
    found, left, right = match_variants(_variants(first), _variants(second))
    grids = [
        (one.first.launches[0].info.grid[0], one.second.launches[0].info.grid[0], one.reason)
        for one in found
    ]
    return grids, [one.name for one in left], [one.name for one in right]


def test_launches_of_one_kernel_and_grid_are_one_variant(kernel):
    variants = _variants([kernel("a"), kernel("b"), kernel("a"), kernel("a", 2)])
    assert [(one.name, len(one.launches)) for one in variants] == [("a", 2), ("b", 1), ("a", 1)]


def test_the_same_grid_and_the_same_work_come_before_the_order(kernel):
    found = _matched([kernel("k", 1), kernel("k", 2)], [kernel("k", 2), kernel("k", 3)])
    assert found == ([(1, 3, "the same name"), (2, 2, "the same name and grid")], [], [])
    found = _matched([kernel("k", 1, 1e9), kernel("k", 2, 5e9)],
                     [kernel("k", 3, 5.1e9), kernel("k", 4, 1e9)])  # fmt: skip
    assert found[0] == [(1, 4, "the same name and work"), (2, 3, "the same name and work")]


def test_gemms_with_other_names_and_the_same_work(kernel):
    found = _matched([kernel("matmul_kernel", 1, 1e9)],
                     [kernel("gemm_a", 3, 7e9), kernel("gemm_b", 4, 1e9)])  # fmt: skip
    assert found == ([(1, 4, "GEMMs with the same work")], [], ["gemm_a"])


def test_the_order_counts_only_where_both_have_as_many(kernel):
    first = [kernel("x_mild", 1), kernel("y_mild", 2)]
    found = _matched(first, [kernel("x_severe", 3), kernel("y_severe", 4)])
    assert [one[:2] for one in found[0]] == [(1, 3), (2, 4)]
    found = _matched(first, [kernel("x_severe", 3)])
    assert found == ([], ["x_mild", "y_mild"], ["x_severe"])
