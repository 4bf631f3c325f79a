from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.operation import BF16, S32
from gemmetry.numerics.bounds import half_ulp
from gemmetry.numerics.storage import quantize, to_float64
from gemmetry.verification import freivalds as vector_sums
from gemmetry.verification.freivalds import scan


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("piece", [16, 1 << 19])
def test_one_pass_gives_products_and_norms_of_both_sides(monkeypatch, order, piece):
    monkeypatch.setattr(vector_sums, "_PIECE", piece)
    rng = np.random.default_rng(1)
    matrix = np.asarray(quantize(rng.normal(size=(13, 7)), BF16), order=order)
    x, y = rng.choice([-1.0, 1.0], (7, 4)), rng.choice([-1.0, 1.0], (13, 4))
    wide = to_float64(matrix)
    found = scan(matrix, x=x, y=y, squares=True)
    np.testing.assert_allclose(found.right, wide @ x, atol=1e-12)
    np.testing.assert_allclose(found.left, wide.T @ y, atol=1e-12)
    np.testing.assert_allclose(found.row_squares, (wide**2).sum(axis=1))
    np.testing.assert_allclose(found.column_squares, (wide**2).sum(axis=0))
    ulps = half_ulp(np.ascontiguousarray(wide), BF16)
    halves = scan(matrix, half_ulps_of=BF16)
    np.testing.assert_allclose(halves.row_squares, (ulps**2).sum(axis=1))
    np.testing.assert_allclose(halves.column_fourths, (ulps**4).sum(axis=0))
    np.testing.assert_allclose(halves.flipped.row_fourths, (ulps**4).sum(axis=0))


def test_integers_wrap_around_on_request():
    matrix = np.full((2, 4), 2**31 - 1, dtype=np.int32)
    x = np.full((4, 1), 2**62, dtype=np.int64)
    with np.errstate(over="ignore"):
        expected = matrix.astype(np.int64) @ x
    found = scan(matrix, x=x, modulo=True)
    assert found.right.dtype == np.int64
    assert (found.right == expected).all()
    assert S32.is_integer
