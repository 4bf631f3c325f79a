from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from gemmetry.numerics.storage import to_float64
from gemmetry.verification.cache import checked, is_product

RNG = np.random.default_rng(1)


def _factors(dtype, m=40, n=30, k=500):
    lhs, rhs = RNG.standard_normal((m, k)), RNG.standard_normal((n, k))
    return lhs.astype(dtype), rhs.astype(dtype).T  # B as a column-major matrix


def _product(lhs, rhs):
    return to_float64(lhs) @ to_float64(rhs)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16, np.int8])
def test_products_in_float64_pass_in_any_order_of_summation(dtype):
    lhs, rhs = _factors(dtype)
    assert is_product(lhs, rhs, _product(lhs, rhs))
    backwards = _product(np.ascontiguousarray(lhs[:, ::-1]), np.ascontiguousarray(rhs[::-1]))
    assert is_product(lhs, rhs, backwards)


def test_errors_fail():
    lhs, rhs = _factors(np.float32)
    right = _product(lhs, rhs)
    narrow = (lhs @ rhs).astype(np.float64)
    assert not is_product(lhs, rhs, narrow), "sums in float32"
    for row, column in ((0, 0), (17, 29), (39, 3)):
        wrong = right.copy()
        wrong[row, column] += 1e-7
        assert not is_product(lhs, rhs, wrong)
    lost = right.copy()
    lost[5] = 0
    assert not is_product(lhs, rhs, lost)
    lost[5] = np.nan
    assert not is_product(lhs, rhs, lost)


def test_batches_are_tested_matrix_by_matrix():
    lhs, rhs = RNG.standard_normal((3, 5, 7)), RNG.standard_normal((3, 7, 4))
    right = lhs @ rhs
    assert is_product(lhs, rhs, right)
    right[2, 4, 3] += 1e-6
    assert not is_product(lhs, rhs, right)


def test_rows_that_are_not_finite_are_not_tested():
    lhs, rhs = _factors(np.float64)
    lhs[3, 4] = np.inf
    assert is_product(lhs, rhs, _product(lhs, rhs))


def test_a_device_that_is_wrong_is_replaced_by_the_host():
    lhs, rhs = _factors(np.float32)
    calls = []

    def broken(a, b):
        calls.append(1)
        result = _product(a, b)
        result[1, 1] *= 1.001
        return result

    np.testing.assert_array_equal(
        checked(broken)(lhs, rhs), np.matmul(*map(to_float64, (lhs, rhs)))
    )
    assert checked(lambda a, b: _product(a, b))(lhs, rhs)[1, 1] == _product(lhs, rhs)[1, 1]
    assert calls == [1]
